// The responder half of a queue pair: judges request packets, says where their bytes go, completes receives, and owes
// the peer acknowledgements. Owned by its Qp. Judging is in responder_classify.cpp and changes nothing; the rest is in
// responder_commit.cpp.
//
// - expected_psn_ is the only PSN that is ever executed; everything before it is a duplicate, everything after it a
// gap.
// - What is owed to the peer is a state, not a queue: at most one ACK or NAK, made from the newest state when it
// leaves.
// - A receive WQE belongs to a SEND from its First packet on, and to a WRITE WITH IMMEDIATE at its Last packet.
#pragma once

#include <cstdint>

#include "transport/engine.hpp"

namespace tensorwire::transport {

struct Core;
struct Qp;

/// What commit() is to do with a packet; travels in RxVerdict::plan.
enum class RxPlan : std::uint8_t {
  kNone,
  kAnswer,           ///< an acknowledge packet, for the requester
  kCongestion,       ///< a congestion notification packet
  kExecute,          ///< in sequence and permitted
  kDuplicate,        ///< acknowledge again
  kGap,              ///< NAK: sequence error
  kNotReady,         ///< RNR NAK: no receive WQE
  kInvalidRequest,   ///< NAK: opcode sequence, lengths, unsupported operation
  kRemoteAccess,     ///< NAK: rkey, PD, range, rights
  kTooLong,          ///< NAK: a SEND longer than its receive WQE
  kLocalProtection,  ///< NAK: the receive WQE's scatter list is not accessible
};

class Responder {
 public:
  Responder(Core& core, Qp& qp) : core_(core), qp_(qp) {}

  /// INIT -> RTR.
  void start() noexcept;
  void stop() noexcept;
  /// Completes every posted receive with a flush error.
  void flush() noexcept;

  /// Judges a request packet for a queue pair in RTR or RTS; changes nothing. `source_mtu`: see PacketSource.
  void classify(const wire::Headers& headers, std::uint32_t payload_bytes, std::uint32_t source_mtu,
                RxVerdict& verdict) const noexcept;
  void commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept;
  /// The bytes of a packet that was judged kExecute could not be placed.
  void reject(const wire::Headers& headers) noexcept;

  [[nodiscard]] bool owes() const noexcept { return owed_ != Owed::kNothing; }
  /// Builds the acknowledge packet that is owed.
  void build_control(TxDesc& out) noexcept;
  /// The link is about to place the bytes of this packet in several steps.
  void hold(const wire::Headers& headers) noexcept;

  // ---- a tool that datagrams use, too
  /// Names `bytes` bytes from `offset` of the receive WQE as pieces.
  [[nodiscard]] RxPlan scatter(std::uint64_t offset, std::uint32_t bytes, RxVerdict& verdict) const noexcept;

 private:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };
  enum class Owed : std::uint8_t { kNothing, kAck, kNak };

  [[nodiscard]] RxPlan judge(const wire::Headers& headers, std::uint32_t bytes, std::uint32_t limit,
                             RxVerdict& verdict) const noexcept;
  [[nodiscard]] bool in_order(const wire::OpcodeTraits& traits) const noexcept;
  [[nodiscard]] bool length_fits(wire::Position position, std::uint32_t bytes, std::uint32_t limit) const noexcept;
  [[nodiscard]] RxPlan judge_send(const wire::OpcodeTraits& traits, std::uint32_t bytes,
                                  RxVerdict& verdict) const noexcept;
  [[nodiscard]] RxPlan judge_write(const wire::OpcodeTraits& traits, const wire::Headers& headers, std::uint32_t bytes,
                                   RxVerdict& verdict) const noexcept;

  /// Guards against a judgement that another packet's commit, or an error, has overtaken.
  [[nodiscard]] bool still_holds(RxPlan plan, const wire::Headers& headers) const noexcept;
  void execute(const wire::Headers& headers, std::uint32_t bytes) noexcept;
  void complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes) noexcept;
  void refuse(std::uint8_t syndrome) noexcept;
  void fail(wire::NakCode code) noexcept;
  void owe_ack() noexcept;

  Core& core_;
  Qp& qp_;

  std::uint32_t expected_psn_ = 0;
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
  Owed owed_ = Owed::kNothing;
  std::uint8_t nak_syndrome_ = 0;
  std::uint32_t unacknowledged_ = 0;  ///< packets since the last acknowledgement was owed
};

}  // namespace tensorwire::transport
