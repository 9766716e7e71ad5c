// How ranks are named in messages.
#pragma once

#include <string>
#include <vector>

namespace tensorwire::bootstrap {

/// "rank 3", "ranks 1, 2 and 5"; long lists are cut: "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 120 more".
[[nodiscard]] std::string rank_list(const std::vector<int>& ranks);

}  // namespace tensorwire::bootstrap
