// A forked child for tests of what two processes do to each other. The child runs a function and ends with its result;
// the parent kills it when the test ends early. Nothing of the parent's GoogleTest state is used in the child.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <tuple>
#include <utility>

namespace tensorwire::softhca {

class ChildProcess {
 public:
  /// `body` returns the exit status.
  template <class Body>
  explicit ChildProcess(Body body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() {
    if (pid_ > 0) end();
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// The exit status, or -1 when a signal ended it or it did not end within `bound`.
  int wait(std::chrono::milliseconds bound = std::chrono::seconds{10}) {
    using namespace std::chrono_literals;
    for (auto left = bound; left > 0ms; left -= 1ms, std::this_thread::sleep_for(1ms)) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) != pid_) continue;
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    return -1;
  }

  /// SIGKILL, and waits until it is gone.
  void end() {
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_;
};

/// A pipe on which one process waits for another.
class Signal {
 public:
  Signal() {
    if (::pipe(fds_) != 0) std::abort();
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  void give() { std::ignore = ::write(fds_[1], "x", 1); }
  void take() {
    char byte;
    std::ignore = ::read(fds_[0], &byte, 1);
  }

 private:
  int fds_[2];
};

}  // namespace tensorwire::softhca
