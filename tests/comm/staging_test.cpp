// Tensors in memory that the HCA does not take: the link is the real one, but refuses to register what is not the
// library's own.
#include "comm/staging.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.hpp"
#include "comm/verbs_link.hpp"
#include "rank_processes.hpp"

namespace tensorwire::comm {
namespace {

/// Refuses memory that is not aligned to a huge page, as only the library's own large memory is here.
class ChoosyLink final : public Link {
 public:
  explicit ChoosyLink(std::unique_ptr<Link> link) : link_(std::move(link)) {}

  [[nodiscard]] std::uint32_t scratch_key() const noexcept override { return link_->scratch_key(); }
  [[nodiscard]] std::uint32_t key_of(const void* address, std::size_t bytes) override {
    refuse(address);
    return link_->key_of(address, bytes);
  }
  [[nodiscard]] bool has_windows() const noexcept override { return true; }
  [[nodiscard]] UserOutput output_of(void* address, std::size_t bytes) override {
    refuse(address);
    return link_->output_of(address, bytes);
  }
  void forget(const void* address, std::size_t bytes) noexcept override { link_->forget(address, bytes); }
  bool post_write(const WriteRequest& request) noexcept override { return link_->post_write(request); }
  int poll(std::span<LinkEvent> events) noexcept override { return link_->poll(events); }
  void wait(Ps bound) noexcept override { link_->wait(bound); }
  void abandon() noexcept override { link_->abandon(); }
  [[nodiscard]] const LinkFailure* failure() const noexcept override { return link_->failure(); }
  [[nodiscard]] PeerStats stats(std::uint32_t peer) const noexcept override { return link_->stats(peer); }
  [[nodiscard]] std::string describe(std::uint32_t peer) const override { return link_->describe(peer); }

 private:
  static void refuse(const void* address) {
    if (reinterpret_cast<std::uintptr_t>(address) % (2 << 20) == 0) return;
    throw Error{"register memory", "not of this kind"};
  }

  std::unique_ptr<Link> link_;
};

/// Two messages each way at once, of memory that must be staged: out of it, and into it from slots or as windows.
void exchange(Communicator& comm, int rank, std::size_t count) {
  std::vector<float> a(count, static_cast<float>(10 * rank + 1)), b(count, static_cast<float>(10 * rank + 2));
  std::vector<float> first(count), second(count);
  const int peer = 1 - rank;
  const std::vector<Transfer> transfers{{true, peer, a.data(), count},
                                        {true, peer, b.data(), count},
                                        {false, peer, first.data(), count},
                                        {false, peer, second.data(), count}};
  const std::uint64_t before = comm.stats().runner.bytes_copied;
  if (!comm.run(transfers)) throw Error{"exchange", comm.error()->line};
  if (first != std::vector<float>(count, static_cast<float>(10 * peer + 1)) ||
      second != std::vector<float>(count, static_cast<float>(10 * peer + 2))) {
    throw Error{"exchange", "a message is wrong"};
  }
  const std::uint64_t copied = comm.stats().runner.bytes_copied - before;
  if (copied != 4 * 4 * count) throw Error{"exchange", fmt::format("{} bytes were copied", copied)};
}

TEST(Staging, TensorsThatCannotBeRegisteredAreCopiedAndCounted) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    CommOptions options = soft_options();
    options.link_factory = [](bootstrap::Group& of, const LinkSetup& setup) -> std::unique_ptr<Link> {
      VerbsLinkOptions verbs_options;
      verbs_options.device.device = "soft";
      return std::make_unique<ChoosyLink>(std::make_unique<VerbsLink>(of, setup, verbs_options));
    };
    const auto comm = Communicator::create(group, options);
    // Through slots, through windows, and a larger one after a smaller one.
    for (const std::size_t count : {std::size_t{100'000}, std::size_t{500'000}, std::size_t{900'000}}) {
      std::vector<float> data(count + 1);
      for (std::size_t i = 0; i < count; ++i)
        data[i] = static_cast<float>(i % 1000) * static_cast<float>(group.rank() + 1);
      data[count] = -1;
      if (!comm->all_reduce(data.data(), data.data(), count, collective::DType::kFloat32)) {
        throw Error{"all-reduce", comm->error()->line};
      }
      for (std::size_t i = 0; i < count; ++i) {
        if (data[i] != 3.0F * static_cast<float>(i % 1000))
          throw Error{"all-reduce", fmt::format("element {} is wrong", i)};
      }
      if (data[count] != -1) throw Error{"all-reduce", "it wrote behind the tensor"};
    }
    for (const std::size_t count : {std::size_t{33'333}, std::size_t{300'001}, std::size_t{2'000'003}}) {
      exchange(*comm, group.rank(), count);
    }
    return fmt::format("{}", comm->stats().runner.bytes_copied >= std::uint64_t{2} * 4 * (500'000 + 900'000));
  });
  for (const RankResult& result : results) EXPECT_EQ(result.text, "true");
}

TEST(Slots, ShrinkWithTheNumberOfRanks) {
  EXPECT_EQ(slot_payload_for(2), 256U << 10);
  EXPECT_EQ(slot_payload_for(16), 256U << 10);
  EXPECT_EQ(slot_payload_for(17), 128U << 10);
  EXPECT_EQ(slot_payload_for(128), 32U << 10);
  EXPECT_EQ(slot_payload_for(1024), 16U << 10);
  collective::RunnerConfig config;
  config.ranks = 128;
  config.slot_bytes = slot_payload_for(128) + collective::kSlotHeaderBytes;
  EXPECT_LT(config.scratch_bytes(), 9U << 20);
}

}  // namespace
}  // namespace tensorwire::comm
