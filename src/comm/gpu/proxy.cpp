#include "comm/gpu/proxy.hpp"

#include <fmt/format.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>

#include "base/atomic_file.hpp"
#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace tensorwire::comm {

namespace {

constexpr std::size_t kTraces = cuda::kDoorbells;

void stay_on(const std::vector<int>& cpus) noexcept {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof set, &set));  // it may have lost them meanwhile
}

std::uint64_t now_ns() noexcept { return static_cast<std::uint64_t>(monotonic_now() / kNanosecond); }

void nap() noexcept {
  const timespec length{0, static_cast<long>(Proxy::kNaps / kNanosecond)};
  ::nanosleep(&length, nullptr);
}

std::uint64_t median(std::vector<std::uint64_t>& of) noexcept {
  std::ranges::nth_element(of, of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2));
  return of[of.size() / 2];
}

Call call_of(const cuda::Round& round) noexcept {
  Call call;
  call.collective = round.collective;
  call.in = round.in;
  call.out = round.out;
  call.count = round.count;
  call.dtype = round.dtype;
  call.root = round.root;
  return call;
}

}  // namespace

Proxy::Proxy(cuda::Relay& relay, std::uint32_t rail, Communicator& communicator, Identity who, std::vector<int> cpus)
    : relay_(relay),
      rail_(rail),
      communicator_(communicator),
      who_(std::move(who)),
      cpus_(std::move(cpus)),
      traces_(kTraces),
      thread_([this] { serve(); }) {
  ::pthread_setname_np(thread_.native_handle(), "tw-proxy");
}

Proxy::~Proxy() {
  stopping_ = true;
  relay_.fail(-1);
  thread_.join();
  log_info(describe());
  write_timeline();
}

void Proxy::write_timeline() const {
  const auto pattern = env::get("TENSORWIRE_TRACE");
  const std::vector<Hops> all = rounds();
  const auto offset = clock_offset(all);
  if (!pattern || !offset) return;
  const std::size_t dot = std::min(pattern->rfind('.'), pattern->size());
  const std::string name =
      fmt::format("{}.gpu{}", pattern->substr(0, dot), dot < pattern->size() ? pattern->substr(dot) : "");
  try {
    replace_file(output_name(name, who_), timeline_json(who_, rail_, all, *offset));
  } catch (const Error& error) {
    log_warn(error.what());
  }
}

std::string Proxy::describe() const {
  std::vector<std::uint64_t> fills, waits, carries, takes;
  for (const Hops& round : rounds()) {
    fills.push_back(round.rung_ns - round.begun_ns);
    waits.push_back(round.released_ns - round.rung_ns);
    carries.push_back(round.carried_ns - round.seen_ns);
    takes.push_back(round.taken_ns - round.released_ns);
  }
  if (fills.empty()) return fmt::format("proxy of rail {}: no rounds", rail_);
  return fmt::format(
      "proxy of rail {}: {} operations; median of the last {} rounds: the GPU fills {} ns, waits {} ns ({} ns of "
      "which the host carries), takes {} ns",
      rail_, operations(), fills.size(), median(fills), median(waits), median(carries), median(takes));
}

void Proxy::serve() noexcept {
  stay_on(cpus_);
  Ps idle_since = monotonic_now();
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (const auto round = relay_.next(rail_)) {
      if (!carry(*round)) return;
      idle_since = monotonic_now();
    } else if (monotonic_now() - idle_since < kSpins) {
      _mm_pause();
    } else {
      nap();
    }
  }
}

bool Proxy::carry(const cuda::Round& round) noexcept {
  const std::uint64_t seen = now_ns();
  if (!communicator_.run(call_of(round))) {
    const CommError* error = communicator_.error();
    end_with(error != nullptr ? *error
                              : CommError{CommErrorKind::kInternal, -1, "an operation failed without a reason"});
    return false;
  }
  const collective::RunnerCounters counters = communicator_.counters();
  written_.store(counters.bytes_written, std::memory_order_relaxed);
  copied_.store(counters.bytes_copied, std::memory_order_relaxed);
  const std::uint64_t carried = now_ns();
  relay_.finish(rail_, round);
  if (round.begins) {
    operations_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(round.bytes, std::memory_order_relaxed);
  }
  const std::scoped_lock lock{mutex_};
  Hops& hops = traces_[round.number % kTraces];
  hops.number = round.number;
  hops.bytes = round.bytes;
  hops.seen_ns = seen;
  hops.carried_ns = carried;
  return true;
}

void Proxy::end_with(const CommError& error) noexcept {
  {
    const std::scoped_lock lock{mutex_};
    if (!failure_) failure_ = error;
  }
  relay_.fail(error.peer);
}

void Proxy::abort(const std::string& reason) noexcept {
  communicator_.abort(reason);
  relay_.fail(-1);
}

std::optional<CommError> Proxy::failure() const {
  const std::scoped_lock lock{mutex_};
  return failure_;
}

std::vector<Hops> Proxy::rounds() const {
  const std::scoped_lock lock{mutex_};
  std::vector<Hops> all;
  for (Hops round : traces_) {
    if (round.number == 0) continue;
    const cuda::RelayTimes gpu = relay_.times(rail_, round.number);
    round.begun_ns = gpu.begun_ns;
    round.rung_ns = gpu.rung_ns;
    round.released_ns = gpu.released_ns;
    round.taken_ns = gpu.taken_ns;
    const bool is_whole =
        gpu.begun_ns <= gpu.rung_ns && gpu.rung_ns <= gpu.released_ns && gpu.released_ns <= gpu.taken_ns;
    if (is_whole) all.push_back(round);  // else it is being written over
  }
  std::ranges::sort(all, {}, &Hops::number);
  return all;
}

}  // namespace tensorwire::comm
