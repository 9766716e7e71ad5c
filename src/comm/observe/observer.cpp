#include "comm/observe/observer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/atomic_file.hpp"
#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "comm/observe/exit_registry.hpp"
#include "comm/observe/trace_json.hpp"

namespace tensorwire::comm {

namespace {

constexpr std::int64_t kDefaultTraceEvents = 1 << 17;
constexpr std::int64_t kMostTraceEvents = 1 << 26;
constexpr Ps kDefaultMetricsInterval = 10 * kSecond;

}  // namespace

Observer::Observer(const Identity& who, const Link& link)
    : who_(who), link_(&link), device_(link), waited_(who.ranks), record_folder_(env::get("TENSORWIRE_FLIGHT_RECORD")) {
  if (const auto pattern = env::get("TENSORWIRE_TRACE")) {
    trace_path_ = output_name(*pattern, who);
    const auto events = env::get_int("TENSORWIRE_TRACE_EVENTS", kDefaultTraceEvents, 1, kMostTraceEvents);
    trace_.emplace(who, static_cast<std::size_t>(events));
    gpu_operations_kept_ = static_cast<std::size_t>(events);
  }
  if (const auto pattern = env::get("TENSORWIRE_METRICS")) {
    for (std::uint32_t peer = 0; peer < who.ranks; ++peer) {
      paths_.push_back(peer == who.rank ? std::string{} : link.describe(peer));
    }
    metrics_.emplace(output_name(*pattern, who),
                     env::get_duration("TENSORWIRE_METRICS_INTERVAL", kDefaultMetricsInterval),
                     [this] { return metrics_text(who_, snapshot()); });
  }
  if (trace_ || metrics_) exit_registry_add(*this);
}

Observer::~Observer() {
  leave_gpu();
  if (!trace_ && !metrics_) return;
  exit_registry_remove(*this);
  process_exits();
}

std::uint64_t Observer::begin(const OperationInfo& info, Ps now) noexcept {
  running_since_.store(now, std::memory_order_relaxed);
  if (trace_) trace_->begin_operation(info.number);
  return record_.begin(info, now);
}

void Observer::end(std::uint64_t ordinal, Ps now, Ps idle_since, std::uint32_t last_peer) noexcept {
  const Ps waited = idle_since != 0 ? now - idle_since : 0;
  const FlightRecord::Entry& entry = record_.end(ordinal, now, waited, last_peer);
  statistics_.add(entry.info.collective, entry.info.bytes, now - entry.begun);
  if (waited != 0) waited_[last_peer].add(static_cast<std::uint64_t>(waited));
  running_since_.store(0, std::memory_order_relaxed);
  if (straggler_.load(std::memory_order_relaxed) >= 0) straggles(-1);
  if (trace_) trace_->end_operation(entry.info, entry.begun, now, waited, last_peer, false);
}

void Observer::failed(const FailureNote& note) noexcept try {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  const Ps now = monotonic_now();
  if (trace_ && record_.begun() != 0 && record_.last().ended == 0) {
    const FlightRecord::Entry& entry = record_.last();
    trace_->end_operation(entry.info, entry.begun, now, 0, 0, true);
  }
  write_record(note, now);
  write_trace();
  if (metrics_) metrics_->write_now();
} catch (const std::exception& error) {
  log_warn(fmt::format("rank {}: the flight record is not written: {}", who_.rank, error.what()));
}

void Observer::watch_gpu(GpuSource source) {
  if (!trace_ && !record_folder_) return;
  gpu_ = std::make_unique<GpuWatcher>(std::move(source), gpu_operations_kept_,
                                      [this](const FailureNote& note) { gpu_failed(note); });
}

void Observer::leave_gpu() noexcept {
  if (gpu_ != nullptr) gpu_->stop();
}

void Observer::gpu_failed(const FailureNote& note) noexcept try {
  if (record_folder_) write_flight(note, monotonic_now());
} catch (const std::exception& error) {
  log_warn(fmt::format("rank {}: the flight record is not written: {}", who_.rank, error.what()));
}

void Observer::write_flight(const FailureNote& note, Ps now) {
  if (record_written_.exchange(true, std::memory_order_relaxed)) return;  // the first failure stays
  std::string text = record_.to_json_lines(who_, note, now);
  if (gpu_ != nullptr) text += flight_lines(gpu_->read(), FlightRecord::kOperations, now);
  const std::string path = write_flight_record(*record_folder_, who_, text);
  log_warn(fmt::format("rank {}: the last operations are in {}", who_.rank, path));
}

void Observer::write_record(const FailureNote& note, Ps now) {
  if (record_folder_) return write_flight(note, now);
  if (record_.begun() == 0) return;
  const FlightRecord::Entry& last = record_.last();
  log_warn(fmt::format(
      "rank {}: failed {} {}, {} after that began; set TENSORWIRE_FLIGHT_RECORD=FOLDER for the last {} operations of "
      "every rank",
      who_.rank, last.ended == 0 ? "in" : "after", to_string(last.info),
      format_duration((now - last.begun) / kMicrosecond * kMicrosecond), FlightRecord::kOperations));
}

void Observer::process_exits() noexcept {
  leave_gpu();
  if (!failed_.load(std::memory_order_relaxed)) write_trace();
  if (metrics_) metrics_->write_now();
}

void Observer::write_trace() noexcept {
  if (!trace_) return;
  try {
    const std::optional<GpuLog> gpu = gpu_ != nullptr ? std::optional{gpu_->read()} : std::nullopt;
    replace_file(trace_path_, trace_json(*trace_, gpu ? &*gpu : nullptr));
  } catch (const std::exception& error) {
    log_warn(fmt::format("rank {}: the trace is not written: {}", who_.rank, error.what()));
  }
}

MetricsSnapshot Observer::snapshot() const {
  MetricsSnapshot snapshot;
  snapshot.sizes = statistics_.read();
  for (std::uint32_t peer = 0; peer < who_.ranks; ++peer) {
    if (peer == who_.rank) continue;
    snapshot.peers.push_back({static_cast<int>(peer), paths_[peer], link_->stats(peer), waited_for(peer)});
  }
  snapshot.device = device_.read();
  if (const Ps since = running_since_.load(std::memory_order_relaxed); since != 0) {
    snapshot.running_since_ago = std::max<Ps>(monotonic_now() - since, 0);
  }
  if (const int peer = straggler_.load(std::memory_order_relaxed); peer >= 0) snapshot.straggler = peer;
  snapshot.failed = failed_.load(std::memory_order_relaxed);
  return snapshot;
}

}  // namespace tensorwire::comm
