// A queue pair written a second time, as the rules read and with no thought of speed: what it sends, how it judges,
// what completes and when its timer fires. The simulator holds every engine against it after every event.
//
// Packets of a direction are counted from 0 in 64 bits ("numbers"), so that the circle of PSNs appears in two functions
// only. Requester rules are in reference_requester.cpp, those of SQD in reference_drain.cpp, responder rules in
// reference_responder.cpp and reference_receiver.cpp, what READ and atomics add to both in reference_fetch.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hits.hpp"
#include "reference_congestion.hpp"
#include "reference_receiver.hpp"
#include "reference_send.hpp"
#include "transport/engine.hpp"
#include "transport/responder.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport::faults {

class ReferenceQp : public ReferenceReceiver {
 public:
  struct Send : ReferenceSend {
    std::uint64_t end;  ///< number behind its last packet
    std::uint32_t ssn;  ///< requests up to its first, itself included
    bool fetch;
    bool fence;
    std::uint64_t compare_add;
    std::uint64_t swap;
    bool local = false;  ///< needs no packet
    WindowBinding binding = {};
    bool executed = false;
  };
  /// A READ or atomic that was executed, and the answer to it that has yet to leave.
  struct Fetched {
    std::uint64_t number;
    std::uint64_t end;
    wire::Opcode opcode;
    std::uint64_t va;
    std::uint32_t rkey;
    std::uint32_t length;
    std::uint64_t original;
    bool answered = false;
    bool pending = false;
    std::uint64_t reply_from = 0;  ///< numbers
    std::uint64_t reply_next = 0;
    std::uint32_t reply_length = 0;
  };
  ReferenceQp(Registrations& registrations, Hits& hits) : ReferenceReceiver(registrations, hits), congestion(hits) {}

  // ---- the application
  void reset(const ReferenceConfig& config);
  void post_send(const SendWr& wr, const SgeList& sges);
  void doorbell();
  void set_error();
  // RTS to SQD and back (reference_drain.cpp)
  /// No further request is begun from here on; `notify`: the application wants to hear when all that were are done.
  void drain(bool notify);
  /// After every event: says so when they are done.
  void settle_drain();
  void change_drained(const ReferenceConfig& changed);
  void resume();
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  /// Its completion queue overran.
  void fail_fatally();

  // ---- requester
  [[nodiscard]] std::uint32_t psn(std::uint64_t number) const noexcept;
  /// A request packet left; `flight` is what its path has unacknowledged.
  void on_request_sent(const TxDesc& desc, Ps now);
  void on_timer(Ps now);
  void on_source_lost(std::uint32_t lost_psn);
  /// The oldest request's source is not registered: the engine may find that out at any time.
  [[nodiscard]] bool source_broken() const noexcept;
  // Local requests (reference_windows.cpp)
  /// After next_tx(): what the engine has executed behind the last packet shows in the state of its windows.
  void observe_local(const MemoryTable& memory);
  /// The oldest request is local and cannot be executed: the engine may find that out at any time.
  [[nodiscard]] bool local_broken() const noexcept;
  /// An event, with what the engine may have found out in it, is over.
  void event_over() noexcept { broken_before_wait_ = false; }
  void fail_head(WcStatus status);
  /// Something may be sent, as far as this queue pair is concerned.
  [[nodiscard]] bool ready() const noexcept;
  [[nodiscard]] const Send& send_of(std::uint64_t number) const;
  [[nodiscard]] bool sends_pending() const noexcept { return head_ != sends_.size(); }
  [[nodiscard]] std::size_t sends_outstanding() const noexcept { return sends_.size() - head_; }
  [[nodiscard]] std::uint64_t largest_charge() const noexcept;
  /// How an AETH says that there are so many receive WQEs, rounded down.
  [[nodiscard]] static std::uint8_t credit_code(std::size_t receives) noexcept;
  /// The oldest READ or atomic that was sent and has not completed; null when there is none.
  [[nodiscard]] const Send* first_fetch() const noexcept;

  // ---- responder, and answers to the requester
  [[nodiscard]] Judgement judge(const wire::Headers& headers, std::uint32_t bytes,
                                const PacketSource& source) const noexcept;
  /// What the memory does: `original` is what an atomic finds; `memory_gone` says that it will not be found.
  struct Memory {
    std::uint64_t original = 0;
    bool gone = false;
  };
  void commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes, Ps now,
              const Memory& memory);
  void reject(const Judgement& judgement, const wire::Headers& headers, Ps now);
  void on_answer_sent(const TxDesc& desc);
  void on_reply_sent(const TxDesc& desc);
  void on_reply_lost(std::uint32_t lost_psn);
  /// The source of the next reply is not registered: the engine may find that out at any time.
  [[nodiscard]] bool reply_broken() const noexcept;
  void end_broken_repetitions() noexcept;
  void fail_reply(wire::NakCode code, std::uint32_t at_psn);
  [[nodiscard]] std::uint32_t reply_psn() const noexcept;
  [[nodiscard]] bool replies_pending() const noexcept;

  std::uint64_t una = 0, next = 0, high = 0;  ///< oldest unacknowledged, next to send, never sent
  std::uint64_t in_flight = 0;                ///< window charge of [una, next)
  Ps deadline = kNever;
  std::uint64_t executed = 0;  ///< requests of the peer: the number that is expected
  enum class Owed : std::uint8_t { kNothing, kAck, kOldAck, kNak } owed = Owed::kNothing;
  ReferenceCongestion congestion;

 private:
  // requester
  [[nodiscard]] std::uint32_t charge(const Send& send, std::uint64_t number) const noexcept;
  [[nodiscard]] std::uint32_t payload(const Send& send, std::uint64_t number) const noexcept;
  [[nodiscard]] bool accessible(const Send& send, std::uint64_t number) const noexcept;
  /// Behind the last packet or, of a READ, response that the request with this number asks for.
  [[nodiscard]] std::uint64_t request_end(const Send& send, std::uint64_t number) const noexcept;
  [[nodiscard]] std::uint64_t request_charge(const Send& send, std::uint64_t number) const noexcept;
  [[nodiscard]] std::uint64_t request_packets() const noexcept;
  [[nodiscard]] bool may_leave(const Send& send) const noexcept;
  /// The local request whose turn it is: everything before it was sent, and is not being sent again.
  [[nodiscard]] const Send* due_local() const noexcept;
  [[nodiscard]] bool possible(const Send& local) const noexcept;
  [[nodiscard]] bool local_ready(const Send& local) const noexcept;
  void pass_locals(const Send& send);
  void execute_local(const Send& local);
  void check_drain_sent(const Send& send);
  void check_fetch_sent(const Send& send, const TxDesc& desc) const;
  [[nodiscard]] Judgement judge_answer(const wire::Headers& headers, std::uint32_t bytes) const;
  void on_response(const Judgement& judgement, const wire::Headers& headers, Ps now, const Memory& memory);
  void on_answer(const wire::Headers& headers, Ps now);
  // credits (reference_credits.cpp)
  [[nodiscard]] static std::uint32_t credits_of(std::uint8_t code) noexcept;
  void take_credits(const wire::Headers& headers);
  [[nodiscard]] bool beyond_credits(const Send& send, std::uint64_t number) const noexcept;
  [[nodiscard]] bool credits_permit(const Send& send) const noexcept;
  bool advance(std::uint64_t end, Ps now);
  /// RTS, or SQD: answers are taken, and what was begun is sent again.
  [[nodiscard]] bool sending() const noexcept { return state == QpState::kRts || state == QpState::kSqd; }
  [[nodiscard]] bool begun(const Send& send) const noexcept { return send.local ? send.executed : send.first < high; }
  [[nodiscard]] bool drained() const noexcept { return !sends_pending() || !begun(sends_[head_]); }
  void go_back();
  void retry();
  void on_loss(Point point);
  void complete_send(WcStatus status);
  void enter_error();
  void flush();

  // responder
  [[nodiscard]] Judgement judge_request(const wire::Headers& headers, std::uint32_t bytes, std::uint32_t limit) const;
  void judge_fetch(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const;
  void execute(const wire::Headers& headers, std::uint32_t bytes);
  void execute_fetch(const wire::Headers& headers, const Memory& memory);
  void pass(std::uint64_t count);
  void repeat(const wire::Headers& headers);
  void repeat_fetch(std::uint64_t number, const wire::Headers& headers);
  void start_reply(Fetched& fetched, std::uint64_t from, std::uint32_t length);
  [[nodiscard]] Fetched* oldest_reply() noexcept;
  [[nodiscard]] const Fetched* oldest_reply() const noexcept;
  [[nodiscard]] std::uint64_t packets(std::uint32_t length) const noexcept;
  void refuse(std::uint8_t syndrome);
  void fail(wire::NakCode code);
  void owe_ack();

  std::vector<Send> sends_;  ///< of this life, all of them; those before head_ are done
  std::size_t head_ = 0;
  std::uint8_t retries_left_ = 0, rnr_retries_left_ = 0;
  bool answered_nak_ = false;        ///< until progress or timeout
  bool waiting_ = false;             ///< after an RNR NAK
  bool broken_before_wait_ = false;  ///< so was what a NAK made the oldest request and put off
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t lost_ = kNone;  ///< the request that will fail with a local error
  std::uint32_t largest_charge_ = 0;
  bool draining_ = false;  ///< in SQD, until all that was begun is complete
  bool wants_drained_event_ = false;
  bool credits_given_ = false;
  std::uint32_t credit_limit_ = 0;  ///< the last SSN that the peer has a receive WQE for

  bool refused_ = false, established_ = false;
  std::uint8_t nak_syndrome_ = 0;
  std::uint64_t owed_psn_ = 0;
  std::vector<Fetched> fetched_;  ///< the last dest_rd_atomic of them, oldest first
  std::uint32_t unacknowledged_ = 0;
  std::uint32_t messages_ = 0;
};

}  // namespace tensorwire::transport::faults
