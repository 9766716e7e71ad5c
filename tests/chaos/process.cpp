#include "chaos/process.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::chaos {

namespace {

constexpr Ps kFinishBound = 20 * kSecond;  // a sanitizer takes its time

}  // namespace

void Process::start() {
  if (runs()) return;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw system_error("socketpair", errno);
  const pid_t pid = ::fork();
  if (pid < 0) throw system_error("start a rank", errno);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(ends[1], STDIN_FILENO);
    ::dup2(log_, STDOUT_FILENO);
    ::dup2(log_, STDERR_FILENO);
    // What malloc keeps for each thread counts as given out: for hundreds of rounds the heap would seem to grow.
    ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    ::execl("/proc/self/exe", "chaos", "--rank", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  socket_ = ends[0];
  pid_ = pid;
  stopped_ = false;
  died_of_ = 0;
  first_.reset();
}

void Process::end() noexcept {
  if (!runs()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(std::exchange(socket_, -1));
  pid_ = 0;
}

std::string Process::finish() {
  if (!runs()) return "";
  ::close(std::exchange(socket_, -1));
  int status = 0;
  for (const Ps until = monotonic_now() + kFinishBound; ::waitpid(pid_, &status, WNOHANG) != pid_;) {
    if (monotonic_now() < until) {
      nap(2 * kMillisecond);
      continue;
    }
    end();
    return "it does not end";
  }
  pid_ = 0;
  return status == 0 ? "" : fmt::format("it ended with wait status {:#x}; its last words are in the log", status);
}

void Process::look() noexcept {
  int status = 0;
  while (runs() && ::waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED) == pid_) {
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      stopped_ = WIFSTOPPED(status);
      continue;
    }
    died_of_ = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    ::close(std::exchange(socket_, -1));
    pid_ = 0;
  }
}

void Process::resume() noexcept {
  if (runs()) ::kill(pid_, SIGCONT);
}

std::string Process::leak(const Usage& now) {
  if (!first_) first_ = now;
  if (now.descriptors == first_->descriptors && now.threads == first_->threads) return "";
  return fmt::format("{} descriptors instead of {}, {} threads instead of {}", now.descriptors, first_->descriptors,
                     now.threads, first_->threads);
}

}  // namespace tensorwire::chaos
