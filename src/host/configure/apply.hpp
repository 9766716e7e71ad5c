// Makes the changes of a PortDifference, reads back what became of them, and takes all of them back if one fails or is
// not there afterwards: several ports together are changed wholly or not at all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host/configure/difference.hpp"
#include "host/configure/witness.hpp"

namespace tensorwire::host {

/// What changes a host; tests have one that fails at any step.
class Effects {
 public:
  Effects() = default;
  Effects(const Effects&) = delete;
  Effects& operator=(const Effects&) = delete;
  virtual ~Effects() = default;

  /// @return why it failed; empty when it was done
  [[nodiscard]] virtual std::string perform(const Action& action) = 0;
  /// Over another path than perform() writes, where there is one.
  [[nodiscard]] virtual PortState read(const std::string& netdev) = 0;
  /// What other ways of asking say of it.
  [[nodiscard]] virtual std::vector<Witness> hear(const PortState& state, const Wanted& wanted) = 0;
};

struct Applied {
  std::string failure;                 ///< what failed, where and why; empty: everything is as wanted
  std::vector<std::string> read_back;  ///< how each part was, and what else agrees
  std::vector<std::string> left_over;  ///< what could not be taken back then
  [[nodiscard]] bool ok() const noexcept { return failure.empty(); }
};

[[nodiscard]] Applied apply(std::span<const PortDifference> differences, const Wanted& wanted, Effects& effects);

/// What takes back all changes of `difference`, the last one first.
[[nodiscard]] std::vector<Action> undo_of(const PortDifference& difference);

}  // namespace tensorwire::host
