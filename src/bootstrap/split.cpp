// Groups made from a group: who belongs together is exchanged through it, then each new one meets by an id of its own.
#include <algorithm>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "bootstrap/group.hpp"
#include "bootstrap/unique_id.hpp"

namespace tensorwire::bootstrap {

namespace {

struct Applicant {
  int key;
  int rank;
  auto operator<=>(const Applicant&) const = default;
};

}  // namespace

std::optional<GroupOptions> split(Group& group, int color, int key) {
  std::array<std::byte, 8> wish{};
  store_be32(wish.data(), static_cast<std::uint32_t>(color));
  store_be32(wish.data() + 4, static_cast<std::uint32_t>(key));
  std::vector<Applicant> members;
  const std::vector<Bytes> wishes = group.all_gather(wish);
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    const std::string who = group.name(static_cast<int>(rank));
    if (wishes[rank].size() != wish.size()) throw Error{"split the group", who + " made another call"};
    if (static_cast<int>(load_be32(wishes[rank].data())) != color) continue;
    members.push_back({static_cast<int>(load_be32(wishes[rank].data() + 4)), static_cast<int>(rank)});
  }
  std::ranges::sort(members);

  const bool leads = color >= 0 && members.front().rank == group.rank();
  const UniqueId mine = leads ? make_unique_id() : UniqueId{};
  const std::vector<Bytes> ids =
      group.all_gather(leads ? std::span<const std::byte>{mine} : std::span<const std::byte>{});
  if (color < 0) return std::nullopt;
  const Bytes& id = ids[static_cast<std::size_t>(members.front().rank)];
  if (id.size() != kUniqueIdBytes)
    throw Error{"split the group", group.name(members.front().rank) + " made no meeting place"};
  const auto here = std::ranges::find(members, group.rank(), &Applicant::rank);
  return options_of(std::span<const std::byte, kUniqueIdBytes>{id.data(), kUniqueIdBytes},
                    static_cast<int>(here - members.begin()), static_cast<int>(members.size()));
}

}  // namespace tensorwire::bootstrap
