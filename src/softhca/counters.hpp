// The engine's counters under the names that mlx5 gives them in hw_counters and counters.
#pragma once

#include "softhca/link.hpp"

namespace tensorwire::softhca {

void visit_engine_counters(const transport::EngineCounters& counters, const Link::CounterSink& sink);

}  // namespace tensorwire::softhca
