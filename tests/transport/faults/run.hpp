// One seed: hosts, connections and a hostile network, run event by event in virtual time. After every event each engine
// is compared with the reference model: states, completions, events, deadline, what it has left to send, and the bytes
// around every write.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "adversary.hpp"
#include "arena.hpp"
#include "connection.hpp"
#include "hits.hpp"
#include "trace.hpp"

namespace tensorwire::transport::faults {

/// What is reused from seed to seed.
struct Workspace {
  std::array<Arena, Adversary::kMaxHosts> arenas;
  Hits hits;
  std::uint64_t requests = 0;
  std::uint64_t packets = 0;
};

class Run {
 public:
  Run(std::uint64_t seed, Workspace& workspace);

  /// @throws Violation
  void go();
  /// What led to a violation.
  [[nodiscard]] std::string story() const;

 private:
  enum class Event : std::uint8_t { kArrival, kTransmit, kTimer, kStep, kRecover, kUnblock, kNone };
  struct Next {
    Event event = Event::kNone;
    Ps time = kNever;
    std::size_t index = 0;
    std::size_t side = 0;
  };

  // ---- events (run.cpp)
  [[nodiscard]] Next next_event() const noexcept;
  void handle(const Next& next);
  void recover(Connection& connection);
  bool post();
  void disturb();
  [[nodiscard]] bool finished() const noexcept;
  void end();

  // ---- packets (run_packets.cpp)
  void transmit(std::size_t host);
  void launch(std::size_t host, const TxDesc& desc, Ps departure);
  void label_request(Packet& packet, const TxDesc& desc, Connection& connection, std::size_t side);
  void deliver(Packet packet);
  void deliver_parsed(const Packet& packet, const wire::Parsed& parsed);
  void place_packet(const Packet& packet, const wire::Parsed& parsed, const RxVerdict& verdict,
                    const Judgement& judgement, Connection& connection, std::size_t side);
  std::uint64_t expect_atomic(const Packet& packet, const wire::Headers& headers, Direction& direction);
  void expect_original(const wire::Headers& headers, Connection& connection, std::size_t side);
  void expect_verdict(const RxVerdict& verdict, const Judgement& judgement) const;
  [[nodiscard]] bool would_deceive(const Packet& packet, const wire::Headers& headers, const Judgement& judgement,
                                   const Connection& connection, std::size_t side) const noexcept;
  /// After every call of a host's engine.
  void settle(std::size_t host);
  static void discover_failure(End& end);
  void settle_end(Connection& connection, std::size_t side);
  void settle_egress(std::size_t host);

  // ---- forgeries (run_forgeries.cpp)
  void forge();
  void forge_request(Connection& connection, std::size_t side);
  void forge_answer(Connection& connection, std::size_t side);
  void inject(Packet packet, const wire::Headers& headers, std::uint32_t bytes);

  struct Owner {
    Connection* connection = nullptr;
    std::size_t side = 0;
  };
  [[nodiscard]] Owner owner(std::size_t host, std::uint32_t qpn) noexcept;

  Workspace& workspace_;
  Hits& hits_;
  Random random_;
  Scenario scenario_;
  Adversary adversary_;
  std::deque<SimHost> hosts_;
  std::deque<Connection> connections_;
  std::array<std::array<Owner, 8>, Adversary::kMaxHosts> owners_{};  ///< by host
  std::array<std::size_t, Adversary::kMaxHosts> owner_count_{};
  std::array<PathId, Adversary::kMaxHosts> paths_{};
  std::array<Ps, Adversary::kMaxHosts> blocked_until_{};
  Trace trace_;
  Ps now_ = 0;
  bool calm_ = false;
};

}  // namespace tensorwire::transport::faults
