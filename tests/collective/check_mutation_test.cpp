// Plans with one planted mistake: the checker refuses every one, and says which step is to blame.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "collective/check_races.hpp"
#include "plan_catalogue.hpp"

namespace tensorwire::collective {
namespace {

/// A program that can be changed: needs and operands lie with their steps.
class Draft {
 public:
  struct Line {
    Step step;
    std::vector<std::uint16_t> needs;
    std::vector<Location> operands;
  };

  explicit Draft(const Program& program) : program_(program) {
    for (const Step& step : program.steps) {
      const auto needs = program.needs_of(step);
      const auto operands = program.operands_of(step);
      lines.push_back({step, {needs.begin(), needs.end()}, {operands.begin(), operands.end()}});
    }
  }

  /// Takes a step out; what needed it needs what it needed.
  void drop(std::size_t index) {
    const std::vector<std::uint16_t> its_needs = lines[index].needs;
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(index));
    const auto renumber = [&](std::uint16_t& step) {
      step = static_cast<std::uint16_t>(step - (step > index ? 1 : 0));
    };
    for (Line& line : lines) {
      if (std::erase(line.needs, index) != 0) line.needs.insert(line.needs.end(), its_needs.begin(), its_needs.end());
      for (std::uint16_t& need : line.needs) renumber(need);
      renumber(line.step.write_step);
    }
  }

  /// What the checker reads of a program; the derived fields are left as they were.
  [[nodiscard]] Program program() const {
    Program changed = program_;
    changed.steps.clear();
    changed.needs.clear();
    changed.operands.clear();
    for (const Line& line : lines) {
      Step step = line.step;
      step.first_need = static_cast<std::uint32_t>(changed.needs.size());
      step.need_count = static_cast<std::uint32_t>(line.needs.size());
      step.first_operand = static_cast<std::uint32_t>(changed.operands.size());
      step.operand_count = static_cast<std::uint32_t>(line.operands.size());
      changed.needs.insert(changed.needs.end(), line.needs.begin(), line.needs.end());
      changed.operands.insert(changed.operands.end(), line.operands.begin(), line.operands.end());
      changed.steps.push_back(step);
    }
    return changed;
  }

  [[nodiscard]] bool is(std::size_t index, StepKind kind) const { return lines[index].step.kind == kind; }
  [[nodiscard]] bool carries(std::size_t index) const { return lines[index].step.bytes != 0; }

  std::vector<Line> lines;

 private:
  Program program_;
};

/// Plants the mistake at a step; false: it cannot be made there.
using Mutation = std::function<bool(Draft&, std::size_t)>;

struct Kind {
  const char* name;
  Mutation mutate;
};

bool takes_slots(const Location& location) { return location.place == Place::kPeerSlot; }

std::vector<Kind> kinds() {
  const auto at_kind = [](StepKind kind, std::function<bool(Draft&, Draft::Line&, std::size_t)> change) -> Mutation {
    return [=](Draft& draft, std::size_t i) { return draft.is(i, kind) && change(draft, draft.lines[i], i); };
  };
  const auto drop = [](Draft& draft, Draft::Line&, std::size_t i) {
    draft.drop(i);
    return true;
  };
  const auto forget_needs = [](Draft&, Draft::Line& line, std::size_t) {
    const bool had = !line.needs.empty();
    line.needs.clear();
    return had;
  };
  const auto carrying = [](auto change) {
    return
        [=](Draft& draft, Draft::Line& line, std::size_t i) { return line.step.bytes != 0 && change(draft, line, i); };
  };
  return {
      {"drops a copy", at_kind(StepKind::kCopy, carrying(drop))},
      {"drops a write", at_kind(StepKind::kWrite, drop)},
      {"drops an arrival", at_kind(StepKind::kArrival, drop)},
      {"drops a reduction", at_kind(StepKind::kReduce, carrying(drop))},
      {"drops a release", at_kind(StepKind::kRelease, drop)},
      {"drops a match", at_kind(StepKind::kMatch, drop)},
      {"does not wait for a write from user memory", at_kind(StepKind::kSent, drop)},
      {"releases a slot twice", at_kind(StepKind::kRelease,
                                        [](Draft& draft, Draft::Line& line, std::size_t) {
                                          draft.lines.push_back(line);
                                          return true;
                                        })},
      {"releases a slot at once", at_kind(StepKind::kRelease, forget_needs)},
      {"releases the slot of another peer", at_kind(StepKind::kRelease,
                                                    [](Draft&, Draft::Line& line, std::size_t) {
                                                      line.step.peer = static_cast<std::uint16_t>(line.step.peer + 1);
                                                      return true;
                                                    })},
      {"matches before everything arrived", at_kind(StepKind::kMatch,
                                                    [](Draft&, Draft::Line& line, std::size_t) {
                                                      if (line.needs.empty()) return false;
                                                      line.needs.pop_back();
                                                      return true;
                                                    })},
      {"reduces at once", at_kind(StepKind::kReduce, carrying(forget_needs))},
      {"copies at once what has yet to come",
       at_kind(StepKind::kCopy, carrying([forget_needs](Draft& draft, Draft::Line& line, std::size_t i) {
                 // Who awaits nobody's signature copies its input when it likes.
                 const auto matches = [](const Draft::Line& other) { return other.step.kind == StepKind::kMatch; };
                 const bool any_time =
                     line.step.source.place == Place::kInput && std::ranges::none_of(draft.lines, matches);
                 return !any_time && forget_needs(draft, line, i);
               }))},
      {"writes at once what has yet to be made", at_kind(StepKind::kWrite, carrying(forget_needs))},
      {"swaps two operands", at_kind(StepKind::kReduce,
                                     [](Draft& draft, Draft::Line& line, std::size_t i) {
                                       // Of two operands in a ring the order is a matter of taste, and the checker's is
                                       // the printed one.
                                       if (!draft.carries(i) || line.operands.size() < 2) return false;
                                       std::swap(line.operands.front(), line.operands.back());
                                       return true;
                                     })},
      {"takes another operator", at_kind(StepKind::kReduce, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                           line.step.op = line.step.op == Op::kSum ? Op::kAverage : Op::kSum;
                                           return true;
                                         }))},
      {"forgets an operand", at_kind(StepKind::kReduce, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                       line.operands.pop_back();
                                       return true;
                                     }))},
      {"adds an operand twice", at_kind(StepKind::kReduce, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                          line.operands.push_back(line.operands.back());
                                          return true;
                                        }))},
      {"adds a neighbour's operand twice",
       at_kind(StepKind::kReduce, carrying([](Draft&, Draft::Line& line, std::size_t) {
                 if (line.operands.size() < 2) return false;
                 line.operands[1] = line.operands[0];
                 return true;
               }))},
      {"reads an operand four bytes on",
       at_kind(StepKind::kReduce, carrying([](Draft&, Draft::Line& line, std::size_t) {
                 line.operands[0].offset += 4;
                 return true;
               }))},
      {"puts a sum four bytes on", at_kind(StepKind::kReduce, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                             line.step.target.offset += 4;
                                             return true;
                                           }))},
      {"forgets the second target", at_kind(StepKind::kReduce, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                              const bool had = line.step.second_target.place != Place::kNone;
                                              line.step.second_target = {};
                                              return had;
                                            }))},
      {"sends from four bytes on", at_kind(StepKind::kWrite, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                             line.step.source.offset += 4;
                                             return true;
                                           }))},
      {"writes to four bytes on", at_kind(StepKind::kWrite, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                            line.step.target.offset += 4;
                                            return true;
                                          }))},
      {"sends the user's output instead",
       at_kind(StepKind::kWrite, carrying([](Draft&, Draft::Line& line, std::size_t) {
                 if (line.step.source.place != Place::kSendSlot) return false;
                 line.step.source.place = Place::kOutput;
                 return true;
               }))},
      {"writes to another peer", at_kind(StepKind::kWrite,
                                         [](Draft&, Draft::Line& line, std::size_t) {
                                           line.step.peer = static_cast<std::uint16_t>(line.step.peer + 1);
                                           line.step.target.peer = line.step.peer;
                                           return true;
                                         })},
      {"gives a write another number", at_kind(StepKind::kWrite,
                                               [](Draft&, Draft::Line& line, std::size_t) {
                                                 line.step.message = static_cast<std::uint8_t>(line.step.message + 1);
                                                 line.step.with_signature = false;
                                                 return true;
                                               })},
      {"awaits another number", at_kind(StepKind::kArrival,
                                        [](Draft&, Draft::Line& line, std::size_t) {
                                          line.step.message = static_cast<std::uint8_t>(line.step.message + 1);
                                          return true;
                                        })},
      {"leaves the signature out",
       at_kind(StepKind::kWrite,
               [](Draft&, Draft::Line& line, std::size_t) { return std::exchange(line.step.with_signature, false); })},
      {"sends an element too few", at_kind(StepKind::kWrite, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                             line.step.bytes -= 4;
                                             return true;
                                           }))},
      {"copies an element too few", at_kind(StepKind::kCopy, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                              line.step.bytes -= 4;
                                              return true;
                                            }))},
      {"copies an element too many", at_kind(StepKind::kCopy, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                               line.step.bytes += 4;
                                               return true;
                                             }))},
      {"copies from another peer's slot", at_kind(StepKind::kCopy, carrying([](Draft&, Draft::Line& line, std::size_t) {
                                                    if (!takes_slots(line.step.source)) return false;
                                                    line.step.source.peer =
                                                        static_cast<std::uint16_t>(line.step.source.peer + 1);
                                                    return true;
                                                  }))},
      {"needs what comes later",
       [](Draft& draft, std::size_t i) {
         draft.lines[i].needs.push_back(static_cast<std::uint16_t>(i));
         return true;
       }},
  };
}

/// The plans that mistakes are planted in: each way to do each collective.
std::vector<Recipe> victims() {
  std::vector<Recipe> all;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (Recipe recipe : recipes(collective, algorithm, 4, 100)) {
        all.push_back(recipe);
        if (collective != Collective::kAllReduce && collective != Collective::kReduceScatter) continue;
        recipe.shape.op = Op::kAverage;
        all.push_back(recipe);
      }
    }
  }
  return all;
}

/// It does nothing: mistakes in it are none.
bool copies_in_place(const Step& step) {
  return step.kind == StepKind::kCopy && step.source.place == Place::kInput && step.target.place == Place::kOutput;
}

class Mutants : public testing::TestWithParam<std::size_t> {};

TEST_P(Mutants, AreRefusedWhereverTheyArePlanted) {
  const Kind kind = kinds()[GetParam()];
  std::size_t planted = 0;
  for (const Recipe& recipe : victims()) {
    const Plan plan = recipe.plan();
    for (std::uint32_t rank = 0; rank < plan.programs.size(); ++rank) {
      for (std::size_t step = 0; step < plan.programs[rank].steps.size(); ++step) {
        Draft draft{plan.programs[rank]};
        if (recipe.in_place && copies_in_place(plan.programs[rank].steps[step])) continue;
        if (!kind.mutate(draft, step)) continue;
        Plan mutant = plan;
        mutant.programs[rank] = draft.program();
        ++planted;
        const Verdict verdict = check(mutant, recipe.check_options());
        EXPECT_FALSE(verdict.proved()) << kind.name << ": " << recipe.name() << "\n  rank " << rank << ", step " << step
                                       << ": " << to_string(plan.programs[rank], step);
      }
    }
  }
  EXPECT_GT(planted, 0U) << kind.name;
}

INSTANTIATE_TEST_SUITE_P(Check, Mutants, testing::Range(std::size_t{0}, kinds().size()), [](const auto& kind) {
  std::string name = kinds()[kind.param].name;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

/// Two ranks, each of which waits for the other before it writes.
TEST(Check, CirclesAreFound) {
  Plan plan;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ProgramBuilder builder{Algorithm::kDirect, {2, 0, DType::kFloat32, Op::kSum, Collective::kBarrier}, rank};
    const auto arrived = builder.arrival(1 - rank, 0);
    builder.write(1 - rank, 0, {Place::kSendSlot, 0, 0}, 0, 0, {arrived});
    builder.release(1 - rank, {builder.match({arrived})});
    plan.programs.push_back(builder.finish());
  }
  const Verdict verdict = check(plan);
  EXPECT_NE(verdict.what.find("never ends"), std::string::npos) << to_string(verdict);
  EXPECT_GE(verdict.trace.size(), 4U) << to_string(verdict);
}

/// The rules look at one plan; over a sequence, a slot that is given back too early also shows as a race for it.
TEST(Check, ASlotThatIsGivenBackTooEarlyIsRacedFor) {
  Plan plan = build_plan({2, 16, DType::kFloat32, Op::kSum}, Algorithm::kOneShot);
  const auto race = [&](std::uint32_t plans) {
    const std::vector<const Plan*> sequence(plans, &plan);
    const CheckOptions options;
    HappensBefore graph{sequence, options};
    EXPECT_FALSE(graph.malformed() || graph.pair_up() || graph.order());
    const auto found = find_race(graph, MemoryMap{graph, options});
    return found ? found->what : "";
  };
  EXPECT_EQ(race(4), "");
  Draft draft{plan.programs[1]};
  for (Draft::Line& line : draft.lines) {
    if (line.step.kind == StepKind::kRelease) line.needs.clear();
  }
  plan.programs[1] = draft.program();
  EXPECT_EQ(race(2), "") << "two slots, two plans";
  EXPECT_NE(race(3).find("may not have read yet"), std::string::npos) << race(3);
}

TEST(Check, SaysWhoIsToBlame) {
  Plan plan = build_plan({3, 100, DType::kFloat32, Op::kSum}, Algorithm::kTwoShot);
  Draft draft{plan.programs[2]};
  std::size_t reduction = 0;
  while (!draft.is(reduction, StepKind::kReduce)) ++reduction;
  std::swap(draft.lines[reduction].operands[0], draft.lines[reduction].operands[1]);
  plan.programs[2] = draft.program();
  const Verdict verdict = check(plan);
  EXPECT_NE(to_string(verdict).find("(x1 + x0 + x2): not in the order that two-shot promises"), std::string::npos)
      << to_string(verdict);
}

}  // namespace
}  // namespace tensorwire::collective
