// Every plan that can be built for a number of ranks and a count: what the checker's tests, and the random network, go
// through.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "collective/builders.hpp"
#include "collective/check.hpp"

namespace tensorwire::collective {

/// What a plan is built from.
struct Recipe {
  Shape shape;
  Algorithm algorithm = Algorithm::kOneShot;
  BuildOptions build;
  bool in_place = false;

  [[nodiscard]] Plan plan() const { return build_plan(shape, algorithm, build); }
  [[nodiscard]] CheckOptions check_options() const {
    CheckOptions options;
    options.in_place = in_place;
    options.build = build;
    return options;
  }
  [[nodiscard]] std::string name() const {
    std::string text = fmt::format("{} {}, {} ranks, {} x {}, root {}", name_of(algorithm), name_of(shape.collective),
                                   shape.ranks, shape.count, name_of(shape.dtype), shape.root);
    if (build.group_ranks > 1) text += fmt::format(", groups of {}", build.group_ranks);
    if (build.source != WriteSource::kSendSlot) text += ", from the input";
    return text + (in_place ? ", in place" : "");
  }
};

/// Whether there is such a builder.
inline bool can_build(Collective collective, Algorithm algorithm) {
  Shape shape{2, 1, DType::kFloat32, Op::kSum, collective};
  if (collective == Collective::kSendRecv) shape.peer = 1;
  if (collective == Collective::kBarrier) shape.count = 0;
  try {
    static_cast<void>(build_program(shape, algorithm, 0));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// All ways to do one collective by one algorithm: sources, groups, roots, in place and not.
inline std::vector<Recipe> recipes(Collective collective, Algorithm algorithm, std::uint32_t ranks, std::uint64_t count,
                                   DType dtype = DType::kFloat32) {
  if (!can_build(collective, algorithm)) return {};
  if (collective == Collective::kSendRecv && ranks < 2) return {};
  std::vector<Recipe> all;
  Recipe recipe{{ranks, count, dtype, Op::kSum, collective}, algorithm, {}, false};
  if (collective == Collective::kBarrier) recipe.shape.count = 0;
  const auto add = [&](bool may_be_in_place) {
    recipe.in_place = false;
    if (recipe.build.source != WriteSource::kInputInPlace) all.push_back(recipe);
    recipe.in_place = true;
    if (may_be_in_place) all.push_back(recipe);
  };
  const bool into_windows = algorithm == Algorithm::kWindow || algorithm == Algorithm::kTreeWindow;
  switch (collective) {
    case Collective::kBroadcast:
      for (const std::uint32_t root : {0U, ranks / 2, ranks - 1}) {
        if (root != 0 && root == recipe.shape.root) continue;
        recipe.shape.root = static_cast<std::uint16_t>(root);
        for (const auto source : {WriteSource::kSendSlot, WriteSource::kInput, WriteSource::kInputInPlace}) {
          if (into_windows && source == WriteSource::kSendSlot) continue;
          recipe.build.source = source;
          add(source != WriteSource::kInput);
        }
      }
      break;
    case Collective::kSendRecv:
      for (const std::uint32_t root : {0U, ranks - 1}) {
        recipe.shape.root = static_cast<std::uint16_t>(root);
        recipe.shape.peer = static_cast<std::uint16_t>((root + 1) % ranks);
        add(false);
      }
      break;
    case Collective::kAllToAll:
      add(false);
      if (into_windows) break;
      recipe.build.source = WriteSource::kInputInPlace;
      add(true);
      break;
    case Collective::kBarrier:
      add(false);
      break;
    default:
      if (algorithm == Algorithm::kHierarchical) {
        for (std::uint32_t group = 1; group <= ranks; group = group < 4 ? group + 1 : group * 2) {
          recipe.build.group_ranks = group;
          if (ranks % group == 0) add(true);
        }
        break;
      }
      if (!into_windows) add(true);
      if (collective == Collective::kAllGather) {
        recipe.build.source = WriteSource::kInput;
        add(false);
        recipe.build.source = WriteSource::kInputInPlace;
        add(true);
      }
      if (algorithm != Algorithm::kOneShot) break;
      recipe.build.source = WriteSource::kInput;
      add(false);
      recipe.build.source = WriteSource::kInputInPlace;
      add(true);
  }
  return all;
}

}  // namespace tensorwire::collective
