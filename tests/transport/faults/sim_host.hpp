// A simulated host: an engine with its memory, its completion queue and its port, and beside each what the model says.
#pragma once

#include <cstdint>

#include "../world.hpp"
#include "arena.hpp"
#include "reference_qp.hpp"
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

struct SimHost {
  SimHost(std::size_t number, const EngineConfig& config, Arena& own_arena)
      : gid(test::host_gid(number)), arena(own_arena), engine(config, &events) {
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
  Zone zone(std::uint64_t size, std::uint32_t rights) {
    Zone zone{.address = arena.take(size), .size = size, .rights = rights};
    zone.deregistered = enroll(zone.address, size, rights, pd);
    zone.other_domain = enroll(zone.address, size, rights, other_pd);
    zone.no_right = enroll(zone.address, size, 0, pd);
    withdraw(zone.deregistered);
    zone.key = enroll(zone.address, size, rights, pd);
    return zone;
  }

  wire::Gid gid;
  Arena& arena;
  FaultyMemory memory;
  test::RecordedEvents events;
  CompletionQueue cq{512, nullptr};
  Engine engine;
  Registrations registrations;
  PdId pd = 0;
  PdId other_pd = 0;

  Ps egress_free = 0;
  Ps paused_until = 0;
  std::uint16_t ip_id = 0;  ///< of the next packet
};

}  // namespace tensorwire::transport::faults
