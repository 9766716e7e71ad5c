// A network namespace of a test's own, made in a forked child: what it does to interfaces there nobody else sees.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "softhca/child_process.hpp"

namespace tensorwire::softhca::testing {

inline constexpr int kPassed = 0;
inline constexpr int kFailed = 1;
inline constexpr int kNoNamespace = 77;

/// Runs a command of the shell; true when it succeeded.
[[nodiscard]] inline bool shell(const std::string& command) { return std::system(command.c_str()) == 0; }

/// A command without which the rest of the child's test makes no sense.
inline void need(const std::string& command) {
  if (shell(command)) return;
  std::fprintf(stderr, "failed: %s\n", command.c_str());
  ::_exit(kFailed);
}

[[nodiscard]] inline bool write_file(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return written;
}

/// Moves this process, which has one thread, into a network of its own with the loopback interface up. Who is not root
/// becomes it in a user namespace. False where that is forbidden, or where ip(8) is missing.
[[nodiscard]] inline bool enter_own_network() {
  if (::unshare(CLONE_NEWNET) != 0) {
    const std::string uid = std::to_string(::geteuid());
    const std::string gid = std::to_string(::getegid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", "0 " + uid + " 1") ||
        !write_file("/proc/self/gid_map", "0 " + gid + " 1")) {
      return false;
    }
  }
  return shell("ip link set lo up");
}

/// The result of `body` (kPassed, kFailed) run in a network of its own, or kNoNamespace.
template <class Body>
[[nodiscard]] int in_own_network(Body body, std::chrono::seconds bound = std::chrono::seconds{10}) {
  ChildProcess child([&] { return enter_own_network() ? body() : kNoNamespace; });
  return child.wait(bound);
}

/// In the child, where GoogleTest does not reach: says what was wrong and remembers it.
class Checks {
 public:
  void that(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "not so: %s\n", what);
    result_ = kFailed;
  }
  [[nodiscard]] int result() const noexcept { return result_; }

 private:
  int result_ = kPassed;
};

}  // namespace tensorwire::softhca::testing
