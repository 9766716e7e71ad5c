#include "cli/bench/exchange.hpp"

#include <algorithm>

namespace tensorwire::cli {

namespace {

std::uint64_t message_bytes(const collective::Step& write) {
  return write.bytes + (write.with_signature ? collective::kSlotHeaderBytes : 0);
}

}  // namespace

ExchangePattern exchange_pattern(const collective::Plan& plan, std::uint32_t rank) {
  const std::size_t ranks = plan.programs.size();
  std::uint32_t phases = 0;
  for (const collective::Program& program : plan.programs) phases = std::max(phases, program.messages);

  const std::vector<std::uint64_t> silence(ranks, 0);
  ExchangePattern pattern(phases, ExchangePhase{silence, silence});
  for (const collective::Program& program : plan.programs) {
    for (const collective::Step& step : program.steps) {
      if (step.kind != collective::StepKind::kWrite) continue;
      ExchangePhase& phase = pattern[step.message];
      if (program.rank == rank) phase.send_bytes[step.peer] += message_bytes(step);
      if (step.peer == rank) phase.receive_bytes[program.rank] += message_bytes(step);
    }
  }
  return pattern;
}

}  // namespace tensorwire::cli
