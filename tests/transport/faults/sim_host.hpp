// A simulated host: an engine with its memory, its completion queues and its port, and beside each what the model says.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "../world.hpp"
#include "arena.hpp"
#include "base/random.hpp"
#include "reference_qp.hpp"
#include "scenario.hpp"
#include "transport/engine.hpp"

namespace tensorwire::transport::faults {

/// Registered memory, and the keys under which it must not be reached.
struct Zone {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint32_t rights = 0;
  std::uint32_t key = 0;
  std::uint32_t other_domain = 0;
  std::uint32_t no_right = 0;
  std::uint32_t deregistered = 0;

  [[nodiscard]] std::uint64_t end() const noexcept { return address + size; }
};

/// What the engine raised and nobody has looked at yet.
struct SimEvents final : EventListener {
  std::vector<std::pair<AsyncEvent, std::uint32_t>> all;  ///< with the QPN
  std::uint32_t limit_reached = 0;                        ///< of the shared receive queue
  void on_async_event(AsyncEvent event, QueuePair& qp) noexcept override { all.emplace_back(event, qp.qpn()); }
  void on_srq_event(AsyncEvent event, SharedReceiveQueue&) noexcept override {
    if (event == AsyncEvent::kSrqLimitReached) ++limit_reached;
  }
};

/// A completion queue; after an overrun it is of no use, and another one, which is larger, takes its place.
struct SimCq final : CompletionListener {
  explicit SimCq(std::uint32_t capacity) : queue(capacity, this) {}
  void on_completion_event(CompletionQueue&) noexcept override {}
  void on_overrun(CompletionQueue&) noexcept override { ++told; }
  [[nodiscard]] bool overrun() const noexcept { return expected != 0; }

  CompletionQueue queue;
  std::uint32_t told = 0;      ///< how often the engine has said that it overran
  std::uint32_t expected = 0;  ///< how often it should have
  std::uint32_t pending = 0;   ///< completions that the reference wants from it now
  SimCq* successor = nullptr;
};

/// IPv4, link-local and routable IPv6; the last 32 bits are alike.
[[nodiscard]] inline std::array<wire::Gid, kFamilies> addresses_of(std::size_t host) {
  const wire::Gid ipv4 = test::host_gid(host);
  std::array gids = {ipv4, ipv4, ipv4};
  constexpr std::array<std::uint8_t, 12> kLinkLocal = {0xfe, 0x80};
  constexpr std::array<std::uint8_t, 12> kRoutable = {0x20, 0x01, 0x0d, 0xb8, 0, 0x17};
  std::copy(kLinkLocal.begin(), kLinkLocal.end(), gids[1].bytes.begin());
  std::copy(kRoutable.begin(), kRoutable.end(), gids[2].bytes.begin());
  return gids;
}

struct SimHost {
  /// `cq_entries`: of each completion queue, of which there are two when they are small.
  SimHost(std::size_t number, const EngineConfig& config, Arena& own_arena, std::uint32_t cq_entries = 0)
      : gids(addresses_of(number)), gid(gids[0]), arena(own_arena), engine(config, &events) {
    constexpr std::uint32_t kPlenty = 512;
    cqs.emplace_back(cq_entries == 0 ? kPlenty : cq_entries);
    if (cq_entries != 0) cqs.emplace_back(cq_entries);
    pd = engine.create_pd();
    other_pd = engine.create_pd();
    arena.reset();
  }

  std::uint32_t enroll(std::uint64_t address, std::uint64_t size, std::uint32_t rights, PdId domain) {
    const MemoryRegion& region = engine.memory().add({address, size, address, rights, 0, domain, &memory});
    registrations.all.push_back(region);
    return region.key;
  }
  void withdraw(std::uint32_t key) {
    require(engine.memory().remove(key), "a registered key can be deregistered");
    registrations.remove(key);
  }
  Zone zone(std::uint64_t size, std::uint32_t rights) { return zone(size, rights, pd); }
  Zone zone(std::uint64_t size, std::uint32_t rights, PdId domain) {
    Zone zone{.address = arena.take(size), .size = size, .rights = rights};
    zone.deregistered = enroll(zone.address, size, rights, domain);
    zone.other_domain = enroll(zone.address, size, rights, domain == pd ? other_pd : pd);
    zone.no_right = enroll(zone.address, size, 0, domain);
    withdraw(zone.deregistered);
    zone.key = enroll(zone.address, size, rights, domain);
    return zone;
  }

  [[nodiscard]] SimCq& choose_cq(Random& random) { return fit(cqs[cqs.size() == 1 ? 0 : random.below(2)]); }
  /// The queue, or the one that has taken its place.
  [[nodiscard]] SimCq& fit(SimCq& cq) {
    if (!cq.overrun()) return cq;
    if (cq.successor == nullptr) cq.successor = &cqs.emplace_back(2 * cq.queue.capacity() + 8);
    return fit(*cq.successor);
  }

  std::array<wire::Gid, kFamilies> gids;
  wire::Gid gid;
  Arena& arena;
  FaultyMemory memory;
  SimEvents events;
  std::deque<SimCq> cqs;
  Engine engine;
  Registrations registrations;
  PdId pd = 0;
  PdId other_pd = 0;

  Ps egress_free = 0;
  Ps paused_until = 0;
  std::uint16_t ip_id = 0;  ///< of the next packet
};

}  // namespace tensorwire::transport::faults
