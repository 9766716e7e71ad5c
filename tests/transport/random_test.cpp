// The property test: random operations on random queue pairs over a wire that loses, duplicates, reorders and corrupts.
// Whatever the seed: every byte arrives, atomics happen in order and exactly once, completions come in order and
// exactly once, none before its data, and all is over in bounded time; or, where the wire dies, exactly one request
// reports it and the rest is flushed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "transport/attributes.hpp"
#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

struct Operation {
  WrOpcode opcode = WrOpcode::kWrite;
  std::size_t offset = 0;  ///< in the source buffer, and in the target buffer where the operation's bytes must appear
  std::size_t length = 0;
  std::uint32_t immediate = 0;
  bool signaled = true;
  bool inline_data = false;
  bool solicited = false;
  bool fence = false;
  std::size_t word = 0;       ///< atomics: offset of the word they work on
  std::uint64_t operand = 0;  ///< to add, or to compare with
  std::uint64_t swap = 0;
  std::uint64_t original = 0;  ///< what they must find
  std::uint64_t result = 0;    ///< what they must leave

  [[nodiscard]] bool consumes_receive() const { return is_send() || opcode == WrOpcode::kWriteImm; }
  [[nodiscard]] bool is_send() const { return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendImm; }
  [[nodiscard]] bool has_immediate() const { return opcode == WrOpcode::kWriteImm || opcode == WrOpcode::kSendImm; }
};

/// One direction of a connection: what is sent, and what has been seen of it.
class Flow {
 public:
  Flow(Random& random, const End& from, const End& to, std::uint32_t mtu) : from_(from), to_(to) {
    std::size_t offset = 0;
    const std::uint32_t count = 5 + random.below(40);
    for (std::uint32_t i = 0; i < count; ++i) {
      Operation op;
      op.opcode = static_cast<WrOpcode>(random.below(7));
      op.length = is_atomic(op.opcode) ? kAtomicBytes : random_length(random, mtu);
      op.offset = offset;
      op.immediate = static_cast<std::uint32_t>(random.next());
      op.signaled = random.below(3) != 0;
      op.inline_data = op.length <= 256 && !is_fetch(op.opcode) && random.below(2) == 0;
      op.fence = random.below(6) == 0;
      if (is_atomic(op.opcode)) plan_atomic(random, op);
      op.solicited = random.below(2) == 0;
      offset += op.length + random.below(8);
      operations_.push_back(op);
      if (op.consumes_receive()) receives_.push_back(i);
    }
    operations_.back().signaled = true;
    source_ = from.host->buffer(offset + 8);
    target_ = to.host->buffer(offset + 8);
    landing_ = from.host->buffer(offset + 8, kAccessLocalWrite);
    remote_ = to.host->buffer(offset + 8, kAccessRemoteRead);
    words_ = to.host->buffer(kWords * 8, kAccessLocalWrite | kAccessRemoteAtomic);
    fill(source_.bytes, random.next());
    fill(remote_.bytes, random.next());
  }

  /// Posts some of what is left on both sides.
  void post(Random& random, Ps now) {
    for (std::uint32_t n = random.below(4); n != 0 && posted_receives_ < receives_.size(); --n) post_receive(random);
    for (std::uint32_t n = random.below(6); n != 0 && posted_ < operations_.size(); --n)
      if (!post_send(random, now)) break;
  }

  void on_send_completion(const Completion& completion) {
    // Before a failure, unsignaled requests complete silently; after it, each of them reports its flush.
    while (!failed_ && completed_ < operations_.size() && !operations_[completed_].signaled &&
           completion.wr_id != completed_)
      ++completed_;
    ASSERT_EQ(completion.wr_id, completed_);
    ASSERT_LT(completion.wr_id, posted_);
    ++completed_;
    const std::size_t first_new = std::exchange(checked_, completed_);
    if (failed_) {
      ASSERT_EQ(completion.status, WcStatus::kFlushError);
    } else if (completion.status != WcStatus::kSuccess) {
      ASSERT_EQ(completion.status, WcStatus::kRetryExceeded);
      failed_ = true;
    } else {
      for (std::size_t i = first_new; i < completed_; ++i) expect_arrived(operations_[i]);
      succeeded_ = completed_;
    }
  }

  void on_receive_completion(const Completion& completion) {
    if (completion.status == WcStatus::kFlushError) return;
    ASSERT_EQ(completion.status, WcStatus::kSuccess);
    ASSERT_LT(received_, receives_.size());
    ASSERT_EQ(completion.wr_id, received_);
    const Operation& op = operations_[receives_[received_++]];
    ASSERT_EQ(completion.opcode, op.is_send() ? WcOpcode::kRecv : WcOpcode::kRecvWithImm);
    ASSERT_EQ(completion.byte_len, op.length);
    ASSERT_EQ(completion.flags, op.has_immediate() ? kWcWithImm : 0U);
    if (op.has_immediate()) {
      ASSERT_EQ(completion.immediate, op.immediate);
    }
    expect_arrived(op);
  }

  [[nodiscard]] bool done() const { return completed_ == operations_.size() && received_ == receives_.size(); }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::size_t posted() const { return posted_; }
  [[nodiscard]] std::size_t completed() const { return completed_; }
  [[nodiscard]] const End& from() const { return from_; }
  [[nodiscard]] const End& to() const { return to_; }

  void expect_all_bytes() const {
    // The gaps between operations were never written.
    std::vector<std::byte> sent(target_.bytes.size());
    std::vector<std::byte> fetched(landing_.bytes.size());
    for (const Operation& op : operations_) {
      if (is_atomic(op.opcode)) {
        std::memcpy(fetched.data() + op.offset, &op.original, sizeof op.original);
      } else if (op.opcode == WrOpcode::kRead) {
        std::copy_n(remote_.bytes.begin() + op.offset, op.length, fetched.begin() + op.offset);
      } else {
        std::copy_n(source_.bytes.begin() + op.offset, op.length, sent.begin() + op.offset);
      }
    }
    ASSERT_EQ(sent, target_.bytes);
    ASSERT_EQ(fetched, landing_.bytes);
    for (std::size_t word = 0; word < kWords; ++word) ASSERT_EQ(words_.word(word * 8), model_[word]);
  }

  /// After a failure: the atomics that happened are the first so many, at least those that completed.
  void expect_a_prefix_of_atomics() const {
    std::array<std::uint64_t, kWords> state{};
    bool found = false;
    for (std::size_t i = 0; i <= posted_ && !found; ++i) {
      if (i >= succeeded_) {
        found = true;
        for (std::size_t word = 0; word < kWords; ++word) found = found && words_.word(word * 8) == state[word];
      }
      if (i < posted_ && is_atomic(operations_[i].opcode)) state[operations_[i].word / 8] = operations_[i].result;
    }
    ASSERT_TRUE(found);
  }

 private:
  static constexpr std::size_t kWords = 3;

  void plan_atomic(Random& random, Operation& op) {
    const std::size_t word = random.below(kWords);
    std::uint64_t& value = model_[word];
    op.word = word * 8;
    op.original = value;
    op.swap = random.next();
    if (op.opcode == WrOpcode::kFetchAdd) {
      op.operand = random.next();
      value += op.operand;
    } else {
      op.operand = random.below(2) == 0 ? value : random.next();
      if (op.operand == value) value = op.swap;
    }
    op.result = value;
  }

  static std::size_t random_length(Random& random, std::uint32_t mtu) {
    switch (random.below(6)) {
      case 0:
        return 0;
      case 1:
        return random.below(257);
      case 2:
        return std::size_t{mtu} * (1 + random.below(4));
      case 3:
        return std::size_t{mtu} * (1 + random.below(4)) + 1;
      default:
        return random.below(12 * mtu);
    }
  }

  /// Cuts [offset, offset + length) into up to four elements, some of them empty.
  static std::vector<Sge> cut(Random& random, const Buffer& buffer, std::size_t offset, std::size_t length) {
    std::vector<Sge> sges;
    while (sges.size() < 3 && random.below(2) == 0) {
      const std::size_t part = random.below(static_cast<std::uint32_t>(length) + 1);
      sges.push_back(buffer.sge(offset, part));
      offset += part;
      length -= part;
    }
    if (length != 0 || random.below(2) == 0) sges.push_back(buffer.sge(offset, length));
    return sges;
  }

  void post_receive(Random& random) {
    const Operation& op = operations_[receives_[posted_receives_]];
    std::vector<Sge> sges;
    if (op.is_send()) sges = cut(random, target_, op.offset, op.length);
    if (to_.qp->post_recv({posted_receives_, sges}) == 0) ++posted_receives_;
  }

  bool post_send(Random& random, Ps now) {
    const Operation& op = operations_[posted_];
    const std::vector<Sge> sges = cut(random, is_fetch(op.opcode) ? landing_ : source_, op.offset, op.length);
    SendWr wr;
    wr.fence = op.fence;
    wr.compare_add = op.operand;
    wr.swap = op.swap;
    wr.wr_id = posted_;
    wr.opcode = op.opcode;
    wr.signaled = op.signaled;
    wr.solicited = op.solicited;
    wr.inline_data = op.inline_data;
    wr.immediate = op.immediate;
    wr.remote_address = target_.address(op.offset);
    wr.rkey = target_.key;
    if (op.opcode == WrOpcode::kRead) {
      wr.remote_address = remote_.address(op.offset);
      wr.rkey = remote_.key;
    } else if (is_atomic(op.opcode)) {
      wr.remote_address = words_.address(op.word);
      wr.rkey = words_.key;
    }
    wr.sges = sges;
    const int result = from_.send(wr, now);
    if (result == 0) ++posted_;
    return result == 0;
  }

  void expect_arrived(const Operation& op) const {
    if (is_atomic(op.opcode)) {
      ASSERT_EQ(landing_.word(op.offset), op.original);
      return;
    }
    const bool read = op.opcode == WrOpcode::kRead;
    const auto from = (read ? remote_ : source_).bytes.begin() + op.offset;
    ASSERT_TRUE(std::equal(from, from + op.length, (read ? landing_ : target_).bytes.begin() + op.offset));
  }

  End from_;
  End to_;
  Buffer source_;
  Buffer target_;
  Buffer landing_;  ///< at the requester: what READs and atomics bring
  Buffer remote_;   ///< at the responder: what READs read
  Buffer words_;    ///< at the responder: what atomics work on
  std::array<std::uint64_t, kWords> model_{};
  std::vector<Operation> operations_;
  std::vector<std::size_t> receives_;  ///< operations that consume a receive, in order
  std::size_t posted_ = 0;
  std::size_t completed_ = 0;
  std::size_t checked_ = 0;  ///< operations whose bytes were compared when their completion came
  std::size_t succeeded_ = 0;
  std::size_t posted_receives_ = 0;
  std::size_t received_ = 0;
  bool failed_ = false;
};

class Scenario {
 public:
  Scenario(std::uint64_t seed, const VirtualWire& wire, std::size_t hosts, std::uint8_t retry_cnt = 7)
      : random_(seed * 77 + 5), world_(hosts, wire, engine_config(random_)) {
    const std::size_t pairs = 2 + random_.below(3);
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t a = random_.below(static_cast<std::uint32_t>(hosts));
      const std::size_t b = (a + 1 + random_.below(static_cast<std::uint32_t>(hosts) - 1)) % hosts;
      Connection c;
      c.mtu = static_cast<MtuCode>(1 + random_.below(5));
      c.psn = random_.below(2) == 0 ? wire::kPsnMask - random_.below(100) : random_.below(1U << 24);
      c.min_rnr_timer = static_cast<std::uint8_t>(1 + random_.below(6));
      c.retry_cnt = retry_cnt;
      c.rd_atomic = static_cast<std::uint8_t>(1 + random_.below(kMaxRdAtomic));
      auto [x, y] = world_.connect(a, b, c, {1 + random_.below(20), 1 + random_.below(20), 4, 4, 256});
      flows_.emplace_back(random_, x, y, mtu_bytes(c.mtu));
      flows_.emplace_back(random_, y, x, mtu_bytes(c.mtu));
    }
  }

  /// Drives until every flow is done or has failed; gives up at a bound that only a hang reaches.
  void drive() {
    for (std::uint64_t round = 0; !finished(); ++round) {
      ASSERT_LT(round, 500'000U) << "hangs";
      for (Flow& flow : flows_)
        if (!flow.failed()) flow.post(random_, world_.loop.now());
      for (std::uint32_t n = 1 + random_.below(20); n != 0 && world_.loop.step(); --n) {
      }
      ASSERT_NO_FATAL_FAILURE(poll());
    }
  }
  void kill_wire() {
    VirtualWire dead;
    dead.lose = 1'000'000;
    world_.loop.set_wire(dead);
  }
  void drive_rounds(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (Flow& flow : flows_) flow.post(random_, world_.loop.now());
      world_.loop.step();
      ASSERT_NO_FATAL_FAILURE(poll());
    }
  }

  void poll() {
    for (auto& host : world_.hosts) {
      std::array<Completion, 32> out;
      for (std::size_t n = host->cq.poll(out); n != 0; n = host->cq.poll(out)) {
        for (std::size_t i = 0; i < n; ++i) ASSERT_NO_FATAL_FAILURE(dispatch(*host, out[i]));
      }
    }
  }

  World& world() { return world_; }
  std::deque<Flow>& flows() { return flows_; }

 private:
  static EngineConfig engine_config(Random& random) {
    EngineConfig config;
    config.seed = random.next();
    config.ack_request_every = 1 + random.below(20);
    config.ack_coalesce = 1 + random.below(20);
    config.qp_window_bytes = 1ULL << (9 + random.below(12));
    return config;
  }

  void dispatch(Host& host, const Completion& completion) {
    const bool receive = completion.opcode == WcOpcode::kRecv || completion.opcode == WcOpcode::kRecvWithImm;
    for (Flow& flow : flows_) {
      const End& end = receive ? flow.to() : flow.from();
      if (end.host != &host || end.qp->qpn() != completion.qp_num) continue;
      return receive ? flow.on_receive_completion(completion) : flow.on_send_completion(completion);
    }
    FAIL() << "completion of nobody";
  }

  [[nodiscard]] bool finished() const {
    return std::all_of(flows_.begin(), flows_.end(), [](const Flow& flow) { return flow.done() || flow.failed(); });
  }

  Random random_;
  World world_;
  std::deque<Flow> flows_;
};

VirtualWire faulty(std::uint64_t seed, std::uint32_t lose) {
  Random random(seed);
  VirtualWire wire;
  wire.seed = seed;
  wire.lose = lose;
  wire.duplicate = random.below(3) == 0 ? 20'000 : 0;
  wire.reorder = random.below(3) == 0 ? 20'000 : 0;
  wire.corrupt = random.below(3) == 0 ? 10'000 : 0;
  wire.delay = random.below(20) * kMicrosecond;
  return wire;
}

void expect_delivery(std::uint64_t seed, const VirtualWire& wire, std::size_t hosts) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", lose " << wire.lose << ", hosts " << hosts);
  Scenario run(seed, wire, hosts);
  ASSERT_NO_FATAL_FAILURE(run.drive());
  ASSERT_TRUE(run.world().loop.run_until_idle(run.world().loop.now() + 60 * kSecond));
  ASSERT_NO_FATAL_FAILURE(run.poll());
  for (const Flow& flow : run.flows()) {
    ASSERT_FALSE(flow.failed());
    ASSERT_TRUE(flow.done());
    ASSERT_NO_FATAL_FAILURE(flow.expect_all_bytes());
  }
  for (auto& host : run.world().hosts) {
    ASSERT_FALSE(host->engine.has_tx());
    ASSERT_EQ(host->engine.next_deadline(), kNever);
    if (wire.lose == 0 && wire.duplicate == 0 && wire.reorder == 0 && wire.corrupt == 0) {
      ASSERT_EQ(host->engine.counters().packet_seq_err, 0U);
      ASSERT_EQ(host->engine.counters().implied_nak_seq_err, 0U);
      ASSERT_EQ(host->engine.counters().local_ack_timeout_err, 0U);
    }
  }
}

TEST(RandomRuns, PerfectWire) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    VirtualWire wire;
    wire.seed = seed;
    ASSERT_NO_FATAL_FAILURE(expect_delivery(seed, wire, 2));
  }
}

TEST(RandomRuns, OnePercentLost) {
  for (std::uint64_t seed = 1000; seed < 1150; ++seed)
    ASSERT_NO_FATAL_FAILURE(expect_delivery(seed, faulty(seed, 10'000), 2));
}

TEST(RandomRuns, FivePercentLost) {
  for (std::uint64_t seed = 2000; seed < 2100; ++seed)
    ASSERT_NO_FATAL_FAILURE(expect_delivery(seed, faulty(seed, 50'000), 2));
}

TEST(RandomRuns, MeshOfFourHosts) {
  for (std::uint64_t seed = 3000; seed < 3060; ++seed)
    ASSERT_NO_FATAL_FAILURE(expect_delivery(seed, faulty(seed, 10'000), 4));
}

// From a random moment on nothing arrives any more. Every flow with something under way ends with one RETRY_EXC within
// the bound, and everything behind it is flushed, in order, exactly once.
TEST(RandomRuns, ADeadWireEndsInOneErrorPerQueuePairWithinTheBound) {
  for (std::uint64_t seed = 4000; seed < 4100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario run(seed, faulty(seed, 0), 2, /*retry_cnt=*/3);
    ASSERT_NO_FATAL_FAILURE(run.drive_rounds(static_cast<int>(seed % 97)));
    run.kill_wire();
    ASSERT_NO_FATAL_FAILURE(run.drive_rounds(200));
    constexpr Ps kTimeout = (4'096 * kNanosecond) << 8;
    const Ps begin = run.world().loop.now();
    ASSERT_TRUE(run.world().loop.run_until_idle(begin + 4 * kTimeout + 2 * kMillisecond));
    ASSERT_NO_FATAL_FAILURE(run.poll());
    for (const Flow& flow : run.flows()) {
      // A queue pair that failed takes its receive side, but not the peer's send side, down with it.
      if (flow.posted() != flow.completed()) {
        ASSERT_EQ(flow.from().qp->state(), QpState::kErr);
      }
      if (flow.failed()) {
        ASSERT_EQ(flow.posted(), flow.completed());
      }
      ASSERT_NO_FATAL_FAILURE(flow.expect_a_prefix_of_atomics());
    }
  }
}

TEST(RandomRuns, TheSameSeedIsTheSameRun) {
  const auto fingerprint = [](std::uint64_t seed) {
    Scenario run(seed, faulty(seed, 30'000), 3);
    run.drive();
    std::uint64_t hash = static_cast<std::uint64_t>(run.world().loop.now());
    for (auto& host : run.world().hosts) {
      const EngineCounters& c = host->engine.counters();
      for (const std::uint64_t value : {c.tx_packets, c.tx_bytes, c.retransmitted_packets, c.local_ack_timeout_err})
        hash = mix64(hash ^ value);
    }
    return hash;
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed) EXPECT_EQ(fingerprint(seed), fingerprint(seed));
  EXPECT_NE(fingerprint(1), fingerprint(2));
}

}  // namespace
}  // namespace tensorwire::transport::test
