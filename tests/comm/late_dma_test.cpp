// The completion rule: when an all-reduce returns, the caller may overwrite its buffers. The HCA reads the source of
// what was posted as late as its faults let it, loses packets and acknowledgements and sends again; sums stay right. A
// link that tells completions before the HCA has read the source is found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "base/error.hpp"
#include "comm/verbs_link.hpp"
#include "rank_processes.hpp"
#include "tensors.hpp"

namespace tensorwire::comm {
namespace {

constexpr int kRanks = 3;

/// A planted bug: a write counts as sent once it is posted; its real completion is swallowed.
class HastyLink final : public Link {
 public:
  explicit HastyLink(std::unique_ptr<Link> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] std::uint32_t scratch_key() const noexcept override { return inner_->scratch_key(); }
  [[nodiscard]] std::uint32_t key_of(const void* address, std::size_t bytes) override {
    return inner_->key_of(address, bytes);
  }
  void forget(const void* address, std::size_t bytes) noexcept override { inner_->forget(address, bytes); }
  bool post_write(const WriteRequest& request) noexcept override {
    if (request.token != collective::kNoToken) sent_.push_back({LinkEventKind::kSent, request.peer, 0, request.token});
    return inner_->post_write(request);
  }
  int poll(std::span<LinkEvent> events) noexcept override {
    if (!sent_.empty()) {
      events[0] = sent_.front();
      sent_.pop_front();
      return 1;
    }
    const int count = inner_->poll(events);
    if (count <= 0) return count;
    const auto end = std::remove_if(events.begin(), events.begin() + count,
                                    [](const LinkEvent& event) { return event.kind == LinkEventKind::kSent; });
    return static_cast<int>(end - events.begin());
  }
  void wait(Ps bound) noexcept override { inner_->wait(bound); }
  void abandon() noexcept override { inner_->abandon(); }
  [[nodiscard]] const LinkFailure* failure() const noexcept override { return inner_->failure(); }
  [[nodiscard]] PeerStats stats(std::uint32_t peer) const noexcept override { return inner_->stats(peer); }
  [[nodiscard]] std::string describe(std::uint32_t peer) const override { return inner_->describe(peer); }

 private:
  std::unique_ptr<Link> inner_;
  std::deque<LinkEvent> sent_;
};

/// All-reduces of one size, each over the same buffers, which are overwritten as soon as it returns.
/// @throws Error at the first wrong sum.
void overwrite_at_once(Communicator& comm, std::size_t count, bool in_place, int operations) {
  std::vector<std::byte> in(count * sizeof(float));
  std::vector<std::byte> apart(in.size());
  std::vector<std::byte> got(in.size());
  std::vector<std::byte>& out = in_place ? in : apart;
  for (int i = 0; i < operations; ++i) {
    const auto seed = static_cast<std::uint64_t>(i) + count;
    const auto input = input_of(seed, comm.rank(), count, DType::kFloat32);
    std::memcpy(in.data(), input.data(), in.size());
    if (!comm.all_reduce(in.data(), out.data(), count, DType::kFloat32)) throw Error{"failed", comm.error()->line};
    if (!in_place) std::ranges::fill(in, std::byte{0xee});
    std::memcpy(got.data(), out.data(), got.size());
    std::ranges::fill(out, std::byte{0xdd});
    if (got != sum_of(seed, comm.size(), count, DType::kFloat32)) {
      throw Error{fmt::format("operation {} of {} elements", i, count), "wrong sum"};
    }
  }
}

std::vector<RankResult> run_over(const char* faults, bool hasty, int operations) {
  return run_ranks(kRanks, [=](bootstrap::Group& group) {
    setenv("TENSORWIRE_FAULTS", faults, 1);
    CommOptions options = soft_options();
    options.operation_timeout = 20 * kSecond;
    options.thresholds.copy_in_bytes = 0;  // small tensors, too, are sent from the caller's memory
    if (hasty) {
      options.link_factory = [](bootstrap::Group& ranks, const LinkSetup& setup) {
        VerbsLinkOptions verbs_options;
        verbs_options.device.device = "soft";
        return std::make_unique<HastyLink>(std::make_unique<VerbsLink>(ranks, setup, verbs_options));
      };
    }
    const auto comm = Communicator::create(group, options);
    for (const std::size_t count : {std::size_t{1'000}, std::size_t{50'000}}) {
      const bool one_shot = comm->algorithm_for(count, DType::kFloat32) == collective::Algorithm::kOneShot;
      if (one_shot != (count == 1'000)) throw Error{"algorithm", "the sizes no longer cover both"};
      for (const bool in_place : {false, true}) overwrite_at_once(*comm, count, in_place, operations);
    }
    return std::string{};
  });
}

TEST(LateDma, BuffersMayBeOverwrittenAtOnce) {
  for (const RankResult& result : run_over("late_dma=200us", false, 100)) EXPECT_EQ(result.exit_code, 0) << result.text;
}

TEST(LateDma, AlsoWhenPacketsAndAcknowledgementsAreLost) {
  for (const char* faults : {"late_dma=200us,drop=3%,opcode=ACK,seed=5", "late_dma=200us,drop=0.5%,seed=6"}) {
    for (const RankResult& result : run_over(faults, false, 40)) {
      EXPECT_EQ(result.exit_code, 0) << faults << ": " << result.text;
    }
  }
}

TEST(LateDma, ALinkThatDoesNotWaitForItsCompletionsIsFound) {
  const auto results = run_over("late_dma=200us", true, 100);
  EXPECT_TRUE(std::ranges::any_of(
      results, [](const RankResult& result) { return result.text.find("wrong sum") != std::string::npos; }))
      << "first rank: " << results[0].text;
}

}  // namespace
}  // namespace tensorwire::comm
