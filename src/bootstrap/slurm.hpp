// Slurm's compressed lists, as far as a rendezvous needs them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tensorwire::bootstrap {

/// The first host of a node list: "gpu[03-07,11],login1" gives "gpu03". nullopt when the text is not such a list.
[[nodiscard]] std::optional<std::string> first_slurm_host(std::string_view node_list);

/// Tasks on each node from SLURM_TASKS_PER_NODE: "4(x2),3" gives {4, 4, 3}. nullopt when the text is not such a list.
[[nodiscard]] std::optional<std::vector<int>> slurm_tasks_per_node(std::string_view text);

}  // namespace tensorwire::bootstrap
