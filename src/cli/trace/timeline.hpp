// One round of a GPU's proxy, of the trace that it wrote, as a Mermaid chart for documents: microseconds from its
// begin.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tensorwire::cli {

/// @param round its number; nothing: the last one @throws Error when the file has no such round, or no hops at all
[[nodiscard]] std::string draw_timeline(const std::string& path, const nlohmann::json& trace,
                                        std::optional<std::uint64_t> round);

}  // namespace tensorwire::cli
