// One end of an unreliable connection beside the others of its host, its reference, and the application that uses it:
// it sends SENDs and WRITEs to the other end, which may hear of them or not. Ends are restarted each for itself.
#pragma once

#include <cstdint>
#include <vector>

#include "packet.hpp"
#include "reference_uc.hpp"
#include "unanswered_end.hpp"

namespace tensorwire::transport::faults {

class UnreliableEnd final : public UnansweredEnd {
 public:
  UnreliableEnd(const Scenario& scenario, Random& random, Hits& hits, SimHost& on, std::size_t host_number);

  /// First both, then connect() with the other one.
  void create(std::uint32_t qp_number, SharedQueue* shared, PathId path);
  void connect(UnreliableEnd& peer, std::uint32_t family, MtuCode mtu);
  bool post_sends(Ps now);
  /// A region that peers or packets name is deregistered; registered anew some time.
  void deregister();

  struct Message {
    WrOpcode opcode = WrOpcode::kSend;
    std::uint64_t source = 0;  ///< address of its bytes, which never change
    std::uint32_t length = 0;
    std::uint64_t target = 0;  ///< WRITE: address at the peer
    std::uint32_t delivered = 0;
  };
  /// The message whose packets are arriving here, as their labels say.
  struct Arriving {
    Label last;
    bool trusted = false;  ///< no forgery among them
  };

  [[nodiscard]] ReferenceUnanswered& reference() noexcept override { return ref; }
  [[nodiscard]] const UnreliableEnd& peer() const noexcept { return *peer_; }
  [[nodiscard]] UnreliableEnd& peer() noexcept { return *peer_; }
  [[nodiscard]] const Zone& target() const noexcept { return target_; }

  ReferenceUc ref;
  std::vector<Message> messages;  ///< by work request
  Arriving arriving;
  wire::Gid gid;
  std::uint8_t traffic_class = 0;  ///< as configured; the engine adds the ECN bits
  std::uint32_t life = 0;

 private:
  static const Kind kKind;

  void bring_up(Ps now) override;
  [[nodiscard]] bool post_send(Ps now);
  [[nodiscard]] ReferenceUnanswered::Send choose_send(Message& message);
  void name_target(Message& message, ReferenceUnanswered::Send& send);
  void register_again();

  UnreliableEnd* peer_ = nullptr;
  MtuCode mtu_ = MtuCode::k256;
  Zone target_;  ///< where the peer writes
};

}  // namespace tensorwire::transport::faults
