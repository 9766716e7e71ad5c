// The responder half of a queue pair: judges request packets, says where their bytes go, completes receives, and owes
// the peer answers. Owned by its Qp. Judging is in responder_classify.cpp and changes nothing; SEND and WRITE are
// executed in responder_commit.cpp, READ and atomics in responder_fetch.cpp, answers are built in responder_tx.cpp.
// What UC does otherwise is in responder_unreliable.cpp.
//
// - expected_psn_ is the only PSN that is ever executed; everything before it is a duplicate, everything after it a
// gap. position_ counts the same in 64 bits.
// - What is owed to the peer is a state, not a queue: the answers that its READs and atomics have yet to get
// (resources_), and behind them at most one ACK or NAK, made from the newest state when it leaves. An ACK that overtook
// such an answer would say that the answer was lost.
// - A receive WQE belongs to a SEND from its First packet on, and to a WRITE WITH IMMEDIATE at its Last packet.
#pragma once

#include <cstdint>

#include "transport/engine.hpp"
#include "transport/responder_resources.hpp"
#include "transport/rx_plan.hpp"

namespace tensorwire::transport {

struct Core;
struct Qp;

class Responder {
 public:
  Responder(Core& core, Qp& qp) : core_(core), qp_(qp) {}

  /// INIT -> RTR.
  void start() noexcept;
  void stop() noexcept;
  /// Takes the number of READs and atomics that it remembers from the attributes anew.
  void resize() noexcept;
  /// Completes every posted receive with a flush error.
  void flush() noexcept;

  /// Judges a request packet for a queue pair in RTR or RTS; changes nothing. `source_mtu`: see PacketSource.
  void classify(const wire::Headers& headers, std::uint32_t payload_bytes, std::uint32_t source_mtu,
                RxVerdict& verdict) const noexcept;
  void commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept;
  /// The bytes of a packet that was judged kExecute could not be placed.
  void reject(const wire::Headers& headers) noexcept;

  // ---- UC (responder_unreliable.cpp)
  /// The same for a queue pair that answers nothing.
  void classify_unreliable(const wire::Headers& headers, std::uint32_t payload_bytes,
                           RxVerdict& verdict) const noexcept;
  void commit_unreliable(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept;
  void reject_unreliable(const wire::Headers& headers) noexcept;

  // ---- egress (responder_tx.cpp)
  /// Tells the scheduler what may leave. Answers with data go before the ACK or NAK.
  void schedule() noexcept;
  /// An acknowledge packet is owed and may leave now.
  [[nodiscard]] bool owes_control() const noexcept { return owed_ != Owed::kNothing && !resources_.pending(); }
  /// Builds the acknowledge packet that is owed.
  void build_control(TxDesc& out) noexcept;
  /// Payload bytes of the next packet of a pending answer; only when the scheduler was told of one.
  [[nodiscard]] std::uint32_t next_reply_payload() noexcept;
  /// Builds that packet. False: its source is not accessible any more, and a NAK is owed instead.
  bool build_reply(TxDesc& out) noexcept;
  /// The READ response with this PSN could not be read from memory.
  void source_lost(std::uint32_t psn) noexcept;
  /// The link is about to place the bytes of this packet in several steps.
  void hold(const wire::Headers& headers) noexcept;

  // ---- a tool that datagrams use, too
  /// Names `bytes` bytes from `offset` of the receive WQE as pieces.
  [[nodiscard]] RxPlan scatter(std::uint64_t offset, std::uint32_t bytes, RxVerdict& verdict) const noexcept;

 private:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };
  enum class Owed : std::uint8_t {
    kNothing,
    kAck,     ///< of everything executed
    kOldAck,  ///< of owed_psn_ and before, for a duplicate
    kNak,     ///< nak_syndrome_ at owed_psn_
  };

  [[nodiscard]] RxPlan judge(const wire::Headers& headers, std::uint32_t bytes, std::uint32_t limit,
                             RxVerdict& verdict) const noexcept;
  [[nodiscard]] bool in_order(const wire::OpcodeTraits& traits) const noexcept;
  [[nodiscard]] bool continues(const wire::Headers& headers) const noexcept;
  [[nodiscard]] RxPlan judge_unreliable(const wire::Headers& headers, std::uint32_t bytes,
                                        RxVerdict& verdict) const noexcept;
  [[nodiscard]] bool length_fits(wire::Position position, std::uint32_t bytes, std::uint32_t limit) const noexcept;
  [[nodiscard]] RxPlan judge_send(const wire::OpcodeTraits& traits, const wire::Headers& headers, std::uint32_t bytes,
                                  RxVerdict& verdict) const noexcept;
  [[nodiscard]] RxPlan judge_write(const wire::OpcodeTraits& traits, const wire::Headers& headers, std::uint32_t bytes,
                                   RxVerdict& verdict) const noexcept;
  [[nodiscard]] RxPlan judge_fetch(const wire::Headers& headers) const noexcept;
  /// The one check of what the peer may reach: a region of the queue pair's domain, or a window that is open to it.
  [[nodiscard]] AccessResult check_remote(std::uint32_t key, std::uint64_t address, std::uint32_t length,
                                          std::uint32_t right, Piece& piece) const noexcept;
  [[nodiscard]] AccessResult check_window(std::uint32_t key, std::uint64_t address, std::uint32_t length,
                                          std::uint32_t right, Piece& piece) const noexcept;

  /// Guards against a judgement that another packet's commit, or an error, has overtaken.
  [[nodiscard]] bool still_holds(RxPlan plan, const wire::Headers& headers) const noexcept;
  void execute(const wire::Headers& headers, std::uint32_t bytes) noexcept;
  void execute_read(const wire::Headers& headers) noexcept;
  void execute_atomic(const wire::Headers& headers) noexcept;
  /// What every executed request has in common: `psns` are done with, `bytes` have arrived.
  void pass(std::uint32_t psns, std::uint32_t bytes) noexcept;
  void remember(FetchRecord record) noexcept;
  void repeat(const wire::Headers& headers) noexcept;
  void repeat_fetch(std::uint64_t position, const wire::Headers& headers) noexcept;
  void refuse_invalidation(const wire::Headers& headers) noexcept;
  void complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes) noexcept;
  void refuse(std::uint8_t syndrome) noexcept;
  void fail(wire::NakCode code) noexcept;
  void finish_reply(FetchRecord& record) noexcept;
  void fail_reply(wire::NakCode code, std::uint32_t psn) noexcept;
  void owe_ack() noexcept;

  void address_to_peer(TxDesc& out) const noexcept;
  [[nodiscard]] std::uint64_t position_of(std::uint32_t psn) const noexcept;
  [[nodiscard]] std::uint32_t psn_of(std::uint64_t position) const noexcept;

  Core& core_;
  Qp& qp_;

  std::uint32_t expected_psn_ = 0;
  std::uint64_t position_ = 0;
  std::uint32_t mtu_ = 0;  ///< path MTU: READ responses are cut by it on every link, so that both ends count alike
  std::uint32_t msn_ = 0;
  bool refused_ = false;  ///< a NAK for expected_psn_ was given; silence until that packet arrives
  bool established_ = false;

  // The message under way.
  Message message_ = Message::kNone;
  std::uint32_t done_bytes_ = 0;    ///< bytes of it that have arrived
  std::uint32_t write_length_ = 0;  ///< RETH
  std::uint32_t write_key_ = 0;
  std::uint64_t write_address_ = 0;

  // What the peer is owed.
  ResponderResources resources_;
  Owed owed_ = Owed::kNothing;
  std::uint32_t owed_psn_ = 0;
  std::uint8_t nak_syndrome_ = 0;
  std::uint32_t unacknowledged_ = 0;  ///< packets since the last acknowledgement was owed
};

}  // namespace tensorwire::transport
