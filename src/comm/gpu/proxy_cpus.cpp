// Where a proxy may run.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/env.hpp"
#include "base/error.hpp"
#include "comm/gpu/proxy.hpp"

namespace tensorwire::comm {

namespace {

/// "0-3,8" as the kernel writes lists of processors. Nothing: it is no such list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{}) return std::nullopt;
    int last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc{} || first < 0 || last < first || last >= CPU_SETSIZE) return std::nullopt;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr;
    if (at == end) break;
    if (*at++ != ',') return std::nullopt;
  }
  return cpus;
}

void keep_usable(std::vector<int>& cpus) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (::sched_getaffinity(0, sizeof mine, &mine) != 0) return;
  std::erase_if(cpus, [&](int cpu) { return !CPU_ISSET(static_cast<std::size_t>(cpu), &mine); });
}

}  // namespace

std::vector<int> proxy_cpus(const std::string& pci_address) {
  if (const auto asked = env::get("TENSORWIRE_PROXY_CPUS")) {
    const std::string what = fmt::format("read TENSORWIRE_PROXY_CPUS={}", *asked);
    auto cpus = parse_cpu_list(*asked);
    if (!cpus) throw Error{what, "it is no list of processors", "Write one as 2-5,8, or unset it"};
    keep_usable(*cpus);
    if (cpus->empty()) throw Error{what, "this process may run on none of them", "Name others, or unset it"};
    return *cpus;
  }
  std::ifstream file{"/sys/bus/pci/devices/" + pci_address + "/local_cpulist"};
  std::string text;
  if (!std::getline(file, text)) return {};
  auto cpus = parse_cpu_list(text);
  if (!cpus) return {};
  keep_usable(*cpus);
  return *cpus;
}

}  // namespace tensorwire::comm
