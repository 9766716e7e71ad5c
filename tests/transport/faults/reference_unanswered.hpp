// The sending half of queue pairs that nobody answers (UD, UC), written a second time: in which order sends complete,
// and when; what a local error does. Nothing here knows of time.
#pragma once

#include <cstdint>
#include <deque>

#include "reference_receiver.hpp"
#include "reference_send.hpp"

namespace tensorwire::transport::faults {

/// Where what happens to both services is counted.
struct UnansweredPoints {
  Point to_sqe, from_sqe_to_error, to_error;
  Point to_sqd, drained, drain_ends;
  Point source_lost, source_broken;
  Point sent, sent_unsignaled, flushed, protection;
};

class ReferenceUnanswered : public ReferenceReceiver {
 public:
  struct Send : ReferenceSend {
    // Of datagrams.
    AddressVector av;
    std::uint32_t dest_qpn;
    std::uint32_t qkey;  ///< as posted
  };

  // ---- the application
  void reset(const ReferenceConfig& with);
  void post_send(const Send& send) { sends_.push_back(send); }
  /// Of its own queue, the oldest; only before RESET.
  std::uint64_t forget_receive() { return take_receive().wr_id; }
  /// The application rang, after a post.
  void doorbell();
  void set_error() { enter_error(); }
  /// Its completion queue overran.
  void fail_fatally();
  /// SQD: no further message is begun; `notify`: the application wants to hear when those that were have left.
  void drain(bool notify);
  void settle_drain();
  [[nodiscard]] bool draining() const noexcept { return draining_; }

  // ---- egress
  /// The link asks for more: it is done with what it was given.
  void on_next_tx();
  void on_source_lost(std::uint32_t psn);
  /// The source of the next packet is not registered: the engine may have found that out.
  [[nodiscard]] bool source_broken() const noexcept;
  void fail_source();
  [[nodiscard]] bool ready() const noexcept;
  /// The next to leave, or to go on.
  [[nodiscard]] const Send& upcoming() const { return sends_[given_]; }
  [[nodiscard]] std::size_t sends_outstanding() const noexcept { return sends_.size(); }
  /// Messages that are with the link as a whole.
  [[nodiscard]] std::size_t given() const noexcept { return given_; }
  /// Packets of this life that left.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }

 protected:
  ReferenceUnanswered(Registrations& registrations, Hits& hits, const UnansweredPoints& points)
      : ReferenceReceiver(registrations, hits), points_(points) {}
  ~ReferenceUnanswered() = default;

  /// Of the next packet: its place in its message, its payload, and the PSN that it must have.
  [[nodiscard]] std::uint32_t packet() const noexcept { return packet_; }
  [[nodiscard]] std::uint32_t payload(const Send& send) const noexcept;
  [[nodiscard]] std::uint32_t packets(const Send& send) const noexcept;
  [[nodiscard]] std::uint32_t psn() const noexcept;
  void check_sent(const TxDesc& desc) const;
  void on_packet_sent();
  void enter_error();
  /// ERR: of what its service keeps for the receiving half.
  virtual void stop_receiving() {}

 private:
  [[nodiscard]] bool accessible(const Send& send, std::uint32_t packet) const noexcept;
  void complete_send(WcStatus status, std::uint32_t allowance = 0);
  void complete_given();
  void fail();
  void flush_sends();

  const UnansweredPoints& points_;
  std::deque<Send> sends_;
  std::size_t given_ = 0;     ///< the first ones are with the link
  std::uint32_t packet_ = 0;  ///< so many packets of the one after them, too
  std::uint64_t sent_ = 0;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t lost_ = kNone;  ///< one of those, whose source could not be read
  bool draining_ = false;
  bool broken_before_drain_ = false;  ///< the engine may have found the source of the next message gone already
  bool wants_drained_event_ = false;
};

}  // namespace tensorwire::transport::faults
