// Lists as the benchmarks are given them: "8192,65536".
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace tensorwire::bench {

inline std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

inline std::vector<std::size_t> split_numbers(const std::string& text) {
  std::vector<std::size_t> numbers;
  for (const std::string& part : split_list(text)) numbers.push_back(std::stoul(part));
  return numbers;
}

}  // namespace tensorwire::bench
