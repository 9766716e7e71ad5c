// What must not leave a cluster in an archive: values of variables that look like secrets, hardware addresses, and,
// under pseudonyms, the names of hosts. Pure functions of texts.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/options.hpp"

namespace tensorwire::cli {

/// What stands for what: "gpu01" and "host0".
using Replacements = std::vector<std::pair<std::string, std::string>>;

/// The values of variables whose names say that nobody else may know them, and the first line of a secret file.
[[nodiscard]] std::vector<std::string> secrets_in(const bootstrap::Environment& environment);

/// "(removed)" in place of each of `secrets`.
[[nodiscard]] std::string without_secrets(std::string text, const std::vector<std::string>& secrets);

/// "(hardware address)" in place of six pairs of hexadecimal digits and more, with colons or dashes between.
[[nodiscard]] std::string without_hardware_addresses(std::string_view text);

/// Whole words only: letters, digits, dashes and underscores around a name make it another one.
[[nodiscard]] std::string with_other_names(std::string text, const Replacements& names);

/// "host0", "host1", ... for host names in their order, domains and short forms included. Equal names count once.
[[nodiscard]] Replacements names_for(const std::vector<std::string>& hosts);

}  // namespace tensorwire::cli
