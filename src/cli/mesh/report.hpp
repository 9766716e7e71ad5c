// A mesh for people: a matrix for each rail, in colour where that is wanted, and what is wrong in sentences.
#pragma once

#include <string>

#include "cli/mesh/survey.hpp"

namespace tensorwire::cli {

/// Up to a dozen hosts see numbers; more see a character a pair: 9 as good as usual, 0 a tenth of it or less, x failed.
[[nodiscard]] std::string survey_text(const Survey& survey, bool colour);
[[nodiscard]] nlohmann::json survey_json(const Survey& survey);

/// 0: nothing is wrong, 1: something is, or the measurement was interrupted.
[[nodiscard]] int exit_status(const Survey& survey);

}  // namespace tensorwire::cli
