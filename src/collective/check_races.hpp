// Accesses to the same bytes that nothing orders: with none of them, every interleaving gives what one gives. Internal
// to check*.cpp.
#pragma once

#include <optional>

#include "collective/check_memory.hpp"

namespace tensorwire::collective {

/// @return two accesses to the same bytes, at least one of them a write, of which neither surely ends before the other
/// begins.
[[nodiscard]] std::optional<Verdict> find_race(const HappensBefore& graph, const MemoryMap& map);

/// The rules of user memory and of slots: nothing is written to an output before the signatures matched, writes from
/// user memory are waited for, a slot is given back when all of it came and was read.
[[nodiscard]] std::optional<Verdict> find_broken_rule(const HappensBefore& graph);

}  // namespace tensorwire::collective
