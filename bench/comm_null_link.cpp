// The library's own cost of an all-reduce: all ranks in one process and one thread, over a link that is nothing. A
// write is there at once; of its bytes only the slot header is moved, without which no rank would believe it. What is
// left is the communicator: arguments, programs, the runner, statistics; with large tensors also reductions and copies.
//
//   comm_null_link                                            a line for each size: time of one rank's all-reduce
//   comm_null_link --operations N BYTES [RANKS [two-shot]]   nothing but N all-reduces: for instructions.py
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "bootstrap/group.hpp"
#include "bootstrap/unique_id.hpp"
#include "comm/communicator.hpp"
#include "comm/observe/observer.hpp"

namespace tensorwire::comm {

namespace {

/// What the links of all ranks share: where each rank's scratch memory is, and what has come for it.
class Nothing {
 public:
  struct End {
    std::byte* scratch = nullptr;
    std::array<LinkEvent, 256> events;
    std::uint32_t head = 0, tail = 0;

    void push(const LinkEvent& event) noexcept { events[tail++ % events.size()] = event; }
  };

  explicit Nothing(std::uint32_t ranks) : ends_(ranks) {}
  [[nodiscard]] End& end(std::uint32_t rank) noexcept { return ends_[rank]; }

 private:
  std::vector<End> ends_;
};

class NullLink final : public Link {
 public:
  NullLink(Nothing& nothing, const LinkSetup& setup) : nothing_(&nothing), rank_(setup.rank) {
    nothing.end(rank_).scratch = setup.scratch.data();
  }

  [[nodiscard]] std::uint32_t scratch_key() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t key_of(const void* /*address*/, std::size_t /*bytes*/) override { return 0; }
  void forget(const void* /*address*/, std::size_t /*bytes*/) noexcept override {}

  bool post_write(const WriteRequest& request) noexcept override {
    Nothing::End& peer = nothing_->end(request.peer);
    if (!request.pieces.empty() && request.pieces[0].bytes >= collective::kSlotHeaderBytes) {
      std::memcpy(peer.scratch + request.remote_offset, request.pieces[0].address, collective::kSlotHeaderBytes);
    }
    peer.push({LinkEventKind::kArrival, rank_, request.immediate, 0});
    if (request.token != collective::kNoToken) {
      nothing_->end(rank_).push({LinkEventKind::kSent, request.peer, 0, request.token});
    }
    return true;
  }
  int poll(std::span<LinkEvent> events) noexcept override {
    Nothing::End& own = nothing_->end(rank_);
    std::size_t count = 0;
    while (own.head != own.tail && count < events.size()) events[count++] = own.events[own.head++ % own.events.size()];
    return static_cast<int>(count);
  }
  void wait(Ps /*bound*/) noexcept override {}
  [[nodiscard]] const LinkFailure* failure() const noexcept override { return nullptr; }
  [[nodiscard]] PeerStats stats(std::uint32_t /*peer*/) const noexcept override { return {}; }
  [[nodiscard]] std::string describe(std::uint32_t /*peer*/) const override { return "nothing"; }

 private:
  Nothing* nothing_;
  std::uint32_t rank_;
};

/// The communicators of all ranks, and a tensor for each.
class Ranks {
 public:
  /// @param two_shot  also where one-shot would be taken
  Ranks(std::uint32_t ranks, std::size_t bytes, bool two_shot)
      : nothing_(ranks), groups_(ranks), communicators_(ranks) {
    const auto id = bootstrap::make_unique_id();
    std::vector<std::exception_ptr> failures(ranks);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      tensors_.emplace_back(2 * bytes);
      threads.emplace_back([&, rank] {
        try {
          set_up(id, rank, two_shot);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }
  /// The last barrier of the communicators needs all of them at once.
  ~Ranks() {
    std::vector<std::thread> threads;
    for (auto& communicator : communicators_) threads.emplace_back([&] { communicator.reset(); });
    for (std::thread& thread : threads) thread.join();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// One all-reduce of all ranks. @throws Error
  void all_reduce() {
    for (std::size_t rank = 0; rank < communicators_.size(); ++rank) {
      std::vector<std::byte>& tensor = tensors_[rank];
      Call call;
      call.in = tensor.data();
      call.out = tensor.data() + tensor.size() / 2;
      call.count = tensor.size() / 2 / sizeof(float);
      if (!communicators_[rank]->begin(call)) fail(rank);
    }
    std::size_t left = communicators_.size();
    done_.assign(left, 0);
    while (left != 0) {
      for (std::size_t rank = 0; rank < communicators_.size(); ++rank) {
        if (done_[rank] != 0) continue;
        const Progress progress = communicators_[rank]->advance();
        if (progress == Progress::kFailed) fail(rank);
        if (progress != Progress::kDone) continue;
        done_[rank] = 1;
        --left;
      }
    }
  }

 private:
  void set_up(const bootstrap::UniqueId& id, std::uint32_t rank, bool two_shot) {
    groups_[rank] =
        bootstrap::Group::join(bootstrap::options_of(id, static_cast<int>(rank), static_cast<int>(groups_.size())));
    CommOptions options;
    if (two_shot) options.thresholds = {.one_shot_bytes = 0, .one_shot_bytes_pair = 0};
    options.link_factory = [this](bootstrap::Group&, const LinkSetup& setup) {
      return std::make_unique<NullLink>(nothing_, setup);
    };
    communicators_[rank] = Communicator::create(*groups_[rank], options);
  }
  [[noreturn]] void fail(std::size_t rank) const {
    throw Error{"all-reduce over nothing", communicators_[rank]->error()->line};
  }

  Nothing nothing_;
  std::vector<std::unique_ptr<bootstrap::Group>> groups_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::vector<std::byte>> tensors_;  ///< input, then output
  std::vector<std::uint8_t> done_;
};

void BM_AllReduce(benchmark::State& state) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  Ranks ranks{count, static_cast<std::size_t>(state.range(2)), state.range(1) != 0};
  for (auto _ : state) ranks.all_reduce();
  state.counters["one rank"] = benchmark::Counter(static_cast<double>(state.iterations()) * count,
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_AllReduce)
    ->ArgNames({"ranks", "two-shot", "bytes"})
    ->ArgsProduct({{2, 8}, {0}, {8, 4096, 262144}})
    ->ArgsProduct({{2, 8}, {1}, {64}});

/// What each operation pays for statistics and the flight record, which are always on.
void BM_Observer(benchmark::State& state) {
  Nothing nothing{2};
  const NullLink link{nothing, LinkSetup{}};
  Observer observer{Identity{0, 2, 0, "host"}, link};
  OperationInfo info;
  info.bytes = 8;
  for (auto _ : state) {
    const std::uint64_t operation = observer.begin(info, monotonic_now());
    observer.end(operation, monotonic_now(), 0, 1);
  }
}
BENCHMARK(BM_Observer);

}  // namespace

}  // namespace tensorwire::comm

int main(int argc, char** argv) {
  if (argc >= 4 && std::strcmp(argv[1], "--operations") == 0) {
    const auto ranks = argc >= 5 ? std::strtoul(argv[4], nullptr, 10) : 2;
    const bool two_shot = argc >= 6 && std::strcmp(argv[5], "two-shot") == 0;
    tensorwire::comm::Ranks all{static_cast<std::uint32_t>(ranks), std::strtoul(argv[3], nullptr, 10), two_shot};
    for (auto left = std::strtoull(argv[2], nullptr, 10); left != 0; --left) all.all_reduce();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
