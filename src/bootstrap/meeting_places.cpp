#include "bootstrap/meeting_places.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace tensorwire::bootstrap {

MeetingPlaces::MeetingPlaces(Group& group) : rank_(group.rank()) {
  const UniqueId mine = make_unique_id();
  port_ = take_port(mine);
  const std::vector<Bytes> all = group.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != kUniqueIdBytes) {
      throw Error{"exchange meeting places", group.name(static_cast<int>(rank)) + " made another call"};
    }
    std::ranges::copy(all[rank], ids_.emplace_back().begin());
  }
}

std::uint64_t MeetingPlaces::life() const noexcept { return job_number(ids_.front()); }

GroupOptions MeetingPlaces::without(std::span<const int> excluded) const {
  std::vector<bool> goes_on(ids_.size(), true);
  for (const int rank : excluded) {
    const bool exists = rank >= 0 && static_cast<std::size_t>(rank) < ids_.size();
    if (!exists || rank == rank_ || !goes_on[static_cast<std::size_t>(rank)]) {
      throw Error{fmt::format("go on without rank {}", rank),
                  !exists         ? fmt::format("there are ranks 0 to {}", ids_.size() - 1)
                  : rank == rank_ ? "that is this rank itself"
                                  : "it is given twice",
                  "Give each excluded rank once, on all ranks that go on, and only there"};
    }
    goes_on[static_cast<std::size_t>(rank)] = false;
  }
  const auto leader = std::ranges::find(goes_on, true) - goes_on.begin();
  const auto here = std::count(goes_on.begin(), goes_on.begin() + rank_, true);
  const auto ranks = std::ranges::count(goes_on, true);
  return options_of(ids_[static_cast<std::size_t>(leader)], static_cast<int>(here), static_cast<int>(ranks), port_);
}

}  // namespace tensorwire::bootstrap
