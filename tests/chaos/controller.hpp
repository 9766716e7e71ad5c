// Plays rounds: has the ranks' processes, tells them what to play, resumes those that stopped, and judges what came of
// it. Every wait has a bound.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "chaos/process.hpp"
#include "chaos/scenario.hpp"

namespace tensorwire::chaos {

class Controller {
 public:
  /// `log` is a descriptor that the processes' lines go to.
  explicit Controller(int log);

  struct Verdict {
    std::string problem;             ///< "" for none
    std::vector<std::string> lines;  ///< what each rank said, for the log
    Ps took = 0;
  };
  /// After a problem all processes are new ones.
  [[nodiscard]] Verdict play(std::uint64_t seed, std::uint64_t round);

  /// Lets all processes end. @return what was wrong with that, "" for nothing.
  [[nodiscard]] std::string finish();

  /// What process 0, which lives through all rounds, held after each of them.
  [[nodiscard]] const std::vector<Usage>& history() const noexcept { return history_; }

 private:
  /// Of one rank in this round.
  struct State {
    bool in_trouble = false;
    bool shrunk = false;
    bool done = false;
    std::string line;   ///< of the error that ended its communicator
    std::string wrong;  ///< what it found wrong
    std::string last = "nothing";
    Usage usage;
    Ps stopped_since = 0;
  };

  void begin(std::uint64_t seed, std::uint64_t round, const Scenario& scenario);
  void hear_all(const Scenario& scenario);
  void take(State& state, const std::string& message);
  void wake_those_due(const Scenario& scenario);
  [[nodiscard]] bool is_over(const Scenario& scenario) const;
  [[nodiscard]] std::string judge(const Scenario& scenario, int rank);
  [[nodiscard]] std::string where_they_are(const Scenario& scenario) const;
  [[nodiscard]] Process& process(const Scenario& scenario, int rank) const;

  std::vector<std::unique_ptr<Process>> processes_;
  std::array<State, kRanks> states_;
  std::vector<Usage> history_;
};

}  // namespace tensorwire::chaos
