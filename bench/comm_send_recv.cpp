// Messages between two ranks, each a process: through slots and straight into the receiver's buffer, side by side. Rank
// 0 sends, rank 1 sends back; half of that is a time. Ways alternate within each round, so that a disturbance meets
// both; medians over rounds.
//
//   comm_send_recv [rounds]     (TENSORWIRE_SOFT_LIBRARY where the drop-in is not found by itself)
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"

namespace tensorwire::comm {
namespace {

constexpr std::array<std::size_t, 6> kSizes{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
constexpr std::size_t kBytesPerTime = 16 << 20;  ///< small messages are timed several at a time

std::unique_ptr<Communicator> make(bootstrap::Group& group, PathChoice path, std::uint64_t through_slots) {
  CommOptions options;
  options.device = "soft";
  options.path = path;
  options.thresholds.slot_bytes = through_slots;
  return Communicator::create(group, options);
}

void move(Communicator& comm, bool sends, std::vector<float>& data) {
  const Transfer transfer{sends, 1 - comm.rank(), data.data(), data.size()};
  if (!comm.run(std::span{&transfer, 1})) throw Error{"move a message", comm.error()->line};
}

double one_way_us(Communicator& comm, std::vector<float>& data) {
  const auto times = std::max<std::size_t>(1, kBytesPerTime / (data.size() * sizeof(float)));
  const Ps begun = monotonic_now();
  for (std::size_t i = 0; i < times; ++i) {
    for (const int sender : {0, 1}) move(comm, comm.rank() == sender, data);
  }
  return static_cast<double>(monotonic_now() - begun) / kMicrosecond / 2 / static_cast<double>(times);
}

double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

void compare(bootstrap::Group& group, PathChoice path, const char* name, int rounds) {
  const auto slots = make(group, path, collective::Thresholds::kAlways - 1);
  const auto windows = make(group, path, 1);
  for (const std::size_t bytes : kSizes) {
    std::vector<float> data(bytes / sizeof(float), 1.0F);
    std::vector<double> by_slots, by_windows, ratios;
    for (int round = 0; round <= rounds; ++round) {
      const double through_slots = one_way_us(*slots, data);
      const double into_window = one_way_us(*windows, data);
      if (round == 0) continue;  // registrations, pages
      by_slots.push_back(through_slots);
      by_windows.push_back(into_window);
      ratios.push_back(into_window / through_slots);
    }
    if (group.rank() != 0) continue;
    fmt::print("{:>8} {:>10} {:>10.1f} {:>10.1f} {:>8.2f}\n", name, bytes, median(by_slots), median(by_windows),
               median(ratios));
  }
}

int be_rank(int rank, std::uint16_t port, int rounds) try {
  bootstrap::GroupOptions options;
  options.rank = options.local_rank = rank;
  options.world_size = options.local_world_size = 2;
  options.master_port = port;
  options.timeout = 20 * kSecond;
  const auto group = bootstrap::Group::join(options);
  if (rank == 0) {
    fmt::print("{:>8} {:>10} {:>10} {:>10} {:>8}\n", "path", "bytes", "slots us", "window us", "ratio");
  }
  compare(*group, PathChoice::kAuto, "local", rounds);
  compare(*group, PathChoice::kPackets, "packets", rounds);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "comm_send_recv: rank {}: {}\n", rank, error.what());
  return 1;
}

}  // namespace
}  // namespace tensorwire::comm

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  const auto port = static_cast<std::uint16_t>(20000 + getpid() % 20000);
  const pid_t child = fork();
  const int failed = tensorwire::comm::be_rank(child == 0 ? 1 : 0, port, rounds);
  if (child == 0) _exit(failed);
  int status = 0;
  waitpid(child, &status, 0);
  return failed != 0 || status != 0 ? 1 : 0;
}
