// The receiving half that all reference queue pairs share: buffers, the message under way, and where its bytes may go.
// Also the reference for registered memory.
#pragma once

#include <cstdint>
#include <vector>

#include "hits.hpp"
#include "reference_srq.hpp"
#include "transport/engine.hpp"
#include "transport/responder.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport::faults {

/// A memory window written a second time.
struct ReferenceWindow {
  WindowType type = WindowType::k2;
  std::uint32_t key = 0;
  PdId pd = 0;
  bool bound = false;
  std::uint32_t qpn = 0;  ///< of the queue pair that bound it
  WindowBinding binding;
};

/// What a host has registered: the reference for keys, domains, ranges and rights.
struct Registrations {
  std::vector<MemoryRegion> all;
  std::vector<ReferenceWindow> windows;

  /// What a peer of queue pair `qpn` may reach: regions, and windows where no region has the key.
  [[nodiscard]] AccessResult reach(std::uint32_t key, PdId pd, std::uint32_t qpn, std::uint64_t address,
                                   std::uint64_t length, std::uint32_t rights) const noexcept;
  /// The window to which the key belongs, by whatever key it is bound.
  [[nodiscard]] const ReferenceWindow& window(std::uint32_t key) const noexcept;
  [[nodiscard]] bool can_invalidate(std::uint32_t key, PdId pd, std::uint32_t qpn) const noexcept;
  void invalidate(std::uint32_t key) noexcept;
  /// The window to which the key belongs may be bound under it.
  [[nodiscard]] bool can_bind(std::uint32_t key, const WindowBinding& binding, PdId pd) const noexcept;
  /// To nothing, of type 1: when nothing is to be opened.
  void bind(std::uint32_t key, const WindowBinding& binding, std::uint32_t qpn) noexcept;
  /// Windows are bound to the region with this key.
  [[nodiscard]] bool held(std::uint32_t region_key) const noexcept;

  [[nodiscard]] AccessResult check(std::uint32_t key, PdId pd, std::uint64_t address, std::uint64_t length,
                                   std::uint32_t rights) const noexcept;
  /// A scatter/gather list, of whose bytes [begin, end) are wanted.
  [[nodiscard]] bool permits(const SgeList& sges, PdId pd, std::uint64_t begin, std::uint64_t end,
                             std::uint32_t rights) const noexcept;
  void remove(std::uint32_t key) noexcept;
};

struct Judgement {
  RxAction action = RxAction::kDrop;
  DropReason drop = DropReason::kNone;
  RxPlan plan = RxPlan::kNone;
  Point point = Point::kCount;  ///< which rule decided
  bool verify_first = true;
  std::uint64_t address = 0;  ///< where the bytes go
  std::uint32_t bytes = 0;
};

/// What both sides agreed on, and what this side was configured with.
struct ReferenceConfig {
  std::uint32_t qpn = 0;
  std::uint32_t peer_qpn = 0;
  wire::Gid peer;
  PdId pd = 0;
  std::uint32_t access = 0;
  std::uint32_t mtu = 0;  ///< of the path; what a message is cut into
  bool whole = false;     ///< messages are not cut (READ responses are)
  std::uint32_t sq_psn = 0;
  std::uint32_t rq_psn = 0;
  Ps timeout = kNever;
  std::uint8_t retry_cnt = 0;
  std::uint8_t rnr_retry = 0;
  std::uint8_t min_rnr_timer = 0;
  std::uint32_t ack_coalesce = 0;
  std::uint64_t window = 0;
  std::uint64_t path_window = 0;
  std::uint8_t rd_atomic = 0;       ///< READs and atomics outstanding, as requester
  std::uint8_t dest_rd_atomic = 0;  ///< likewise, as responder
  DcqcnConfig dcqcn;
  std::uint32_t qkey = 0;  ///< datagrams
};

class ReferenceReceiver {
 public:
  /// Vendor error of an expected completion: this status, unless the engine has seen already that the source is gone.
  static constexpr std::uint32_t kPerhapsProtection = 1;

  /// It takes its buffers from there.
  void share(ReferenceSrq& srq) noexcept { shared_ = &srq; }
  void post_receive(std::uint64_t wr_id, const SgeList& sges) { receives_.emplace_back(wr_id, sges); }
  /// Posted to the queue pair itself.
  [[nodiscard]] std::size_t receives_outstanding() const noexcept { return receives_.size() - receives_head_; }
  /// The buffer of the message under way, or of the next one; null when there is none.
  [[nodiscard]] const ReferenceReceive* front_receive() const noexcept;
  /// Part of a SEND has arrived: others take from a shared queue meanwhile, so that its buffer is out of it.
  void hold();
  /// Has a buffer of a shared queue to itself.
  [[nodiscard]] bool holds() const noexcept { return holding_; }
  /// Opcode of the First packet of the message under way.
  [[nodiscard]] std::uint8_t message_base() const noexcept { return message_ == Message::kWrite ? 6 : 0; }

  ReferenceConfig config;
  QpState state = QpState::kReset;
  std::vector<Completion> completions;  ///< that the engine must give next, in this order
  std::vector<AsyncEvent> events;       ///< likewise

 protected:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  ReferenceReceiver(Registrations& registrations, Hits& hits) : registrations_(registrations), hits_(hits) {}

  /// RESET: buffers are forgotten.
  void forget_receives() noexcept;
  void let_go();
  ReferenceReceive take_receive();
  void complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t bytes);
  /// Completes what is posted, and what is held, with a flush error.
  void flush_receives();
  [[nodiscard]] PdId receive_domain() const noexcept { return shared_ != nullptr ? shared_->pd : config.pd; }

  /// What message the packet belongs to by its opcode.
  [[nodiscard]] static Message message_of(const wire::OpcodeTraits& traits) noexcept;
  [[nodiscard]] static bool length_fits(const wire::OpcodeTraits& traits, std::uint32_t bytes,
                                        std::uint32_t limit) noexcept;
  void judge_send(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const;
  void judge_write(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const;
  [[nodiscard]] Point refused_access(std::uint32_t key, std::uint64_t address, std::uint32_t length,
                                     std::uint32_t right) const;
  /// The message goes on by a packet that was executed; true when it is complete.
  bool take(const wire::Headers& headers, std::uint32_t bytes);

  Registrations& registrations_;
  Hits& hits_;
  ReferenceSrq* shared_ = nullptr;
  bool holding_ = false;
  Message message_ = Message::kNone;
  std::uint32_t done_ = 0;

 private:
  std::vector<ReferenceReceive> receives_;
  std::size_t receives_head_ = 0;
  ReferenceReceive held_;
  std::uint32_t write_length_ = 0, write_key_ = 0;
  std::uint64_t write_address_ = 0;
};

}  // namespace tensorwire::transport::faults
