// Where the ranks of a group can meet again once the group is broken: while it is well, each opens a port of its own
// and learns those of the others. The lowest of the ranks that go on is rank 0 of their new group.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bootstrap/group.hpp"
#include "bootstrap/unique_id.hpp"

namespace tensorwire::bootstrap {

class MeetingPlaces {
 public:
  /// A collective call. @throws Error as Group's calls do, or when no port can be opened.
  explicit MeetingPlaces(Group& group);

  /// How this rank joins the group of all ranks but the excluded ones, in the order that they had. Can be called again,
  /// also when those who met before failed to.
  /// @throws Error: a rank that does not exist or is given twice, this rank itself.
  [[nodiscard]] GroupOptions without(std::span<const int> excluded) const;

  /// A random number that all ranks who exchanged these places have, and nobody else: what was made after the same
  /// group's earlier calls has another.
  [[nodiscard]] std::uint64_t life() const noexcept;

 private:
  int rank_;
  std::vector<UniqueId> ids_;  ///< by rank
  std::shared_ptr<Socket> port_;
};

}  // namespace tensorwire::bootstrap
