// What all queue pairs of an engine share, and what Engine::Impl is made of: configuration, memory table, counters,
// timers, scheduler.
#pragma once

#include "transport/engine.hpp"
#include "transport/memory.hpp"
#include "transport/scheduler.hpp"
#include "transport/timers.hpp"
#include "transport/withdrawals.hpp"

namespace tensorwire::transport {

struct Core {
  Core(const EngineConfig& engine_config, EventListener* listener)
      : config(engine_config), events(listener), memory(engine_config.seed) {}

  EngineConfig config;
  EventListener* events;
  MemoryTable memory;
  EngineCounters counters;
  std::uint64_t lives = 0;             ///< how often a queue pair went to RTR
  Withdrawals* withdrawals = nullptr;  ///< a link's, where one asked for it
  bool overrun = false;  ///< a completion queue was full: Engine looks after its queue pairs before it returns
  Timers timers{&QpLinks::timer};    ///< acknowledge timeout, RNR wait
  Timers pacing{&QpLinks::pacing};   ///< when a queue pair that congestion control holds back may send again
  Timers notices{&QpLinks::notice};  ///< when marks that were not told at once are told
  Scheduler scheduler;

  /// To be called before anybody can learn that the queue pair's work requests are over.
  void withdraw(std::uint32_t qpn) noexcept {
    if (withdrawals != nullptr) withdrawals->count(qpn);
  }
};

}  // namespace tensorwire::transport
