#include "comm/gpu/proxy.hpp"

#include <fmt/format.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>

#include "base/clock.hpp"
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

Proxy::Proxy(cuda::Relay& relay, std::uint32_t rail, Communicator& communicator, std::vector<int> cpus)
    : relay_(relay),
      rail_(rail),
      communicator_(communicator),
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
}

std::string Proxy::describe() const {
  std::vector<std::uint64_t> fills, waits, carries, takes;
  for (const RoundTrace& round : rounds()) {
    const cuda::RelayTimes gpu = relay_.times(rail_, round.number);
    if (gpu.taken_ns < gpu.begun_ns) continue;  // it is being written over
    fills.push_back(gpu.rung_ns - gpu.begun_ns);
    waits.push_back(gpu.released_ns - gpu.rung_ns);
    carries.push_back(round.carried_ns - round.seen_ns);
    takes.push_back(gpu.taken_ns - gpu.released_ns);
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
  relay_.finish(rail_, round);
  const std::uint64_t carried = now_ns();
  if (round.begins) {
    operations_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(round.bytes, std::memory_order_relaxed);
  }
  const std::scoped_lock lock{mutex_};
  traces_[round.number % kTraces] = {round.number, seen, carried};
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

std::vector<RoundTrace> Proxy::rounds() const {
  const std::scoped_lock lock{mutex_};
  std::vector<RoundTrace> all;
  std::ranges::copy_if(traces_, std::back_inserter(all), [](const RoundTrace& trace) { return trace.number != 0; });
  std::ranges::sort(all, {}, &RoundTrace::number);
  return all;
}

}  // namespace tensorwire::comm
