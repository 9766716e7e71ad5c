// File descriptors handed from process to process of one host and user, over a socket with a path: abstract names would
// belong to a network namespace, and containers that share a host's memory or GPUs need not share that.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace tensorwire {

/// Where a rank receives the descriptors of the others. Owns the socket and its path, which is gone with it.
class FdInbox {
 public:
  /// @throws Error when the folder ($TMPDIR, else /tmp) takes no socket
  FdInbox();
  ~FdInbox();
  FdInbox(const FdInbox&) = delete;
  FdInbox& operator=(const FdInbox&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  struct Delivery {
    std::uint32_t sender = 0;
    UniqueFd fd;
  };
  /// The next delivery for `token`; others, and those of other users, are dropped.
  /// @throws Error when none comes before `deadline` (base/clock.hpp)
  [[nodiscard]] Delivery receive(std::uint64_t token, Ps deadline);

 private:
  std::string path_;
  UniqueFd listener_;
};

/// Puts `fd` into the inbox at `path`; does not wait for its owner to look. `token` is what the inbox's owner expects.
/// @throws Error: the path is not reachable from here (another mount namespace, another user)
void deliver_fd(const std::string& path, std::uint64_t token, std::uint32_t sender, int fd);

}  // namespace tensorwire
