// Programs as JSON, for tools. Written by hand of fmt: names are ours, so nothing needs to be escaped.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collective/plan.hpp"

namespace tensorwire::collective {

namespace {

std::string_view name_of(Place place) noexcept {
  switch (place) {
    case Place::kNone:
      return "none";
    case Place::kInput:
      return "input";
    case Place::kOutput:
      return "output";
    case Place::kSendSlot:
      return "send slot";
    case Place::kPeerSlot:
      return "peer slot";
    case Place::kPeerOutput:
      return "peer output";
  }
  return "?";
}

std::string json(const Location& location) {
  const bool of_peer = location.place == Place::kPeerSlot || location.place == Place::kPeerOutput;
  return fmt::format(R"({{"place": "{}", {}"offset": {}}})", name_of(location.place),
                     of_peer ? fmt::format(R"("peer": {}, )", location.peer) : "", location.offset);
}

std::string json(const Program& program, const Step& step) {
  std::string text = fmt::format(R"({{"kind": "{}")", name_of(step.kind));
  const auto add = [&](std::string_view name, const auto& value) { text += fmt::format(R"(, "{}": {})", name, value); };
  const bool has_peer = step.kind == StepKind::kWrite || step.kind == StepKind::kSent ||
                        step.kind == StepKind::kArrival || step.kind == StepKind::kRelease;
  if (has_peer) add("peer", step.peer);
  if (step.kind == StepKind::kWrite || step.kind == StepKind::kArrival) add("message", step.message);
  if (step.message == kInvitationMessage) add("invitation", true);
  if (step.kind == StepKind::kWrite) add("with_signature", step.with_signature);
  if (step.kind == StepKind::kSent) add("write", step.write_step);
  if (step.kind == StepKind::kWrite || step.kind == StepKind::kCopy || step.kind == StepKind::kReduce) {
    add("bytes", step.bytes);
    if (step.kind != StepKind::kReduce) add("source", json(step.source));
    add("target", json(step.target));
  }
  if (step.kind == StepKind::kReduce) {
    if (step.second_target.place != Place::kNone) add("second_target", json(step.second_target));
    text += fmt::format(R"(, "op": "{}")", name_of(step.op));
    std::vector<std::string> operands;
    for (const Location& operand : program.operands_of(step)) operands.push_back(json(operand));
    text += fmt::format(R"(, "operands": [{}])", fmt::join(operands, ", "));
  }
  return text + fmt::format(R"(, "needs": [{}]}})", fmt::join(program.needs_of(step), ", "));
}

}  // namespace

std::string to_json(const Plan& plan) {
  if (plan.programs.empty()) return "{}\n";
  const Program& first = plan.programs[0];
  const Shape& shape = first.shape;
  std::string text = fmt::format(
      R"({{"collective": "{}", "algorithm": "{}", "ranks": {}, "count": {}, "dtype": "{}", "op": "{}", "root": {},)",
      name_of(shape.collective), name_of(first.algorithm), shape.ranks, shape.count, name_of(shape.dtype),
      name_of(shape.op), shape.root);
  text += "\n \"programs\": [";
  const char* separator = "\n  ";
  for (const Program& program : plan.programs) {
    std::vector<std::string> steps;
    for (const Step& step : program.steps) steps.push_back(json(program, step));
    text += fmt::format(R"({}{{"rank": {}, "steps": [{}{}]}})", separator, program.rank, steps.empty() ? "" : "\n    ",
                        fmt::join(steps, ",\n    "));
    separator = ",\n  ";
  }
  return text + "]}\n";
}

}  // namespace tensorwire::collective
