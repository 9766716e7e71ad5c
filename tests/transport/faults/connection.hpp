// Two queue pairs and what travels between them. A connection lives several lives: after an error, or when one end was
// restarted, its ends are reset and brought up again with new PSNs, while packets of earlier lives are still under way.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "operation.hpp"
#include "packet.hpp"
#include "reference_qp.hpp"
#include "scenario.hpp"
#include "shared_queue.hpp"
#include "sim_host.hpp"

namespace tensorwire::transport::faults {

/// A memory window as its owner sees it.
struct Window {
  enum class Phase : std::uint8_t { kClosed, kBinding, kOpen, kClosing, kPeerCloses };

  WindowType type = WindowType::k2;
  std::uint32_t key = 0;
  std::uint32_t stale_key = 0;  ///< of an earlier binding
  Phase phase = Phase::kClosed;
  bool asked = false;  ///< the peer has posted the SEND that closes it
  WindowBinding binding;
  std::uint64_t requests = 0;

  /// Of this binding, or of another one.
  [[nodiscard]] bool has(std::uint32_t any_key) const noexcept { return key != 0 && any_key >> 8 == key >> 8; }
};
/// Work request ids of what an operation list does not have.
inline constexpr std::uint64_t kLocalRequests = 1U << 20;

struct End {
  End(SimHost& on, Hits& hits) : host(&on), ref(on.registrations, hits) {}

  SimHost* host;
  std::size_t host_number = 0;
  QueuePair* qp = nullptr;
  QpCaps caps;
  SimCq* send_cq = nullptr;
  SimCq* recv_cq = nullptr;
  std::uint32_t qpn = 0;
  wire::Gid gid;
  std::uint8_t traffic_class = 0;  ///< as configured; the engine adds the ECN bits
  /// What its acknowledgements say of its receives, whatever the engine says.
  enum class Credits : std::uint8_t { kNone, kHonest, kAnything } credits = Credits::kNone;
  PathId path = kDefaultPath;
  bool whole = false;          ///< what it sends is not cut
  SharedQueue* srq = nullptr;  ///< where its receives come from, if not its own queue
  Window window;
  ReferenceQp ref;
  ReferenceConfig wanted;  ///< for the bring-up under way
  std::uint8_t timeout_code = 0;
  std::uint32_t life = 0;
  Ps step_at = kNever;  ///< the next transition of the bring-up
};

/// What one end sends to the other.
struct Direction {
  Operations operations;
  Zone source;
  Zone target;
  Zone landing;                          ///< at the sender: what READs and atomics fetched
  Zone words;                            ///< at the peer: what atomics work on
  std::vector<std::uint64_t> originals;  ///< by operation: what an atomic found when it was executed
  std::uint32_t first_operation = 0;     ///< of this life
  std::uint32_t next_operation = 0;      ///< not yet posted
  std::uint32_t next_receive = 0;        ///< operation to look at for the next receive
  std::uint32_t arriving = 0;            ///< operation whose packet was executed last
  std::vector<std::pair<std::uint32_t, std::uint32_t>> psn_history;  ///< first PSN and count of each life

  [[nodiscard]] bool all_posted() const noexcept { return next_operation == operations.all.size(); }
};

class Connection {
 public:
  Connection(const Scenario& scenario, Random& random, Hits& hits, SimHost& a, SimHost& b);

  /// Creates the queue pairs, on the shared queues that `ends` name. `index` makes their numbers unique.
  void create(std::uint8_t index, std::uint32_t operations);

  // ---- the application; each says whether it did something
  bool post_sends(std::size_t side, Ps now);
  bool post_receives(std::size_t side);

  // ---- memory windows (connection_windows.cpp)
  /// From create() on each end has one; what is drawn for them comes from `random`.
  void use_windows(Random& random) noexcept { windows_random_ = &random; }
  bool post_local(std::size_t side, Ps now);

  // ---- lives
  /// A new life begins; both ends are to join it.
  void new_life();
  /// Resets one end and begins to bring it up into the newest life.
  void join(std::size_t side, Ps now);
  /// Takes the next transition of a bring-up.
  void step(std::size_t side, Ps now);
  void abort(std::size_t side, Ps now);
  // SQD (connection_drain.cpp); what is drawn for it comes from `random`
  void drain(std::size_t side, Ps now, Random& random);
  /// Something happened at `side`: goes on in a while if its queue is drained.
  void plan_resumption(std::size_t side, Ps now, Random& random);
  void resume(std::size_t side, Ps now, Random& random);
  [[nodiscard]] bool failed() const noexcept;
  [[nodiscard]] bool up() const noexcept;
  [[nodiscard]] bool finished() const noexcept;

  /// Where the bytes of the message that is arriving at `side` belong.
  [[nodiscard]] std::uint64_t place_of(std::size_t side, const Operation& op) const;
  /// A completion that the engine gave and the model agreed with: does it keep its promise about the bytes?
  void check_promise(std::size_t side, const Completion& completion);

  /// An acknowledgement leaves `side`: a peer that counts would say how many receives it has.
  void say_credits(std::size_t side, wire::Headers& headers);
  [[nodiscard]] Packet blank(std::size_t side, Truth truth) const;
  [[nodiscard]] std::string describe() const;

  /// Completions of receives and of sends may go to two queues.
  [[nodiscard]] static SimCq& queue_of(const End& end, const Completion& completion) noexcept;

  std::array<End, 2> ends;
  std::array<Direction, 2> directions;  ///< by the side that sends
  std::uint32_t life = 0;
  Ps recover_at = kNever;

 private:
  [[nodiscard]] bool post_send(std::size_t side, Ps now);
  [[nodiscard]] bool post_receive(std::size_t side);
  [[nodiscard]] SgeList cut(std::uint64_t address, std::uint32_t length, std::uint32_t key) {
    return faults::cut(random_, address, length, key);
  }
  [[nodiscard]] SgeList receive_list(const Direction& direction, const Operation& op);
  void send_list(std::size_t side, const Operation& op, SgeList& sges);
  void name_target(std::size_t side, const Operation& op, SendWr& wr);
  void make_zones(std::size_t side);
  void choose_fetch_sources(std::size_t side);
  void check_fetched(std::size_t side, const Completion& completion, const Operation& op);
  void renew_window(std::size_t side);
  [[nodiscard]] bool choose_local(std::size_t side, Window& window, SendWr& wr);
  [[nodiscard]] WindowBinding choose_binding(std::size_t side);
  void name_window(std::size_t side, const Operation& op, SendWr& wr);
  void check_window(std::size_t side, const Completion& completion);
  [[nodiscard]] std::uint32_t choose_psn(const Direction& direction);
  void create_qp(End& end);
  void replace_qp(End& end);
  void make_agreement(std::size_t side);

  const Scenario& scenario_;
  Random& random_;
  Random* windows_random_ = nullptr;
  Hits& hits_;
  MtuCode mtu_ = MtuCode::k256;
  std::uint8_t rd_atomic_ = 1;
  std::array<std::uint32_t, 2> psn_{};  ///< first of each direction in the newest life
  std::uint8_t index_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace tensorwire::transport::faults
