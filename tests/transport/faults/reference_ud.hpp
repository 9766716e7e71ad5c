// A datagram (UD) queue pair written a second time: what it sends, in which order sends complete, whom it hears, what
// stands in front of a received datagram. Nothing here knows of time: nobody answers a datagram.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "reference_qp.hpp"

namespace tensorwire::transport::faults {

class ReferenceUd {
 public:
  static constexpr std::uint32_t kHeaderBytes = 40;  ///< in front of every datagram
  /// Vendor error of an expected completion: a flush, unless the engine has seen already that its source is not there.
  static constexpr std::uint32_t kPerhapsProtection = 1;

  struct Config {
    std::uint32_t qpn = 0;
    PdId pd = 0;
    std::uint32_t qkey = 0;
    std::uint32_t sq_psn = 0;
  };
  struct Send {
    std::uint64_t wr_id;
    bool immediate_follows;
    bool signaled;
    bool solicited;
    bool inline_data;
    std::uint32_t immediate;
    std::uint32_t length;
    SgeList sges;
    AddressVector av;
    std::uint32_t dest_qpn;
    std::uint32_t qkey;  ///< as posted
  };

  ReferenceUd(const Registrations& registrations, Hits& hits) : registrations_(registrations), hits_(hits) {}

  // ---- the application
  void share(ReferenceSrq& srq) noexcept { shared_ = &srq; }
  void reset(const Config& config);
  void post_send(const Send& send);
  void post_receive(const ReferenceReceive& receive) { receives_.push_back(receive); }
  void forget_receive() { receives_.pop_front(); }
  /// The application rang, after a post.
  void doorbell();
  void set_error() { enter_error(); }
  /// Its completion queue overran.
  void fail_fatally();

  // ---- egress
  /// The link asks for more: it is done with what it was given.
  void on_next_tx();
  void on_sent(const TxDesc& desc);
  void on_source_lost(std::uint32_t psn);
  /// The next datagram's source is not registered: the engine may have found that out.
  [[nodiscard]] bool source_broken() const noexcept;
  void fail_source();
  [[nodiscard]] bool ready() const noexcept;
  /// The next to leave.
  [[nodiscard]] const Send& upcoming() const { return sends_[given_]; }
  [[nodiscard]] std::size_t sends_outstanding() const noexcept { return sends_.size(); }
  [[nodiscard]] std::size_t given() const noexcept { return given_; }

  // ---- ingress
  [[nodiscard]] Judgement judge(const wire::Headers& headers, std::uint32_t bytes, const PacketSource& source) const;
  void commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes);
  void reject(const wire::Headers& headers);
  [[nodiscard]] const ReferenceReceive* front_receive() const noexcept;
  [[nodiscard]] std::size_t receives_outstanding() const noexcept { return receives_.size(); }

  /// The IP header as its receiver is told of it: IPv6 as it is, IPv4 behind twenty zeros.
  [[nodiscard]] static std::array<std::byte, kHeaderBytes> network_header(const wire::Headers& headers,
                                                                          std::uint32_t bytes,
                                                                          const PacketSource& source);

  Config config;
  QpState state = QpState::kReset;
  std::vector<Completion> completions;
  std::vector<AsyncEvent> events;

 private:
  [[nodiscard]] bool inaccessible(const Send& send) const noexcept;
  void complete_send(WcStatus status, std::uint32_t allowance = 0);
  void complete_given();
  void fail();
  void flush_sends();
  void enter_error();
  void complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes);

  const Registrations& registrations_;
  Hits& hits_;
  ReferenceSrq* shared_ = nullptr;
  std::deque<Send> sends_;
  std::size_t given_ = 0;  ///< the first ones are with the link
  std::uint32_t sent_ = 0;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t lost_ = kNone;  ///< one of those given, whose source could not be read
  std::deque<ReferenceReceive> receives_;
};

}  // namespace tensorwire::transport::faults
