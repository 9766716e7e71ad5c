#include "cli/bench/local_launch.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::cli {

namespace {

constexpr Ps kGraceAfterFailure = 8 * kSecond;

/// A TCP port that was free a moment ago; rank 0 listens on it at once.
int free_tcp_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw system_error("choose a rendezvous port", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool ok = bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const int error = errno;
  close(fd);
  if (!ok) throw system_error("choose a rendezvous port", error);
  return ntohs(address.sin_port);
}

void set_rank_environment(int rank, int ranks, int port) {
  const auto set = [](const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); };
  set("RANK", rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", ranks);
  set("LOCAL_WORLD_SIZE", ranks);
  set("MASTER_PORT", port);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
}

[[noreturn]] void become_rank(int rank, int ranks, int port, pid_t parent, char* const* argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before prctl
  set_rank_environment(rank, ranks, port);
  if (rank != 0) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDOUT_FILENO);
  }
  execv("/proc/self/exe", argv);
  _exit(127);
}

int exit_status(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/// Reaps until every rank ended; after the first failure the rest have kGraceAfterFailure.
int reap(std::vector<pid_t> running) {
  int first_failure = 0;
  Ps kill_at = kNever;
  while (!running.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0 && std::erase(running, pid) > 0) {
      if (first_failure == 0 && exit_status(status) != 0) {
        first_failure = exit_status(status);
        kill_at = monotonic_now() + kGraceAfterFailure;
      }
      continue;
    }
    if (monotonic_now() > kill_at) {
      for (const pid_t rank : running) kill(rank, SIGKILL);
    }
    nap(10 * kMillisecond);
  }
  return first_failure;
}

}  // namespace

int run_local_ranks(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"tensorwire"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const int port = free_tcp_port();
  const pid_t parent = getpid();
  std::vector<pid_t> running;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) become_rank(rank, ranks, port, parent, argv.data());
    if (pid < 0) {
      const int error = errno;
      for (const pid_t started : running) kill(started, SIGKILL);
      throw system_error("start rank " + std::to_string(rank) + " of " + std::to_string(ranks), error);
    }
    running.push_back(pid);
  }
  return reap(std::move(running));
}

}  // namespace tensorwire::cli
