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

/// One operation as one rank calls it.
struct Call {
  Algorithm algorithm = Algorithm::kOneShot;
  WriteSource source = WriteSource::kSendSlot;
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  bool in_place = false;
  Op op = Op::kSum;
  Collective collective = Collective::kAllReduce;
  std::uint16_t root = 0;
  std::uint16_t peer = 0;  ///< send/recv
  std::uint32_t group_ranks = 1;
  std::vector<std::uint64_t> counts = {};  ///< all-to-all

  [[nodiscard]] Shape shape(std::uint32_t ranks) const { return {ranks, count, dtype, op, collective, root, peer}; }
  [[nodiscard]] BuildOptions options() const {
    BuildOptions options;
    const bool both = source == WriteSource::kInput && in_place;
    options.source = both ? WriteSource::kInputInPlace : source;
    options.group_ranks = group_ranks;
    options.counts = counts;
    return options;
  }
  [[nodiscard]] Extent bytes(std::uint32_t ranks, std::uint32_t rank) const {
    const Extent elements = extent(shape(ranks), rank, options());
    return {elements.input * element_bytes(dtype), elements.output * element_bytes(dtype)};
  }
};

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
  [[nodiscard]] const Options& options() const { return options_; }
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

  static std::vector<std::byte> input_of(std::uint64_t seed, std::uint32_t ranks, std::uint32_t rank, std::size_t call,
                                         const Call& what) {
    std::vector<std::byte> bytes(what.bytes(ranks, rank).input);
    Random random{mix64(seed) ^ mix64(rank * 1000 + call)};
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
    return bytes;
  }

  std::uint64_t input_seed = 0;

 private:
  struct Message {
    std::vector<Piece> pieces;
    std::uint64_t remote_offset;
    std::uint32_t immediate;
    std::uint64_t token;
    bool to_output;
    std::uint32_t window;
  };

  struct ActiveCall {
    std::size_t index = 0;
    Call call;
    std::vector<std::byte> tensor;  ///< the input, in place the output too; with canaries around
    std::vector<std::byte> result;  ///< the output; with canaries around; unused in place
    std::uint64_t input_at = 0, output_at = 0;
    Extent bytes;
    std::vector<std::byte> output_before;
    Segmentation cut;
    std::vector<std::unique_ptr<Program>> programs;  ///< by segment; where they are alike the first and the last
    std::uint64_t begun = 0;
    std::uint64_t first_segment = 0;
    std::deque<Segment> open;  ///< from `begun` on

    [[nodiscard]] bool takes_no_more() const { return begun + open.size() == cut.segments; }

    [[nodiscard]] const std::byte* output() const { return (call.in_place ? tensor : result).data() + output_at; }
    [[nodiscard]] std::byte* output() { return (call.in_place ? tensor : result).data() + output_at; }
    [[nodiscard]] std::byte* input() { return tensor.data() + input_at; }
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
      receive_depth = config.receive_depth(most_messages(config.ranks));
      runner = std::make_unique<Runner>(config, base, 0, *this);
    }

    bool write(const WriteRequest& request) noexcept override {
      auto& queue = outgoing[request.peer];
      queue.push_back({{request.pieces.begin(), request.pieces.end()},
                       request.remote_offset,
                       request.immediate,
                       request.token,
                       request.to_output,
                       request.window});
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
        std::byte* to = message.to_output ? output_of(rank, message) : rank.base + message.remote_offset;
        ASSERT_NE(to, nullptr) << "a write into an output after its operation";
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

  static std::byte* output_of(Rank& rank, const Message& message) {
    for (auto& call : rank.active) {
      if (call->index == message.window) return call->output() + message.remote_offset;
    }
    return nullptr;
  }

  /// The library's memory, or a buffer of a call that is not over.
  static bool may_read(const Rank& rank, const std::byte* address) {
    const auto within = [&](const std::vector<std::byte>& memory) {
      return address >= memory.data() && address < memory.data() + memory.size();
    };
    return within(rank.scratch) || std::ranges::any_of(rank.active, [&](const auto& call) {
             return within(call->tensor) || within(call->result);
           });
  }

  void work(Rank& rank) {
    const bool may_start = rank.started_calls < rank.calls.size() && rank.active.size() < options_.concurrent_calls;
    if (may_start) start_call(rank);
    open_ahead(rank);
    for (auto& call : rank.active) {
      while (call->begun < call->cut.segments) {
        if (!rank.runner->can_begin()) return;
        begin_segment(rank, *call);
        if (random_.chance(300'000)) return;
      }
    }
  }

  /// Some of what can go ahead of its segment, in the order in which segments take the pairs' sequences.
  void open_ahead(Rank& rank) {
    for (auto& call : rank.active) {
      while (!call->takes_no_more()) {
        Segment segment = segment_of(*call, call->begun + call->open.size());
        const bool can = segment.program->opens() && rank.runner->can_open(*segment.program);
        if (!can || random_.chance(300'000)) return;
        rank.runner->open(segment);
        call->open.push_back(segment);
      }
    }
  }

  void start_call(Rank& rank) {
    auto active = std::make_unique<ActiveCall>();
    active->index = rank.started_calls++;
    active->call = rank.calls[active->index];
    const Call& call = active->call;
    const Shape shape = call.shape(options_.ranks);
    const BuildOptions options = call.options();
    const auto input = input_of(input_seed, options_.ranks, rank.index, active->index, call);
    const Extent bytes = active->bytes = call.bytes(options_.ranks, rank.index);
    active->tensor.assign(std::max(bytes.input, bytes.output) + 2 * kCanary, std::byte{0x5a});
    active->result.assign(bytes.output + 2 * kCanary, std::byte{0x5a});
    active->input_at = active->output_at = kCanary;
    if (call.in_place) {  // a rank's block is in its place among those of all
      if (call.collective == Collective::kAllGather) active->input_at += rank.index * bytes.input;
      if (call.collective == Collective::kReduceScatter) active->output_at += rank.index * bytes.output;
    }
    std::copy(input.begin(), input.end(), active->input());
    active->output_before.assign(active->output(), active->output() + bytes.output);
    active->cut = split(call.algorithm, shape, options_.slot_payload, options);
    const std::uint64_t segments = active->cut.segments;
    for (std::uint64_t s = 0; s < segments; ++s) {
      if (s != 0 && s + 1 != segments && segments_are_alike(options)) continue;
      active->programs.push_back(
          std::make_unique<Program>(build_segment(shape, call.algorithm, rank.index, options, active->cut, s)));
      rank.runner->reserve(*active->programs.back());
    }
    rank.active.push_back(std::move(active));
  }

  void begin_segment(Rank& rank, ActiveCall& call) {
    if (call.begun == 0) call.first_segment = rank.runner->begun();
    Segment segment = segment_of(call, call.begun++);
    if (!call.open.empty()) {
      segment = call.open.front();
      call.open.pop_front();
    }
    rank.runner->begin(segment);
  }

  Segment segment_of(ActiveCall& call, std::uint64_t number) const {
    const std::uint64_t offset = number * call.cut.segment_count * element_bytes(call.call.dtype);
    const bool last = number + 1 == call.cut.segments;
    Segment segment;
    segment.program = last                                      ? call.programs.back().get()
                      : segments_are_alike(call.call.options()) ? call.programs.front().get()
                                                                : call.programs[number].get();
    segment.input = call.input() + offset;
    segment.output = call.output() + offset;
    segment.operation_sequence = static_cast<std::uint32_t>(call.index);
    segment.operation_count = signature_count(call.call.shape(options_.ranks), call.call.options());
    segment.output_window = {static_cast<std::uint32_t>(call.index), offset};
    return segment;
  }

  void retire(Rank& rank) {
    while (!rank.active.empty()) {
      ActiveCall& call = *rank.active.front();
      if (call.begun < call.cut.segments) return;
      if (rank.runner->completed() < call.first_segment + call.cut.segments) return;
      rank.results.emplace_back(call.output(), call.output() + call.bytes.output);
      for (const auto* memory : {&call.tensor, &call.result}) {
        for (std::size_t i = 0; i < kCanary; ++i) {
          ASSERT_EQ((*memory)[i], std::byte{0x5a}) << "wrote before the tensor";
          ASSERT_EQ((*memory)[memory->size() - 1 - i], std::byte{0x5a}) << "wrote behind the tensor";
        }
      }
      // The caller may do what it likes with its memory now: nothing may read it any more.
      std::ranges::fill(call.tensor, std::byte{0xee});
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
