#include "chaos/usage.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::chaos {

namespace {

std::uint64_t entries_of(const char* folder) {
  std::uint64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

/// A thread that was joined is listed for a moment longer, until the kernel is done with it.
std::uint64_t threads_that_stay() {
  const Ps until = monotonic_now() + 200 * kMillisecond;
  std::uint64_t count = entries_of("/proc/self/task");
  for (; count > 1 && monotonic_now() < until; count = entries_of("/proc/self/task")) nap(kMillisecond);
  return count;
}

}  // namespace

Usage usage() {
  Usage now;
  now.descriptors = entries_of("/proc/self/fd") - 1;  // but for the one that looks
  now.threads = threads_that_stay();
  malloc_trim(0);
  now.heap = mallinfo2().uordblks;
  std::ifstream statm{"/proc/self/statm"};
  std::uint64_t all = 0, resident = 0;
  statm >> all >> resident;
  now.resident = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return now;
}

std::string to_text(const Usage& usage) {
  return fmt::format("{} {} {} {}", usage.descriptors, usage.threads, usage.heap, usage.resident);
}

Usage usage_of(const std::string& text) {
  unsigned long long descriptors = 0, threads = 0, heap = 0, resident = 0;
  if (std::sscanf(text.c_str(), "%llu %llu %llu %llu", &descriptors, &threads, &heap, &resident) != 4) {
    throw Error{"read what a rank says it holds", "\"" + text + "\""};
  }
  return {descriptors, threads, heap, resident};
}

}  // namespace tensorwire::chaos
