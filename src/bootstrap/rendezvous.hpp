// How the ranks find one another. Rank 0 listens at the master address and port. Where another program holds that port
// (a torchrun agent keeps its own store there) rank 0 takes the first free one of the next kPortsTried - 1, and the
// others look there too: the server speaks first, so a client knows a Tensorwire server of its own job from anything
// else without sending a byte. A listener of its own is closed as soon as all ranks are in.
//
// A connection that sends garbage or nothing is dropped after kHelloBound and disturbs nobody.
#pragma once

#include <string>
#include <vector>

#include "base/time.hpp"
#include "bootstrap/frame.hpp"
#include "bootstrap/options.hpp"
#include "bootstrap/socket.hpp"

namespace tensorwire::bootstrap {

inline constexpr int kPortsTried = 8;
inline constexpr Ps kGreetingBound = 500 * kMillisecond;
inline constexpr Ps kHelloBound = 5 * kSecond;
inline constexpr std::size_t kMaxStrangers = 256;

/// An admitted connection: on rank 0 one to each other rank, elsewhere the one to rank 0.
struct Link {
  int rank = 0;
  Socket socket;
  FrameReader reader;
};

struct Joined {
  std::vector<std::string> hosts;  ///< by rank
  std::vector<Link> links;
  // Direct lines (hub_lines.cpp); without them on rank 0, and where there are but two ranks.
  Socket door;                   ///< where this rank takes them
  std::vector<Address> doors;    ///< of all ranks; the first is none
  std::string line_secret = {};  ///< of this group
};

/// This machine's name as the others will print it.
[[nodiscard]] std::string own_host_name();

/// Hash of the launcher's job identity; equal on all ranks of a job.
[[nodiscard]] std::uint64_t job_hash(const std::string& job) noexcept;

/// Rank 0's side. @throws Error as Group::join does.
[[nodiscard]] Joined serve_rendezvous(const GroupOptions& options);

/// Every other rank's side. @throws Error as Group::join does.
[[nodiscard]] Joined enter_rendezvous(const GroupOptions& options);

}  // namespace tensorwire::bootstrap
