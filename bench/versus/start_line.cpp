#include "start_line.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>

namespace tensorwire::versus {

namespace {

constexpr auto kBound = std::chrono::seconds{60};
constexpr std::uint32_t kLooksPerClock = 1024;

}  // namespace

StartLine::StartLine(const std::string& file, std::uint32_t ranks) : ranks_(ranks) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw std::system_error{errno, std::generic_category(), "open " + file};
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error{error, std::generic_category(), "map " + file};
  shared_ = static_cast<Shared*>(memory);
}

StartLine::~StartLine() { munmap(shared_, sizeof(Shared)); }

void StartLine::wait() {
  const std::uint32_t round = shared_->round.load(std::memory_order_acquire);
  if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    shared_->arrived.store(0, std::memory_order_relaxed);
    shared_->round.store(round + 1, std::memory_order_release);
    return;
  }
  auto until = std::chrono::steady_clock::time_point::max();
  for (std::uint32_t looks = 1; shared_->round.load(std::memory_order_acquire) == round; ++looks) {
    sched_yield();
    if (looks % kLooksPerClock != 0) continue;
    const auto now = std::chrono::steady_clock::now();
    if (until == std::chrono::steady_clock::time_point::max()) until = now + kBound;
    if (now > until) throw std::runtime_error{"a rank did not come to the start within a minute"};
  }
}

}  // namespace tensorwire::versus
