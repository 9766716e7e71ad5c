// Hosts joined by a wire in virtual time: the second driver of the engine beside sockets, for tests and for reproducing
// what a fabric does (delay, loss, duplication, reordering, corruption, pause, a shared port that marks). It uses no
// Engine method that a socket adapter does not, makes real RoCEv2 datagrams with their ICRC, and copies real bytes. One
// thread; the same configuration and calls give the same run. Engines belong to the caller and must outlive the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "base/time.hpp"
#include "transport/engine.hpp"

namespace tensorwire::transport {

struct VirtualWire {
  Ps delay = 1 * kMicrosecond;  ///< one way
  Ps ps_per_byte = 80;          ///< serialisation on each host's egress: 80 is 100 Gb/s
  // Faults, per million packets.
  std::uint32_t lose = 0;
  std::uint32_t duplicate = 0;
  std::uint32_t corrupt = 0;  ///< one bit flipped; the ICRC finds it
  std::uint32_t reorder = 0;  ///< held back for reorder_delay
  Ps reorder_delay = 5 * kMicrosecond;
  std::uint64_t seed = 1;
  /// The switch port in front of each receiver, which all senders share: a queue without end, that marks ECN-capable
  /// packets as they leave it (RED on the instantaneous queue). 0: no port, every sender has a wire of its own.
  Ps port_ps_per_byte = 0;
  std::uint64_t ecn_min_bytes = 5'000;
  std::uint64_t ecn_max_bytes = 200'000;
  std::uint32_t ecn_max_per_million = 10'000;
};

struct VirtualCounters {
  std::uint64_t sent = 0;  ///< packets that left a host
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t reordered = 0;
  std::uint64_t icrc_errors = 0;
  std::uint64_t marked = 0;
  std::uint64_t longest_queue = 0;  ///< bytes, of any port
};

class VirtualLoop {
 public:
  explicit VirtualLoop(const VirtualWire& wire);

  /// `mtu`: the largest payload of a packet on this wire (kMaxMessageBytes for whole_messages paths).
  /// @return the host's number, from 0.
  std::size_t add_host(Engine& engine, const wire::Gid& address, std::uint32_t mtu = 4096);
  /// A paused host does not send (a priority paused by its switch); it still receives.
  void pause(std::size_t host, bool paused) noexcept { hosts_[host].paused = paused; }
  /// From now on; packets in flight are not touched.
  void set_wire(const VirtualWire& wire) noexcept { wire_ = wire; }

  [[nodiscard]] Ps now() const noexcept { return now_; }
  /// Handles the next event (arrival, then transmission, then timer, when several are due). False when there is none.
  bool step();
  /// Handles every event up to `time`, and lets the time be that.
  void run_until(Ps time);
  /// Runs until no event is left, or `limit` is passed; true when idle.
  bool run_until_idle(Ps limit);

  [[nodiscard]] const VirtualCounters& counters() const noexcept { return counters_; }

 private:
  struct Packet {
    Ps arrival = 0;
    std::uint64_t order = 0;
    std::size_t to = 0;
    wire::Gid source;
    std::uint16_t source_port = 0;
    std::uint8_t traffic_class = 0;
    bool left_port = false;           ///< behind the switch, or there is none
    std::vector<std::byte> datagram;  ///< UDP payload, ICRC included
  };
  /// The switch port towards a host.
  struct Port {
    std::deque<Packet> queue;
    std::uint64_t bytes = 0;
    Ps free = 0;
  };
  struct Host {
    Engine* engine;
    wire::Gid address;
    std::uint32_t mtu;
    bool paused = false;
    Ps egress_free = 0;
    Port port = {};
  };
  enum class Event : std::uint8_t { kArrival, kPort, kTransmit, kTimer, kNone };
  struct Next {
    Event event = Event::kNone;
    Ps time = kNever;
    std::size_t host = 0;
  };

  [[nodiscard]] Next next_event() const noexcept;
  void transmit(Host& host);
  void launch(Host& host, const TxDesc& desc, Ps departure);
  void enqueue(Packet packet);
  void deliver();
  void enter_port(Packet packet);
  void leave_port(Port& port);
  [[nodiscard]] bool marks(std::uint64_t queue_bytes) noexcept;
  void receive(Host& host, const Packet& packet);
  [[nodiscard]] std::vector<std::byte> take_buffer();
  static bool later(const Packet& a, const Packet& b) noexcept;

  VirtualWire wire_;
  Random random_;
  Ps now_ = 0;
  std::uint64_t order_ = 0;
  std::vector<Host> hosts_;
  std::vector<Packet> in_flight_;  ///< heap, earliest first
  std::vector<std::vector<std::byte>> spare_buffers_;
  VirtualCounters counters_;
};

}  // namespace tensorwire::transport
