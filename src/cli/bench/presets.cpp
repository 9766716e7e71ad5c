#include "cli/bench/presets.hpp"

#include <array>
#include <string>

#include "base/error.hpp"

namespace tensorwire::cli {

namespace {

constexpr std::array kPresets{
    ModelPreset{"llama-3.1-70b", 80, 8192, "Llama 3.1 70B model configuration"},
    ModelPreset{"llama-3.1-8b", 32, 4096, "Llama 3.1 8B model configuration"},
    ModelPreset{"mixtral-8x22b", 56, 6144, "Mixtral 8x22B model configuration"},
};

}  // namespace

std::span<const ModelPreset> model_presets() noexcept { return kPresets; }

const ModelPreset& find_preset(std::string_view name) {
  std::string known;
  for (const ModelPreset& preset : kPresets) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string{preset.name};
  }
  throw Error{"model '" + std::string{name} + "'", "no such preset",
              "Use one of " + known + ", or give --layers and --hidden"};
}

}  // namespace tensorwire::cli
