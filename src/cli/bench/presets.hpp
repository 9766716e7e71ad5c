// The decode workloads that people ask about: how many all-reduces a token costs and how large each one is.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tensorwire::cli {

struct ModelPreset {
  std::string_view name;
  std::uint32_t layers;  ///< transformer layers; each ends two row-parallel projections, so two all-reduces
  std::uint32_t hidden;  ///< elements of one token's hidden state
  std::string_view source;
};

/// All-reduces of one layer: after the attention output projection and after the MLP's (Megatron-LM, arXiv:1909.08053).
inline constexpr std::uint32_t kAllReducesPerLayer = 2;

[[nodiscard]] std::span<const ModelPreset> model_presets() noexcept;

/// @throws Error that lists the known names.
[[nodiscard]] const ModelPreset& find_preset(std::string_view name);

}  // namespace tensorwire::cli
