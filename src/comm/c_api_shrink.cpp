// twCommShrink: the ranks that go on meet at one of their own ports, leave the old communicator behind, and make a new
// one. Nothing of it needs the old group, which may be broken or have lost rank 0.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "comm/c_api_calls.hpp"
#include "comm/c_api_config.hpp"
#include "comm/c_api_group.hpp"

using namespace tensorwire;

namespace {

constexpr Ps kInterruptBound = 10 * kSecond;

/// Why the call makes no sense, if so.
std::optional<std::string> problem(const int* excluded, int count, int flags) {
  if (count < 0) return fmt::format("the count is {}", count);
  if (count > 0 && excluded == nullptr) return "the list is null";
  if (flags != TW_SHRINK_DEFAULT && flags != TW_SHRINK_ABORT) return fmt::format("there are no flags {}", flags);
  return std::nullopt;
}

/// The handle for this thread, once what was under way in another one has ended.
std::unique_ptr<HandleInUse> take(twComm& handle, Ps bound) {
  const Ps until = monotonic_now() + bound;
  for (;;) {
    auto use = std::make_unique<HandleInUse>(handle);
    if (*use || monotonic_now() >= until) return use;
    sched_yield();
  }
}

/// Ranks whose lists differ must not take each other for their like.
std::uint64_t lineage_of(std::uint64_t parent, std::vector<int> excluded) {
  std::ranges::sort(excluded);
  std::uint64_t hash = mix64(parent + 1);
  for (const int rank : excluded) hash = mix64(hash ^ static_cast<unsigned>(rank));
  return hash;
}

twResult_t shrink(twComm& comm, const std::vector<int>& excluded, twComm_t* made, const twConfig_t* config,
                  bool interrupts) {
  const std::string reason = fmt::format("the other ranks go on without rank{} {} (twCommShrink)",
                                         excluded.size() == 1 ? "" : "s", fmt::join(excluded, ", "));
  const auto places = comm.meeting_places();
  if (places == nullptr) {
    return comm.refuse(twInvalidUsage, "twCommShrink: the communicator is finalized, never was ready, or has one rank");
  }
  std::optional<bootstrap::GroupOptions> group;
  comm::CommOptions options;
  try {
    group = places->without(excluded);
    options = config != nullptr ? options_from(*config) : comm.options();
  } catch (const Error& error) {
    return comm.refuse(twInvalidArgument, error.what());
  }
  options.lineage = lineage_of(comm.options().lineage, excluded);

  // Others, who may still be in its last operation, need a communicator that is well until all have come.
  const auto leave = [&] { comm.leave_behind(excluded, reason); };
  if (interrupts || comm.state() != twSuccess) leave();
  auto handle = std::make_unique<twComm>(*std::move(group), std::move(options), leave);
  const twResult_t result = handle->set_up();
  if (result != twSuccess) return comm.refuse(result, handle->last_line());
  *made = handle.release();
  return twSuccess;
}

}  // namespace

twResult_t twCommShrink(twComm_t comm, const int* excludeRanks, int excludeCount, twComm_t* newcomm,
                        const twConfig_t* config, int flags) {
  if (comm == nullptr) return no_communicator("twCommShrink");
  if (newcomm == nullptr) return refuse(comm, twInvalidArgument, "twCommShrink: the pointer is null");
  *newcomm = nullptr;
  if (thread_group().is_open()) {
    return refuse(comm, twInvalidUsage, "twCommShrink: not between twGroupStart and twGroupEnd");
  }
  try {
    if (const auto why = problem(excludeRanks, excludeCount, flags)) {
      return refuse(comm, twInvalidArgument, "twCommShrink: " + *why);
    }
    const std::vector<int> excluded(excludeRanks, excludeRanks + excludeCount);
    const bool interrupts = flags == TW_SHRINK_ABORT;
    if (interrupts) comm->interrupt("twCommShrink was called with TW_SHRINK_ABORT");
    const auto mine = take(*comm, interrupts ? kInterruptBound : 0);
    if (!*mine) return comm->refuse(twInvalidUsage, "twCommShrink: another thread is using this communicator");
    if (comm->state() == twInProgress) {
      return comm->refuse(twInvalidUsage, "twCommShrink: the communicator is still being set up");
    }
    return shrink(*comm, excluded, newcomm, config, interrupts);
  } catch (const std::exception& error) {
    return comm->refuse(twInternalError, error.what());
  }
}
