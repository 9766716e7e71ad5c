#include "fabric/engine_memory.hpp"

#include <cstddef>

#include "transport/qp.hpp"

namespace tensorwire::fabric {

using namespace transport;

namespace {

constexpr std::size_t kLineBytes = 64;
/// What an engine has beside its Core: where its queue pairs are found.
constexpr std::size_t kBesideCore = 64;

void fetch_lines(const void* from, std::size_t bytes) noexcept {
  const auto* const begin = static_cast<const std::byte*>(from);
  for (std::size_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(begin + at);
}

}  // namespace

void EngineMemory::learn(const QueuePair& queue_pair, std::uint32_t key) {
  const auto& qp = static_cast<const Qp&>(queue_pair);
  core_ = &qp.core;
  path_ = &qp.core.scheduler.path(qp.path());
  region_ = qp.core.memory.find(key);
  if (places_.size() < qp.qpn()) places_.resize(qp.qpn());
  places_[qp.qpn() - 1] = {&qp, qp.congestion.get()};
}

void EngineMemory::fetch_shared() const noexcept {
  fetch_lines(core_, sizeof(Core) + kBesideCore);
  fetch_lines(path_, sizeof(Path));
  __builtin_prefetch(region_);
}

void EngineMemory::fetch(std::uint32_t qpn) const noexcept {
  if (qpn > places_.size()) return;
  const Place& place = places_[qpn - 1];
  fetch_lines(place.qp, sizeof(Qp));
  fetch_lines(place.congestion, sizeof(Congestion));
}

}  // namespace tensorwire::fabric
