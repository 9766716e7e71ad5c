// Ranks in one process over a network that delivers in any order: each step of the run picks one possible event at
// random (a delivery, an acknowledgement, a rank starting work), weighted by a random skew between ranks. As harsh as
// the protocol allows: a write's source is read only when it is delivered, so a source that was given back too early
// shows as a wrong result; and more messages under way than receives could be posted fail the run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "collective/algorithms.hpp"
#include "collective/reduce.hpp"
#include "collective/runner.hpp"

namespace tensorwire::collective {

/// One all-reduce as one rank calls it.
struct Call {
  Algorithm algorithm = Algorithm::kOneShot;
  WriteSource source = WriteSource::kSendSlot;
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  bool in_place = false;
  int broadcast_root = -1;  ///< not negative: a broadcast instead, which sends nothing back
};

/// A plan of another kind than all-reduce: the root writes to all, nobody answers.
inline Program build_broadcast(const Shape& shape, std::uint32_t rank, std::uint32_t root) {
  ProgramBuilder builder{Algorithm::kOneShot, shape, rank};
  if (rank == root) {
    const auto copied = builder.copy({Place::kInput, 0, 0}, {Place::kSendSlot, 0, 0}, shape.bytes());
    builder.copy({Place::kInput, 0, 0}, {Place::kOutput, 0, 0}, shape.bytes());
    for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
      if (peer != rank) builder.write(peer, 0, {Place::kSendSlot, 0, 0}, 0, shape.bytes(), {copied});
    }
    return builder.finish();
  }
  const auto arrived = builder.arrival(root, 0);
  const auto matched = builder.match({arrived});
  const Location slot{Place::kPeerSlot, static_cast<std::uint16_t>(root), 0};
  builder.release(root, {builder.copy(slot, {Place::kOutput, 0, 0}, shape.bytes(), {matched})});
  return builder.finish();
}

class RandomNetwork {
 public:
  static constexpr std::size_t kCanary = 64;

  struct Options {
    std::uint32_t ranks = 2;
    std::uint32_t depth = 2;
    std::uint32_t send_slots = 2;
    std::uint64_t slot_payload = 256;
    std::uint32_t concurrent_calls = 1;
    bool in_order = false;  ///< per directed pair, as one queue pair delivers
  };

  /// `calls[rank]`: what each rank does, in order.
  RandomNetwork(std::uint64_t seed, const Options& options, std::vector<std::vector<Call>> calls)
      : random_(seed), options_(options) {
    for (std::uint32_t r = 0; r < options.ranks; ++r) {
      ranks_.push_back(std::make_unique<Rank>(*this, r, std::move(calls[r])));
      weights_.push_back(1 + random_.below(random_.chance(300'000) ? 40 : 4));
    }
  }

  /// Until nothing can happen any more.
  void run() {
    for (std::uint64_t events = 0;; ++events) {
      ASSERT_LT(events, 5'000'000U) << "it does not end";
      std::vector<Event> possible;
      std::uint32_t total = 0;
      for (std::uint32_t r = 0; r < options_.ranks; ++r) {
        collect(r, possible);
      }
      if (possible.empty()) return;
      for (const Event& event : possible) total += weights_[event.rank];
      std::uint32_t at = random_.below(total);
      for (const Event& event : possible) {
        if (at < weights_[event.rank]) {
          happen(event);
          break;
        }
        at -= weights_[event.rank];
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  [[nodiscard]] bool finished(std::uint32_t rank) const {
    return ranks_[rank]->completed_calls == ranks_[rank]->calls.size();
  }
  [[nodiscard]] const Runner& runner(std::uint32_t rank) const { return *ranks_[rank]->runner; }
  [[nodiscard]] const std::vector<std::vector<std::byte>>& results(std::uint32_t rank) const {
    return ranks_[rank]->results;
  }
  /// Whether any output byte of the calls under way was touched.
  [[nodiscard]] bool untouched(std::uint32_t rank) const {
    for (const auto& active : ranks_[rank]->active) {
      if (active->output() == nullptr) continue;
      const std::byte* begin = active->output();
      const std::vector<std::byte>& before = active->output_before;
      if (!std::equal(before.begin(), before.end(), begin)) return false;
    }
    return true;
  }
  [[nodiscard]] std::string status() const {
    std::string text;
    for (std::uint32_t r = 0; r < options_.ranks; ++r) {
      const auto waiting = runner(r).waiting_for();
      text += "rank " + std::to_string(r) + ": " + std::to_string(ranks_[r]->completed_calls) +
              " calls done, waits for " + std::to_string(waiting.peer) + " " + waiting.what + "; " +
              to_string(runner(r).error()) + "\n";
    }
    return text;
  }

  static std::vector<std::byte> input_of(std::uint64_t seed, std::uint32_t rank, std::size_t call, const Call& what) {
    std::vector<std::byte> bytes(what.count * element_bytes(what.dtype));
    Random random{mix64(seed) ^ mix64(rank * 1000 + call)};
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
    return bytes;
  }

  static std::vector<std::byte> expected(std::uint64_t seed, std::uint32_t ranks, std::size_t call, const Call& what) {
    std::vector<std::vector<std::byte>> inputs;
    std::vector<const std::byte*> operands;
    for (std::uint32_t r = 0; r < ranks; ++r) inputs.push_back(input_of(seed, r, call, what));
    for (const auto& input : inputs) operands.push_back(input.data());
    std::vector<std::byte> sum(inputs[0].size());
    if (what.broadcast_root >= 0) return inputs[static_cast<std::size_t>(what.broadcast_root)];
    if (ranks == 1) return inputs[0];
    reduce_at(SimdLevel::kScalar, what.dtype, Op::kSum, operands, sum.data(), nullptr, what.count);
    return sum;
  }

  std::uint64_t input_seed = 0;

 private:
  struct Message {
    std::vector<Piece> pieces;
    std::uint64_t remote_offset;
    std::uint32_t immediate;
    std::uint64_t token;
  };

  struct ActiveCall {
    std::size_t index = 0;
    Call call;
    std::vector<std::byte> input;   ///< with canaries around
    std::vector<std::byte> result;  ///< with canaries around; unused in place
    std::vector<std::byte> output_before;
    Segmentation cut;
    std::unique_ptr<Program> full, last;
    std::uint64_t begun = 0;
    std::uint64_t first_segment = 0;

    std::byte* output() { return (call.in_place ? input : result).data() + kCanary; }
    [[nodiscard]] const std::byte* output() const { return (call.in_place ? input : result).data() + kCanary; }
  };

  struct Rank final : HostActions {
    Rank(RandomNetwork& owner, std::uint32_t number, std::vector<Call> what)
        : network(owner), index(number), calls(std::move(what)), outgoing(owner.options_.ranks) {
      RunnerConfig config;
      config.rank = number;
      config.ranks = owner.options_.ranks;
      config.depth = owner.options_.depth;
      config.send_slots = owner.options_.send_slots;
      config.slot_bytes = owner.options_.slot_payload + kSlotHeaderBytes;
      scratch.resize(config.scratch_bytes() + 64);
      const std::size_t shift = 64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64;
      base = scratch.data() + shift;
      receive_depth = config.receive_depth(2);
      runner = std::make_unique<Runner>(config, base, 0, *this);
    }

    bool write(const WriteRequest& request) noexcept override {
      auto& queue = outgoing[request.peer];
      queue.push_back(
          {{request.pieces.begin(), request.pieces.end()}, request.remote_offset, request.immediate, request.token});
      EXPECT_LE(queue.size(), receive_depth) << "more messages than receives: an RNR NAK";
      return true;
    }

    RandomNetwork& network;
    std::uint32_t index;
    std::vector<Call> calls;
    std::vector<std::byte> scratch;
    std::byte* base = nullptr;
    std::uint32_t receive_depth = 0;
    std::unique_ptr<Runner> runner;
    std::vector<std::deque<Message>> outgoing;  ///< by peer
    std::vector<Message> unacknowledged;        ///< delivered; go-back-N may still read their source
    std::deque<std::unique_ptr<ActiveCall>> active;
    std::vector<std::unique_ptr<ActiveCall>>
        over;  ///< their programs must outlive the runner's use; their memory is spoilt
    std::size_t started_calls = 0;
    std::size_t completed_calls = 0;
    std::vector<std::vector<std::byte>> results;
  };

  enum class Kind { kDeliver, kAcknowledge, kWork };
  struct Event {
    Kind kind;
    std::uint32_t rank;  ///< whose progress it is
    std::uint32_t peer = 0;
    std::size_t at = 0;
  };

  void collect(std::uint32_t r, std::vector<Event>& possible) {
    Rank& rank = *ranks_[r];
    for (std::uint32_t peer = 0; peer < options_.ranks; ++peer) {
      const auto& queue = ranks_[peer]->outgoing[r];
      if (queue.empty()) continue;
      const auto at = options_.in_order ? 0 : random_.below(static_cast<std::uint32_t>(queue.size()));
      possible.push_back({Kind::kDeliver, r, peer, at});
    }
    if (!rank.unacknowledged.empty()) {
      const auto at = random_.below(static_cast<std::uint32_t>(rank.unacknowledged.size()));
      possible.push_back({Kind::kAcknowledge, r, 0, at});
    }
    const bool more_segments =
        std::ranges::any_of(rank.active, [](const auto& call) { return call->begun < call->cut.segments; });
    const bool may_start = rank.started_calls < rank.calls.size() && rank.active.size() < options_.concurrent_calls;
    if (!rank.runner->error() && (may_start || (more_segments && rank.runner->can_begin()))) {
      possible.push_back({Kind::kWork, r});
    }
  }

  void happen(const Event& event) {
    Rank& rank = *ranks_[event.rank];
    switch (event.kind) {
      case Kind::kDeliver: {
        auto& queue = ranks_[event.peer]->outgoing[event.rank];
        const Message message = queue[event.at];
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(event.at));
        std::byte* to = rank.base + message.remote_offset;
        for (const Piece& piece : message.pieces) {
          std::memcpy(to, piece.address, piece.bytes);
          to += piece.bytes;
        }
        ranks_[event.peer]->unacknowledged.push_back(message);
        rank.runner->on_arrival(event.peer, message.immediate);
        break;
      }
      case Kind::kAcknowledge: {
        const Message message = rank.unacknowledged[event.at];
        for (const Piece& piece : message.pieces) {
          ASSERT_TRUE(may_read(rank, piece.address)) << "a retransmission would read memory that was given back";
        }
        rank.unacknowledged.erase(rank.unacknowledged.begin() + static_cast<std::ptrdiff_t>(event.at));
        if (message.token != kNoToken) rank.runner->on_sent(message.token);
        break;
      }
      case Kind::kWork:
        work(rank);
        break;
    }
    rank.runner->flush_credit();
    retire(rank);
  }

  /// The library's memory, or a buffer of a call that is not over.
  static bool may_read(const Rank& rank, const std::byte* address) {
    const auto within = [&](const std::vector<std::byte>& memory) {
      return address >= memory.data() && address < memory.data() + memory.size();
    };
    return within(rank.scratch) ||
           std::ranges::any_of(rank.active, [&](const auto& call) { return within(call->input); });
  }

  void work(Rank& rank) {
    const bool may_start = rank.started_calls < rank.calls.size() && rank.active.size() < options_.concurrent_calls;
    if (may_start) start_call(rank);
    for (auto& call : rank.active) {
      while (call->begun < call->cut.segments) {
        if (!rank.runner->can_begin()) return;
        begin_segment(rank, *call);
        if (random_.chance(300'000)) return;
      }
    }
  }

  void start_call(Rank& rank) {
    auto active = std::make_unique<ActiveCall>();
    active->index = rank.started_calls++;
    active->call = rank.calls[active->index];
    const Call& call = active->call;
    const auto input = input_of(input_seed, rank.index, active->index, call);
    active->input.assign(input.size() + 2 * kCanary, std::byte{0x5a});
    active->result = active->input;
    std::copy(input.begin(), input.end(), active->input.begin() + kCanary);
    active->output_before.assign(active->output(), active->output() + input.size());
    Shape shape{options_.ranks, call.count, call.dtype, Op::kSum};
    active->cut = split(call.algorithm, shape, options_.slot_payload);
    const auto program = [&](std::uint64_t count) {
      shape.count = count;
      if (call.broadcast_root >= 0) {
        return std::make_unique<Program>(
            build_broadcast(shape, rank.index, static_cast<std::uint32_t>(call.broadcast_root)));
      }
      return std::make_unique<Program>(call.algorithm == Algorithm::kOneShot
                                           ? build_one_shot(shape, rank.index, source_of(call))
                                           : build_two_shot(shape, rank.index));
    };
    active->full = program(active->cut.segment_count);
    active->last = program(active->cut.last_count);
    rank.runner->reserve(*active->full);
    rank.runner->reserve(*active->last);
    rank.active.push_back(std::move(active));
  }

  static WriteSource source_of(const Call& call) {
    return call.source == WriteSource::kInput && call.in_place ? WriteSource::kInputInPlace : call.source;
  }

  void begin_segment(Rank& rank, ActiveCall& call) {
    if (call.begun == 0) call.first_segment = rank.runner->begun();
    const std::uint64_t offset = call.begun * call.cut.segment_count * element_bytes(call.call.dtype);
    Segment segment;
    segment.program = call.begun + 1 == call.cut.segments ? call.last.get() : call.full.get();
    segment.input = call.input.data() + kCanary + offset;
    segment.output = call.output() + offset;
    segment.operation_sequence = static_cast<std::uint32_t>(call.index);
    segment.operation_count = call.call.count;
    ++call.begun;
    rank.runner->begin(segment);
  }

  void retire(Rank& rank) {
    while (!rank.active.empty()) {
      ActiveCall& call = *rank.active.front();
      if (call.begun < call.cut.segments) return;
      if (rank.runner->completed() < call.first_segment + call.cut.segments) return;
      const std::size_t bytes = call.call.count * element_bytes(call.call.dtype);
      rank.results.emplace_back(call.output(), call.output() + bytes);
      for (const auto* memory : {&call.input, &call.result}) {
        for (std::size_t i = 0; i < kCanary; ++i) {
          ASSERT_EQ((*memory)[i], std::byte{0x5a}) << "wrote before the tensor";
          ASSERT_EQ((*memory)[memory->size() - 1 - i], std::byte{0x5a}) << "wrote behind the tensor";
        }
      }
      // The caller may do what it likes with its memory now: nothing may read it any more.
      std::ranges::fill(call.input, std::byte{0xee});
      std::ranges::fill(call.result, std::byte{0xee});
      rank.over.push_back(std::move(rank.active.front()));
      rank.active.pop_front();
      ++rank.completed_calls;
    }
  }

  Random random_;
  Options options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::uint32_t> weights_;
};

}  // namespace tensorwire::collective
