// The fabric in virtual time: hosts with real engines, switches, and packets that move between them, one event after
// another. Deterministic: integers, a seed, and an order of events that is the same on every machine.
//
// Ownership and threads. The Fabric owns everything it simulates; topology and traffic (flow.hpp, collective_group.hpp)
// are its callers'. One thread. What it simulates is in fabric.cpp (time and links), fabric_pfc.cpp, fabric_switch.cpp
// and fabric_host.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "fabric/engine_memory.hpp"
#include "fabric/event_queue.hpp"
#include "fabric/host.hpp"
#include "fabric/packet_queue.hpp"
#include "fabric/port.hpp"
#include "fabric/shared_buffer.hpp"
#include "fabric/topology.hpp"

namespace tensorwire::fabric {

/// Marking as a packet leaves a queue, by what it leaves behind (RED on the instantaneous queue).
struct EcnConfig {
  bool enabled = false;
  std::uint64_t min_bytes = 150'000;
  std::uint64_t max_bytes = 1'500'000;
  std::uint32_t max_per_million = 1'000'000;  ///< at max_bytes; beyond, every packet is marked
};

/// The PFC watchdog: a queue that was paused without a break for `detect` waits no longer; what is in it and what comes
/// for it is thrown away, until no pause has come for `restore`. The defaults are SONiC's.
struct WatchdogConfig {
  bool enabled = false;
  Ps detect = 200 * kMillisecond;
  Ps restore = 200 * kMillisecond;
};

struct SwitchConfig {
  BufferConfig buffer;
  EcnConfig ecn;
  SchedulerConfig scheduler;
  WatchdogConfig watchdog;
  std::uint16_t pause_quanta = kLongestPause;
};

struct FabricConfig {
  std::uint64_t seed = 1;
  SwitchConfig switches;
  HostConfig hosts;
  transport::EngineConfig engine;
};

/// Somebody who wants to be called at a time.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual void act(Ps now) = 0;
};

struct FabricCounters {
  std::uint64_t data_packet_hops = 0;  ///< a data packet on a link, each time
  std::uint64_t packet_hops = 0;       ///< every packet, ACKs and PFC frames included
  std::uint64_t payload_bytes = 0;     ///< that arrived at hosts
  std::uint64_t marked = 0, dropped = 0, lost = 0, pauses_sent = 0;
  std::uint64_t unroutable = 0;                      ///< dropped because no way was left
  std::uint64_t watchdog = 0, watchdog_dropped = 0;  ///< how often it gave up waiting; what it threw away
};

struct Switch {
  PortId first_port = 0;
  std::uint32_t ports = 0;
  std::uint64_t salt = 0;    ///< of its choice among equal paths
  std::uint32_t asking = 0;  ///< pauses that its ports ask for now
  SharedBuffer buffer;
  Random random;
};

class Fabric {
 public:
  /// @throws Error on a topology or thresholds that cannot be.
  Fabric(const Topology& topology, const FabricConfig& config);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // ---- set-up
  /// A queue pair on each host, connected. @throws Error
  struct Pair {
    transport::QueuePair* a;
    transport::QueuePair* b;
  };
  Pair connect(HostId a, HostId b, const ConnectionConfig& config, QpUser* user_a, QpUser* user_b);
  /// One host otherwise than all others.
  void set_host(HostId host, const HostConfig& config) { hosts_[host]->config = config; }

  // ---- what traffic does
  /// The actor lives as long as the fabric runs. `time` is not in the past.
  void call_at(Ps time, Actor& actor);
  /// Hands a work request to the NIC; queue pairs have room for what is posted. At most two sges.
  void post(HostId host, transport::QueuePair& qp, const transport::SendWr& wr);
  /// The NIC of a host asks its switch for silence (or, with 0, to go on).
  void send_pause(PortId port, std::uint8_t priority, std::uint16_t quanta);
  /// A link fails or comes back. What is on it then, and what is sent over it while it is down, is lost. Switches go on
  /// choosing it until reroute().
  void set_link(std::uint32_t link, bool up);
  /// All switches learn which links are down.
  void reroute();
  /// Records what passes a port. The capture lives as long as the fabric runs.
  void capture(PortId port, PortCapture& capture);
  /// run() returns after this event.
  void stop() noexcept { stopped_ = true; }

  // ---- time
  /// Handles what happens up to `limit`. False: nothing more will ever happen, or somebody called stop().
  bool run(Ps limit);
  [[nodiscard]] Ps now() const noexcept { return now_; }

  // ---- questions
  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] const Routes& routes() const noexcept { return routes_; }
  [[nodiscard]] Host& host(HostId host) noexcept { return *hosts_[host]; }
  [[nodiscard]] const Host& host(HostId host) const noexcept { return *hosts_[host]; }
  [[nodiscard]] std::uint32_t host_count() const noexcept { return static_cast<std::uint32_t>(hosts_.size()); }
  [[nodiscard]] std::span<const Port> ports() const noexcept { return ports_; }
  [[nodiscard]] const std::vector<Switch>& switches() const noexcept { return switches_; }
  [[nodiscard]] const FabricCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::uint64_t events() const noexcept { return events_.popped(); }
  /// "leaf 3 port 7", "host 12".
  [[nodiscard]] std::string name_of(PortId port) const;
  /// @throws Error when there is none.
  [[nodiscard]] PortId port_named(const std::string& name) const;
  /// The ports that a packet of this connection leaves by, from the host to the last switch, as links are now.
  [[nodiscard]] std::vector<PortId> path_of(HostId from, const transport::QueuePair& qp) const;
  /// A deadlock: switches' ports, each of which is paused because packets from it wait at the next one, the last one's
  /// at the first. Empty: there is none.
  [[nodiscard]] std::vector<PortId> deadlock() const;
  /// How long the port was paused so far.
  [[nodiscard]] Ps paused_time(PortId port, std::uint8_t priority) const noexcept;
  /// Of everything that was counted, and the time: equal for equal runs.
  [[nodiscard]] std::uint64_t hash() const noexcept;

 private:
  /// What belongs to a port and is asked so often that it must not cost a cache line of the port's.
  struct Place {
    std::uint32_t node = 0;
    bool special = false;  ///< as the port's
  };

  void handle(Event& event);
  void push(EventKind kind, std::uint32_t target, Ps time) { events_.push(time, kind, target); }
  [[nodiscard]] bool is_host_port(PortId port) const noexcept { return port < hosts_.size(); }
  void tell_special(PortId port) noexcept;

  // ---- what events that are to come will read is fetched from memory meanwhile (fabric_fetch.cpp)
  void fetch_ahead() noexcept;
  void fetch(Event& event) const noexcept;
  /// Chooses the packet's way, too.
  void fetch_arrival(PortId port, Packet& packet) const noexcept;
  void fetch_host(HostId host) const noexcept;
  [[nodiscard]] std::uint32_t queue_pair_of(const Event& event) const noexcept;
  /// What is known only when the first is there, and when the second is.
  void fetch_second(const Event& event) const noexcept;
  void fetch_third(const Event& event) const noexcept;

  // ---- links
  void transmit(PortId port, Packet& packet);
  void wake_when_free(PortId port);
  void on_port_free(PortId port);
  void on_arrival(PortId port, Packet& packet);
  /// It is nowhere any more.
  void forget(const Packet& packet);
  [[nodiscard]] bool loses(Port& port, const Packet& packet) noexcept;

  // ---- PFC (fabric_pfc.cpp)
  void on_pause(PortId port, const Packet& packet);
  void on_pause_expiry(PortId port, std::uint8_t priority);
  void set_paused(PortId port, std::uint8_t priority, bool paused);
  void ask_pause(PortId port, std::uint8_t priority);
  void end_pause(PortId port, std::uint8_t priority);
  void on_pause_repeat(PortId port, std::uint8_t priority);
  void give_up_waiting(PortId port, std::uint8_t priority);
  void on_watchdog(PortId port, std::uint8_t priority);
  [[nodiscard]] std::vector<PortId> waits_for_at_next(PortId port, std::uint8_t priority) const;

  // ---- switches (fabric_switch.cpp)
  void forward(PortId port, Packet& packet);
  /// It must wait: takes room for it, if there is any.
  void enqueue(PortId port, PortId out, Packet& packet);
  /// kNoPort: no way leads there.
  [[nodiscard]] PortId route(const Switch& from, SwitchId self, HostId destination, std::uint64_t flow) const noexcept;
  void send_from_switch(PortId port);
  /// A packet leaves the buffer of a switch.
  void release(Switch& at, const Packet& packet);
  void mark(Switch& at, Port& port, Packet& packet) noexcept;

  // ---- hosts (fabric_host.cpp)
  void send_from_host(PortId port);
  /// The engine's packet.
  [[nodiscard]] Packet packet_of(HostId host, const transport::TxDesc& desc);
  void arrive_at_host(HostId host, const Packet& packet);
  void receive(HostId host, const Packet& packet);
  void drain(HostId host, const Packet& packet);
  /// After whatever the engine was asked to do.
  void look_after(HostId host);
  void arm_timer(HostId host);
  void see_completions(HostId host);
  void on_completions(HostId host);
  void on_posts(HostId host);
  void on_host_timer(HostId host, Ps time);

  Topology topology_;
  FabricConfig config_;
  std::vector<bool> down_;  ///< by link
  Routes routes_;
  EventQueue events_;
  PacketBodies bodies_;
  PacketChunks chunks_;
  Numbered<Actor*> actors_;  ///< who is to be called, by the target of their events
  std::vector<Port> ports_;
  std::vector<Place> places_;  ///< by port
  std::vector<Switch> switches_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<EngineMemory> engine_memory_;  ///< by host
  Random random_;
  transport::TxDesc desc_;
  FabricCounters counters_;
  Ps now_ = 0;
  bool stopped_ = false;
  bool fetches_ = false;  ///< no cache holds all that events read
};

}  // namespace tensorwire::fabric
