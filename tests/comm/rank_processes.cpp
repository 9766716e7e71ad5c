#include "rank_processes.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::comm {

namespace {

std::uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw system_error("find a free port", errno);
  }
  close(fd);
  return ntohs(address.sin_port);
}

[[noreturn]] void be_rank(int rank, int ranks, std::uint16_t port, const RankMain& rank_main, int report_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("TENSORWIRE_SOFT_LIBRARY", TW_SOFT_LIBRARY, 1);
  int exit_code = 0;
  std::string text;
  try {
    bootstrap::GroupOptions options;
    options.rank = options.local_rank = rank;
    options.world_size = options.local_world_size = ranks;
    options.master_port = port;
    options.timeout = 20 * kSecond;
    const auto group = bootstrap::Group::join(options);
    text = rank_main(*group);
  } catch (const std::exception& error) {
    text = error.what();
    exit_code = 1;
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(report_fd, text.data() + done, text.size() - done);
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  _exit(exit_code);
}

struct Child {
  pid_t pid = 0;
  int fd = -1;
};

/// Reads to the end of the child's report, which comes with its end at the latest; then takes its status.
RankResult collect(const Child& child, Ps deadline) {
  RankResult result;
  std::array<char, 4096> buffer;
  for (;;) {
    const Ps left = deadline - monotonic_now();
    pollfd readable{child.fd, POLLIN, 0};
    if (left <= 0 || poll(&readable, 1, static_cast<int>(left / kMillisecond) + 1) == 0) {
      kill(child.pid, SIGKILL);
      deadline += kSecond;
      continue;
    }
    const ssize_t length = read(child.fd, buffer.data(), buffer.size());
    if (length <= 0) break;
    result.text.append(buffer.data(), static_cast<std::size_t>(length));
  }
  close(child.fd);
  int status = 0;
  waitpid(child.pid, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace

std::vector<RankResult> run_ranks(int ranks, const RankMain& rank_main, Ps bound) {
  const std::uint16_t port = free_port();
  const Ps start = monotonic_now();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    std::array<int, 2> report{};
    if (pipe(report.data()) != 0) throw system_error("make a pipe", errno);
    const pid_t pid = fork();
    if (pid == 0) {
      close(report[0]);
      be_rank(rank, ranks, port, rank_main, report[1]);
    }
    close(report[1]);
    children.push_back({pid, report[0]});
  }
  std::vector<RankResult> results;
  for (const Child& child : children) {
    results.push_back(collect(child, start + bound));
    results.back().lived = monotonic_now() - start;
  }
  return results;
}

CommOptions soft_options() {
  CommOptions options;
  options.device = "soft";
  return options;
}

}  // namespace tensorwire::comm
