// The ranks of one job, in touch over TCP: rendezvous, exchange of small byte strings, and news of a death. Rank 0
// serves, the others connect; the connections stay open, so a rank that dies is noticed by its reset within
// milliseconds. A Group owns one watcher thread. All ranks make the same collective calls in the same order.
// A roll call asks every rank what it is doing: the watcher threads answer it, whatever the application does meanwhile.
// Where rank 0 is silent the others ask and tell one another directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "bootstrap/frame.hpp"
#include "bootstrap/options.hpp"

namespace tensorwire::bootstrap {

/// The longest payload of one rank in one collective call, and of all ranks together.
inline constexpr std::size_t kMaxPayload = 16U << 20;
inline constexpr std::size_t kMaxGathered = 1U << 30;

/// What kind of end it was.
enum class FailureKind : std::uint8_t {
  kDied = 1,   ///< its connection ended without a goodbye
  kGaveUp,     ///< its own abort()
  kSilent,     ///< another rank waited for it for too long, or cannot reach it
  kDisagrees,  ///< it made another call than the others
  kExcluded,   ///< the others go on without it
};

/// Why the group is broken. The first cause is kept.
struct FailedRank {
  int rank = 0;
  std::string host;
  std::string reason;  ///< "connection reset (the process died)", or what abort() or accuse() was given
  FailureKind kind = FailureKind::kDied;
  int told_by = -1;  ///< the rank that accused it; -1: nobody had to
};

/// What a rank answered to the last roll call.
struct Report {
  Bytes body;       ///< empty: it has nothing to tell about this topic
  Ps received = 0;  ///< 0: it never answered
};
/// Makes this rank's answer. Called by the watcher thread: it may neither wait nor call the group.
using Reporter = std::function<Bytes()>;

class Hub;

class Group {
 public:
  /// Returns when all ranks are in.
  /// @throws Error: missing ranks by number, a world size that disagrees, a rank given twice, a wrong secret, an
  /// address that does not resolve or cannot be bound; within options.timeout.
  [[nodiscard]] static std::unique_ptr<Group> join(const GroupOptions& options);

  /// Leaves if leave() was not called; aborts when an exception is what destroys it.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world_size() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;
  /// The host name of a rank as it gave it at join.
  [[nodiscard]] const std::string& host(int rank) const;
  /// Where this rank reached another one when they met, as "10.0.0.7"; empty where it does not know. Rank 0 and the
  /// others know of each other; of the rest all but rank 0 know what that saw.
  [[nodiscard]] std::string address(int rank) const;
  /// "rank 3 on gpu07"
  [[nodiscard]] std::string name(int rank) const;

  /// Every rank gives bytes (lengths may differ) and gets all ranks' bytes, by rank.
  /// @throws Error: a rank failed or left (named), ranks that did not come within the bound (named), too long.
  [[nodiscard]] std::vector<Bytes> all_gather(std::span<const std::byte> mine);
  /// Everyone gets what `root` gave.
  [[nodiscard]] Bytes broadcast(std::span<const std::byte> mine, int root = 0);
  /// @param bound  wall-clock limit; 0: options.timeout
  void barrier(Ps bound = 0);

  /// True once any rank has died or aborted. One relaxed atomic load: for wait loops.
  [[nodiscard]] bool failed() const noexcept;
  /// Who and why; takes a lock once failed() is true.
  [[nodiscard]] std::optional<FailedRank> failed_rank() const;
  /// Throws the Error of the failed rank if there is one.
  void throw_if_failed(std::string_view during) const;

  /// Tells every rank that this one gives up; they see it as failed_rank(). Idempotent, never throws.
  void abort(std::string_view reason) noexcept;

  /// As abort(), but another rank is to blame: it is failed_rank() for everyone, itself included.
  void accuse(int rank, FailureKind kind, std::string_view reason) noexcept;

  /// What this rank answers to roll calls of a topic from now on; an empty one: nothing. When it returns, the one
  /// before is not being called any more.
  void set_reporter(std::uint16_t topic, Reporter reporter);
  /// Asks all ranks; returns at once. All ranks get all answers. Never throws.
  void roll_call(std::uint16_t topic) noexcept;
  /// The last answer of each other rank, by rank.
  [[nodiscard]] std::vector<Report> reports(std::uint16_t topic) const;

  /// Says goodbye: what follows on this connection is no death. Does not wait for the others. Idempotent.
  void leave() noexcept;

 private:
  Group(const GroupOptions& options, std::unique_ptr<Hub> hub) noexcept;

  int local_rank_;
  int exceptions_at_birth_;
  std::unique_ptr<Hub> hub_;
};

}  // namespace tensorwire::bootstrap
