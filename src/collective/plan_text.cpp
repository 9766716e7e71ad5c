// Programs as text: one line per step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collective/plan.hpp"

namespace tensorwire::collective {

namespace {

std::string text(const Location& location, std::uint64_t bytes) {
  const auto range = fmt::format("[{}, {})", location.offset, location.offset + bytes);
  switch (location.place) {
    case Place::kNone:
      return "nothing";
    case Place::kInput:
      return "input" + range;
    case Place::kOutput:
      return "output" + range;
    case Place::kSendSlot:
      return "send slot" + range;
    case Place::kPeerSlot:
      return fmt::format("slot of {}{}", location.peer, range);
    case Place::kPeerOutput:
      return fmt::format("output of {}{}", location.peer, range);
  }
  return "?";
}

std::string action(const Program& program, const Step& step) {
  switch (step.kind) {
    case StepKind::kCopy:
      return fmt::format("copy {} -> {}", text(step.source, step.bytes), text(step.target, step.bytes));
    case StepKind::kWrite:
      if (step.message == kInvitationMessage) {
        return fmt::format("write signature and where the output is -> rank {}, the invitation", step.peer);
      }
      return fmt::format("write {}{} -> rank {} {}[{}, {}), message {}", step.with_signature ? "signature + " : "",
                         text(step.source, step.bytes), step.peer,
                         step.target.place == Place::kPeerOutput ? "output" : "", step.target.offset,
                         step.target.offset + step.bytes, step.message);
    case StepKind::kSent:
      return fmt::format("wait until write #{} is acknowledged by rank {}", step.write_step, step.peer);
    case StepKind::kArrival:
      if (step.message == kInvitationMessage) return fmt::format("wait for the invitation of rank {}", step.peer);
      return fmt::format("wait for message {} of rank {}", step.message, step.peer);
    case StepKind::kMatch:
      return "match signatures";
    case StepKind::kReduce: {
      std::string line = step.op == Op::kSum ? "reduce" : std::string{name_of(step.op)} + " of";
      const char* separator = " ";
      for (const Location& operand : program.operands_of(step)) {
        line += separator + text(operand, step.bytes);
        separator = " + ";
      }
      line += " -> " + text(step.target, step.bytes);
      if (step.second_target.place != Place::kNone) line += " and " + text(step.second_target, step.bytes);
      return line;
    }
    case StepKind::kRelease:
      return fmt::format("release the slot of rank {}", step.peer);
  }
  return "?";
}

}  // namespace

std::string_view name_of(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::kCopy:
      return "copy";
    case StepKind::kWrite:
      return "write";
    case StepKind::kSent:
      return "sent";
    case StepKind::kArrival:
      return "arrival";
    case StepKind::kMatch:
      return "match";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kRelease:
      return "release";
  }
  return "unknown step";
}

std::string to_string(const Program& program) {
  std::string lines = fmt::format(
      "{} {} of {} x {}, {} ranks{}, rank {}:\n", name_of(program.algorithm), name_of(program.shape.collective),
      program.shape.count, name_of(program.shape.dtype), program.shape.ranks,
      program.group_ranks > 1 ? fmt::format(" in groups of {}", program.group_ranks) : "", program.rank);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    lines += fmt::format("  #{} {}", i, action(program, step));
    if (step.need_count != 0) lines += fmt::format(" (after #{})", fmt::join(program.needs_of(step), ", #"));
    lines += '\n';
  }
  return lines;
}

std::string to_string(const Program& program, std::size_t step) { return action(program, program.steps[step]); }

std::string to_string(const Plan& plan) {
  std::string lines;
  for (const Program& program : plan.programs) lines += to_string(program);
  return lines;
}

}  // namespace tensorwire::collective
