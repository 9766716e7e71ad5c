#include "ranks.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bootstrap/rendezvous.hpp"

namespace tensorwire::bootstrap::testing {

namespace {

constexpr int kLowestPort = 12'000;
constexpr int kPortRange = 18'000;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool is_free(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const sockaddr_in address = loopback(port);
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return bound;
}

void write_line(int fd, const std::string& line) {
  const std::string text = line + "\n";
  if (write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(3);
}

}  // namespace

std::uint16_t free_ports() {
  static std::atomic<int> next{static_cast<int>(getpid()) * 32};
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const auto port = static_cast<std::uint16_t>(kLowestPort + next.fetch_add(kPortsTried) % kPortRange);
    bool all_free = true;
    for (int i = 0; i < kPortsTried; ++i) all_free = all_free && is_free(static_cast<std::uint16_t>(port + i));
    if (all_free) return port;
  }
  throw std::runtime_error{"no free ports"};
}

GroupOptions options_of(int rank, int world_size, std::uint16_t port, Ps timeout) {
  GroupOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.local_rank = rank;
  options.local_world_size = world_size;
  options.master_port = port;
  options.timeout = timeout;
  return options;
}

std::vector<std::string> run_threads(const std::vector<GroupOptions>& ranks, const std::function<void(Group&)>& body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const auto group = Group::join(ranks[i]);
        body(*group);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> run_world(int world_size, const std::function<void(Group&)>& body) {
  const std::uint16_t port = free_ports();
  std::vector<GroupOptions> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.push_back(options_of(rank, world_size, port));
  return run_threads(ranks, body);
}

RankProcess::RankProcess(const GroupOptions& options, const std::function<std::string(Group&)>& body) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error{"pipe"};
  pid_ = fork();
  if (pid_ == 0) {
    std::string words;
    try {
      const auto group = Group::join(options);
      write_line(ends[1], "joined");
      words = body(*group);
    } catch (const std::exception& error) {
      words = error.what();
    }
    write_line(ends[1], words);
    _exit(0);
  }
  close(ends[1]);
  pipe_ = ends[0];
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::exchange(other.pipe_, -1)) {}

RankProcess::~RankProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(pipe_);
}

void RankProcess::wait_joined() const {
  std::string line;
  char c = 0;
  while (read(pipe_, &c, 1) == 1 && c != '\n') line += c;
  if (line != "joined") throw std::runtime_error{"rank did not join: " + line};
}

void RankProcess::kill() const { ::kill(pid_, SIGKILL); }

void RankProcess::resume() const { ::kill(pid_, SIGCONT); }

std::string RankProcess::last_words() const {
  std::string words;
  char c = 0;
  while (read(pipe_, &c, 1) == 1) words += c;
  return words;
}

std::string await_failure(const Group& group) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
  };
  while (!group.failed() && elapsed() < 5000) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  const auto failed = group.failed_rank();
  if (!failed) return "no failure";
  return fmt::format("rank {} after {} ms: {}", failed->rank, elapsed(), failed->reason);
}

int connect_stranger(std::uint16_t port) {
  const sockaddr_in address = loopback(port);
  for (int attempt = 0; attempt < 2000; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  throw std::runtime_error{"nobody listens"};
}

}  // namespace tensorwire::bootstrap::testing
