// Operation i lives in slot i % kSlots on both sides. The target learns of an arrival by a receive completion, checks
// every byte and the margins around them, makes the slot ready for the operation that has it next, and replies with an
// empty SEND whose immediate is i (an echo's reply carries bytes). READs and atomics complete at the initiator alone.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "session.hpp"

namespace tensorwire::rxe {

namespace {

constexpr auto kPoison = std::byte{0xee};
constexpr std::uint64_t kReply = 1ULL << 32;  ///< in wr_id, beside the operation's index
constexpr auto kLate = std::chrono::milliseconds{30};
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

std::uint64_t slot_of(std::uint32_t index) { return std::uint64_t{index % kSlots} * kSlotBytes; }

std::string name_of(const Operation& operation, std::uint32_t index) {
  return "operation " + std::to_string(index) + " (" +
         std::string{kKindNames[static_cast<std::size_t>(operation.kind)]} + ", " + std::to_string(operation.length) +
         " bytes)";
}

struct Memories {
  explicit Memories(Station& station, std::uint64_t seed)
      : slots(station.pd(), std::vector<std::byte>(kSlots * kSlotBytes), kAccess),
        content(station.pd(), pattern(seed), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
        words(station.pd(), std::vector<std::byte>(kWords * sizeof(std::uint64_t)), kAccess) {}

  std::span<std::byte> slot(std::uint32_t index, const Operation& operation) {
    return slots.bytes().subspan(slot_of(index) + operation.to, operation.length);
  }
  std::span<const std::byte> pattern_at(std::uint32_t from, std::uint32_t length) {
    return content.bytes().subspan(from, length);
  }

  Memory slots, content, words;
};

class Initiator {
 public:
  Initiator(Station& station, Memories& memories, const Settings& settings, const Address& target)
      : station_(station), memories_(memories), settings_(settings), target_(target) {}

  Outcome run() {
    while (outcome_.operations < settings_.count) {
      while (posted_ < settings_.count && posted_ - done_ < settings_.window) post();
      on_completion(station_.next_success());
    }
    return outcome_;
  }

 private:
  struct InFlight {
    Operation operation;
    std::uint64_t old_value = 0;
    bool sent = false, replied = false;
  };

  void post() {
    const std::uint32_t index = posted_++;
    InFlight& flight = flights_[index % kSlots];
    flight = {.operation = operation(settings_, index)};
    Operation& op = flight.operation;
    const bool arrives = has_arrival(op.kind);
    flight.replied = !arrives;
    if (arrives) station_.post_receive(index | kReply, memories_.slots.sge(slot_of(index), kSlotBytes));
    if (op.kind == Kind::kFetchAdd || op.kind == Kind::kCompareSwap) flight.old_value = model_.apply(op);

    std::array<ibv_sge, Station::kMaxSge> sges{};
    std::array<ibv_send_wr, 2> wrs{};
    fill(wrs[0], sges, op, index);
    std::size_t count = 1;
    if (op.kind == Kind::kWrite) {  // the target is told by an empty SEND behind it
      wrs[0].send_flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED);
      wrs[1].wr_id = index;
      wrs[1].opcode = IBV_WR_SEND_WITH_IMM;
      wrs[1].imm_data = op.immediate;
      wrs[1].send_flags = IBV_SEND_SIGNALED;
      count = 2;
    }
    station_.post_send(std::span{wrs}.first(count));
  }

  void fill(ibv_send_wr& wr, std::span<ibv_sge> sges, const Operation& op, std::uint32_t index) {
    wr.wr_id = index;
    wr.send_flags = IBV_SEND_SIGNALED | (op.inline_data ? IBV_SEND_INLINE : 0);
    wr.imm_data = op.immediate;
    wr.sg_list = sges.data();
    const bool reads = !has_arrival(op.kind);
    wr.num_sge = reads ? gather(sges, memories_.slots, slot_of(index) + op.to, op)
                       : gather(sges, memories_.content, op.from, op);
    switch (op.kind) {
      case Kind::kSend:
        wr.opcode = IBV_WR_SEND;
        break;
      case Kind::kSendImm:
      case Kind::kEcho:
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        break;
      case Kind::kWrite:
      case Kind::kWriteImm:
        wr.opcode = op.kind == Kind::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.wr.rdma = {.remote_addr = target_.slots.address + slot_of(index) + op.to, .rkey = target_.slots.key};
        break;
      case Kind::kRead:
        wr.opcode = IBV_WR_RDMA_READ;
        wr.wr.rdma = {.remote_addr = target_.pattern.address + op.from, .rkey = target_.pattern.key};
        break;
      case Kind::kFetchAdd:
      case Kind::kCompareSwap:
        wr.opcode = op.kind == Kind::kFetchAdd ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
        wr.wr.atomic = {.remote_addr = target_.words.address + op.word * sizeof(std::uint64_t),
                        .compare_add = op.kind == Kind::kFetchAdd ? op.operand : op.compare,
                        .swap = op.operand,
                        .rkey = target_.words.key};
        break;
    }
  }

  /// The operation's bytes as so many entries as it has pieces, cut at odd places.
  static int gather(std::span<ibv_sge> sges, const Memory& memory, std::uint64_t offset, const Operation& op) {
    int count = 0;
    std::uint32_t left = op.length;
    while (left > 0) {
      const bool last = count + 1 == op.pieces;
      const std::uint32_t piece = last ? left : std::min(left, op.length / op.pieces + 1);
      sges[static_cast<std::size_t>(count++)] = memory.sge(offset, piece);
      offset += piece;
      left -= piece;
    }
    return count;
  }

  void on_completion(const ibv_wc& wc) {
    const auto index = static_cast<std::uint32_t>(wc.wr_id);
    InFlight& flight = flights_[index % kSlots];
    if ((wc.wr_id & kReply) != 0) {
      on_reply(wc, index, flight);
    } else {
      if (flight.sent) throw std::runtime_error{name_of(flight.operation, index) + " completed twice"};
      flight.sent = true;
      if (!has_arrival(flight.operation.kind)) check_result(index, flight);
    }
    for (; done_ < posted_ && flights_[done_ % kSlots].sent && flights_[done_ % kSlots].replied; ++done_) {
      ++outcome_.operations;
      outcome_.bytes += flights_[done_ % kSlots].operation.length;
      flights_[done_ % kSlots] = {};
    }
  }

  void on_reply(const ibv_wc& wc, std::uint32_t index, InFlight& flight) {
    const Operation& op = flight.operation;
    if ((wc.wc_flags & IBV_WC_WITH_IMM) == 0 || wc.imm_data != index || flight.replied) {
      throw std::runtime_error{"the reply to " + name_of(op, index) + " is another one"};
    }
    flight.replied = true;
    const std::uint32_t expected = op.kind == Kind::kEcho ? op.length : 0;
    if (wc.byte_len != expected) throw std::runtime_error{"the reply to " + name_of(op, index) + " has a wrong length"};
    expect_equal(memories_.slots.bytes().subspan(slot_of(index), expected),
                 memories_.pattern_at(op.reply_from, expected), "reply to " + name_of(op, index));
  }

  void check_result(std::uint32_t index, const InFlight& flight) {
    const Operation& op = flight.operation;
    const std::span<const std::byte> arrived = memories_.slot(index, op);
    if (op.kind == Kind::kRead) {
      expect_equal(arrived, memories_.pattern_at(op.from, op.length), name_of(op, index));
    } else {
      expect_equal(arrived, std::as_bytes(std::span{&flight.old_value, 1}), name_of(op, index));
    }
  }

  Station& station_;
  Memories& memories_;
  const Settings& settings_;
  const Address& target_;
  AtomicModel model_;
  std::array<InFlight, kSlots> flights_{};
  std::uint32_t posted_ = 0;
  std::uint32_t done_ = 0;
  Outcome outcome_;
};

class Target {
 public:
  Target(Station& station, Memories& memories, const Settings& settings)
      : station_(station), memories_(memories), settings_(settings) {}

  /// Before the initiator may send, unless receives are to come late.
  void prepare_first() {
    for (std::uint32_t index = 0; index < std::min(settings_.window, settings_.count); ++index) prepare(index);
    retire_silent();
  }

  Outcome run() {
    while (retired_ < settings_.count || replies_ > 0) {
      const ibv_wc wc = station_.next_success();
      if ((wc.wr_id & kReply) != 0) {
        --replies_;
      } else {
        on_arrival(wc);
      }
    }
    return outcome_;
  }

  /// Once the initiator has done all: each atomic was executed exactly once when the words are the model's.
  void check_words() {
    AtomicModel model;
    for (std::uint32_t index = 0; index < settings_.count; ++index) {
      Operation op = operation(settings_, index);
      if (op.kind == Kind::kFetchAdd || op.kind == Kind::kCompareSwap) model.apply(op);
    }
    expect_equal(memories_.words.bytes(), std::as_bytes(model.words()), "the words that atomics changed");
  }

 private:
  void prepare(std::uint32_t index) {
    const Operation op = operation(settings_, index);
    if (!has_arrival(op.kind)) return;
    const std::uint64_t slot = slot_of(index);
    std::ranges::fill(margins(index, op)[0], kPoison);
    std::ranges::fill(margins(index, op)[1], kPoison);
    const bool into_slot = op.kind == Kind::kSend || op.kind == Kind::kSendImm || op.kind == Kind::kEcho;
    station_.post_receive(
        index, into_slot && op.length > 0 ? std::optional{memories_.slots.sge(slot + op.to, op.length)} : std::nullopt);
  }

  std::array<std::span<std::byte>, 2> margins(std::uint32_t index, const Operation& op) {
    const std::span<std::byte> bytes = memories_.slots.bytes();
    const std::uint64_t begin = slot_of(index) + op.to;
    return {bytes.subspan(begin - kMargin, kMargin), bytes.subspan(begin + op.length, kMargin)};
  }

  void on_arrival(const ibv_wc& wc) {
    const std::uint32_t index = retired_;
    const Operation op = operation(settings_, index);
    if (wc.wr_id != index) throw std::runtime_error{"a receive completed out of order at " + name_of(op, index)};
    check(wc, op, index);
    outcome_.bytes += op.length;
    retire();
    retire_silent();
    reply(op, index);
  }

  /// Whose immediate it is, if it is that of another operation.
  std::string owner_of(std::uint32_t immediate) const {
    for (std::uint32_t other = 0; other < settings_.count; ++other) {
      if (has_arrival(operation(settings_, other).kind) && operation(settings_, other).immediate == immediate) {
        return ": that of operation " + std::to_string(other);
      }
    }
    return {};
  }

  void check(const ibv_wc& wc, const Operation& op, std::uint32_t index) {
    const bool by_write = op.kind == Kind::kWriteImm;
    const bool by_notice = op.kind == Kind::kWrite;
    if (wc.opcode != (by_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV)) {
      throw std::runtime_error{name_of(op, index) + " arrived as something else"};
    }
    const bool with_immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    if (with_immediate == (op.kind == Kind::kSend) || (with_immediate && wc.imm_data != op.immediate)) {
      throw std::runtime_error{name_of(op, index) + " arrived with the immediate " +
                               (with_immediate ? std::to_string(wc.imm_data) : "of none") + ", not " +
                               std::to_string(op.immediate) + owner_of(wc.imm_data)};
    }
    if (wc.byte_len != (by_notice ? 0 : op.length)) {
      throw std::runtime_error{name_of(op, index) + " arrived with byte_len " + std::to_string(wc.byte_len)};
    }
    expect_equal(memories_.slot(index, op), memories_.pattern_at(op.from, op.length), name_of(op, index));
    for (const std::span<std::byte> margin : margins(index, op)) {
      if (!std::ranges::all_of(margin, [](std::byte b) { return b == kPoison; })) {
        throw std::runtime_error{name_of(op, index) + " was written beyond its end or before its beginning"};
      }
    }
  }

  void retire() {
    ++outcome_.operations;
    const std::uint32_t next = retired_++ + settings_.window;
    if (next < settings_.count) prepare(next);
  }

  void retire_silent() {
    while (retired_ < settings_.count && !has_arrival(operation(settings_, retired_).kind)) retire();
  }

  void reply(const Operation& op, std::uint32_t index) {
    std::array<ibv_send_wr, 1> wr{};
    ibv_sge sge = memories_.content.sge(op.reply_from, op.length);
    wr[0].wr_id = index | kReply;
    wr[0].opcode = IBV_WR_SEND_WITH_IMM;
    wr[0].imm_data = index;
    wr[0].send_flags = IBV_SEND_SIGNALED;
    if (op.kind == Kind::kEcho && op.length > 0) {
      wr[0].sg_list = &sge;
      wr[0].num_sge = 1;
    }
    ++replies_;
    station_.post_send(wr);
  }

  Station& station_;
  Memories& memories_;
  const Settings& settings_;
  std::uint32_t retired_ = 0;
  std::uint32_t replies_ = 0;
  Outcome outcome_;
};

}  // namespace

void expect_equal(std::span<const std::byte> arrived, std::span<const std::byte> wanted, const std::string& what) {
  if (arrived.empty() || std::memcmp(arrived.data(), wanted.data(), arrived.size()) == 0) return;
  const auto at = std::ranges::mismatch(arrived, wanted).in1 - arrived.begin();
  throw std::runtime_error{what + ": byte " + std::to_string(at) + " is wrong"};
}

Outcome run_reliable(Station& station, Control& control, const Settings& settings, Role role) {
  Memories memories{station, settings.seed};
  Address mine = station.address();
  mine.slots = {.address = memories.slots.address(), .key = memories.slots.key()};
  mine.pattern = {.address = memories.content.address(), .key = memories.content.key()};
  mine.words = {.address = memories.words.address(), .key = memories.words.key()};
  control.send(mine);
  const auto peer = control.receive<Address>();
  station.connect(peer, settings.path_mtu, settings.ack_timeout);

  if (role == Role::kInitiator) {
    control.barrier();
    const Outcome outcome = Initiator{station, memories, settings, peer}.run();
    control.barrier();
    return outcome;
  }
  Target target{station, memories, settings};
  if (!settings.late_receives) target.prepare_first();
  control.barrier();
  if (settings.late_receives) {
    std::this_thread::sleep_for(kLate);
    target.prepare_first();
  }
  const Outcome outcome = target.run();
  control.barrier();  // until the initiator has all answers
  target.check_words();
  return outcome;
}

}  // namespace tensorwire::rxe
