// One seed: hosts, connections and a hostile network, run event by event in virtual time. After every event each engine
// is compared with the reference model: states, completions, events, deadline, what it has left to send, and the bytes
// around every write. The network carries packets; a run over another kind of wire overrides what is virtual.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adversary.hpp"
#include "arena.hpp"
#include "connection.hpp"
#include "datagrams.hpp"
#include "hits.hpp"
#include "trace.hpp"
#include "unreliable.hpp"

namespace tensorwire::transport::faults {

/// How often something happened that a seed may do.
struct Tally {
  const char* name;
  std::uint64_t count;
};

/// What is reused from seed to seed.
struct Workspace {
  virtual ~Workspace() = default;
  /// Everything that the seeds of a whole run must have done.
  [[nodiscard]] virtual std::vector<Tally> tally() const;

  std::array<Arena, Adversary::kMaxHosts> arenas;
  Hits hits;
  std::uint64_t requests = 0;
  std::uint64_t packets = 0;
};

class Run {
 public:
  Run(std::uint64_t seed, Workspace& workspace);
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// @throws Violation
  void go();
  /// What led to a violation.
  [[nodiscard]] std::string story() const;

 protected:
  Run(std::uint64_t seed, Workspace& workspace, Scenario (*choose)(Random&));

  enum class Event : std::uint8_t { kArrival, kTransmit, kTimer, kStep, kRecover, kUnblock, kNone };
  struct Next {
    Event event = Event::kNone;
    Ps time = kNever;
    std::size_t index = 0;
    std::size_t side = 0;
  };
  /// How what one end of a connection sends travels.
  struct Route {
    PathId path = kDefaultPath;
    bool whole = false;  ///< messages are not cut
  };
  struct Leaving {
    Packet packet;
    Ps departure = 0;
  };

  void make_later();
  void make_hosts();
  void make_connections();
  void make_datagrams();
  void make_unreliable();
  void make_slots();

  // ---- events (run.cpp)
  void set_up();
  /// From `side` to the other one.
  virtual Route route(const Connection& connection, std::size_t side);
  [[nodiscard]] Next next_event() const noexcept;
  [[nodiscard]] virtual Next next_arrival() const noexcept;
  void handle(const Next& next);
  virtual void arrive(const Next& next);
  /// The next transition of a bring-up.
  virtual void step(Connection& connection, std::size_t side);
  void recover(Connection& connection);
  bool post();
  void drain();
  void post_local();
  virtual void disturb();
  /// From now on nothing is harmed any more.
  virtual void calm();
  [[nodiscard]] bool finished() const noexcept;
  void end();

  // ---- packets (run_packets.cpp)
  void transmit(std::size_t host);
  /// Sends what one next_tx() gave; `leaving` has the labels.
  virtual void launch(std::size_t host, std::span<const TxDesc> descs, std::span<Leaving> leaving);
  void launch_packet(std::size_t host, const TxDesc& desc, Leaving& leaving);
  void lose_source(std::size_t host, const TxDesc& desc);
  void label_request(Packet& packet, const TxDesc& desc, Connection& connection, std::size_t side);
  void deliver(Packet packet);
  void deliver_parsed(const Packet& packet, const wire::Parsed& parsed);
  void place_packet(const Packet& packet, const wire::Parsed& parsed, const RxVerdict& verdict,
                    const Judgement& judgement, Connection& connection, std::size_t side);
  void count_window(const Judgement& judgement);
  /// What holds before a commit().
  struct Before {
    ReferenceQp::Memory memory;
    EngineCounters counters;
  };
  /// Before and after a commit() of `side`'s engine.
  Before expect_commit(const Label& label, const wire::Headers& headers, std::uint32_t bytes,
                       const Judgement& judgement, Connection& connection, std::size_t side);
  void committed(const Label& label, const wire::Headers& headers, std::uint32_t bytes, const PacketSource& source,
                 const Judgement& judgement, const Before& before, End& end);
  std::uint64_t expect_atomic(const Label& label, const wire::Headers& headers, Arena& arena, Direction& direction);
  void expect_original(const wire::Headers& headers, Connection& connection, std::size_t side);
  void expect_verdict(const RxVerdict& verdict, const Judgement& judgement) const;
  [[nodiscard]] static bool lies(const wire::Headers& headers, const Judgement& judgement, const Connection& connection,
                                 std::size_t side) noexcept;
  [[nodiscard]] static bool would_deceive(const Label& label, const wire::Headers& headers, const Judgement& judgement,
                                          const Connection& connection, std::size_t side) noexcept;

  // ---- datagrams (run_datagrams.cpp)
  [[nodiscard]] DatagramEnd* datagram_end(std::size_t host, std::uint32_t qpn) noexcept;
  bool post_datagrams(std::size_t index);
  void disturb_datagrams(Fault fault);
  void launch_datagram(std::size_t host, const TxDesc& desc, Leaving& leaving);
  void label_datagram(Packet& packet, const TxDesc& desc, DatagramEnd& end);
  void deliver_datagram(const Packet& packet, const wire::Parsed& parsed, DatagramEnd& end);
  void place_datagram(const Packet& packet, const wire::Parsed& parsed, const RxVerdict& verdict,
                      const Judgement& judgement, const PacketSource& source, DatagramEnd& end);
  void forge_datagram();

  // ---- unreliable connections (run_unreliable.cpp)
  [[nodiscard]] UnreliableEnd* unreliable_end(std::size_t host, std::uint32_t qpn) noexcept;
  bool post_unreliable(UnreliableEnd& end);
  void disturb_unreliable();
  void label_unreliable(Packet& packet, const TxDesc& desc, UnreliableEnd& end);
  void launch_unreliable(std::size_t host, const TxDesc& desc, Leaving& leaving);
  void deliver_unreliable(const Packet& packet, const wire::Parsed& parsed, UnreliableEnd& end);
  static void expect_counted(const EngineCounters& before, const EngineCounters& after, RxPlan plan);
  void follow_message(const Label& label, const wire::Headers& headers, std::uint32_t bytes, const Judgement& judgement,
                      UnreliableEnd& end);
  void forge_unreliable(UnreliableEnd& victim);

  [[nodiscard]] static Point drop_point(DropReason reason);
  [[nodiscard]] PacketSource source_of(const Packet& packet, bool datagram) const noexcept;

  // ---- congestion control (run_congestion.cpp)
  /// visit(queue pair, its reference) for all of a host that congestion control may hold back.
  template <typename Visit>
  void visit_paced(std::size_t host, Visit&& visit) const;
  [[nodiscard]] std::uint8_t ecn_bits() const noexcept { return scenario_.engine.dcqcn.enabled ? 2 : 0; }  // ECT(0)
  void note_pace(std::size_t host);
  void expect_pace(std::size_t host, std::span<const TxDesc> sent) const;
  void expect_congestion(const PacketSource& source, const wire::Headers& headers, const EngineCounters& before,
                         const SimHost& host, ReferenceCongestion& congestion);
  [[nodiscard]] static bool paced(const QueuePair& qp) noexcept;
  void settle_rates(std::size_t host, Ps deadline);

  // ---- after every call of a host's engine (run_settle.cpp)
  void settle(std::size_t host);
  static void discover_failure(End& end);
  void settle_end(Connection& connection, std::size_t side);
  static void settle_events(SimHost& host, std::vector<AsyncEvent>& expected, std::uint32_t qpn);
  void expect_overruns(std::size_t host);
  void fail_users(std::size_t host, const SimCq& cq);
  void settle_queue(std::size_t host, SimCq& cq);
  void settle_completion(std::size_t host, SimCq& cq, const Completion& got);
  static Completion take_expected(std::vector<Completion>& expected, const SimCq& cq, const End* end);
  void forget_lost(std::size_t host, const SimCq& cq);
  void settle_egress(std::size_t host);
  [[nodiscard]] bool window_open(std::size_t host, PathId path) const noexcept;
  void settle_path(std::size_t host, PathId path);
  /// The link lets nothing out on this path.
  [[nodiscard]] virtual bool blocked(std::size_t host, PathId path) const noexcept;

  // ---- forgeries (run_forgeries.cpp)
  void forge();
  [[nodiscard]] wire::Gid stranger(bool ipv4);
  void forge_request(Connection& connection, std::size_t side);
  void forge_answer(Connection& connection, std::size_t side);
  virtual void inject(Packet packet, const wire::Headers& headers, std::uint32_t bytes);

  struct Owner {
    Connection* connection = nullptr;
    std::size_t side = 0;
  };
  [[nodiscard]] Owner owner(std::size_t host, std::uint32_t qpn) noexcept;

  Workspace& workspace_;
  Hits& hits_;
  Random random_;
  Random later_;       ///< for what seeds did not have at first: their other choices stay as they were
  Random unreliable_;  ///< likewise, for unreliable connections and for whatever is drained beside them
  Random windows_;     ///< likewise, for memory windows
  Scenario scenario_;
  Adversary adversary_;
  std::deque<SimHost> hosts_;
  std::deque<SharedQueue> shared_queues_;
  std::array<SharedQueue*, Adversary::kMaxHosts> shared_{};  ///< by host; none on some
  std::deque<Connection> connections_;
  std::array<std::array<Owner, 8>, Adversary::kMaxHosts> owners_{};  ///< by host
  std::array<std::size_t, Adversary::kMaxHosts> owner_count_{};
  std::deque<DatagramEnd> datagram_ends_;
  std::deque<UnreliableEnd> unreliable_ends_;
  std::array<std::vector<UnansweredEnd*>, Adversary::kMaxHosts> unanswered_at_;  ///< both, by host
  std::vector<DatagramEnd::Target> datagram_targets_;
  std::vector<SimHost*> host_list_;
  /// The message that is being received without an answer, until its completion is seen.
  struct {
    std::array<std::byte, ReferenceUd::kHeaderBytes> network_header{};
    std::span<const std::byte> header;  ///< that, or nothing
    std::span<const std::byte> sent;
  } arrived_;
  std::array<bool, 16> paced_before_{};  ///< of the host that transmits, as visit_paced() has them
  std::array<PathId, Adversary::kMaxHosts> paths_{};
  std::array<Ps, Adversary::kMaxHosts> blocked_until_{};
  Trace trace_;
  Ps now_ = 0;
  bool calm_ = false;
  static constexpr std::uint32_t kLargestBatch = 16;
  std::uint32_t largest_batch_ = kLargestBatch;  ///< descriptors that are asked for at once
};

}  // namespace tensorwire::transport::faults
