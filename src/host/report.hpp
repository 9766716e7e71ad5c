// A diagnosis for people (text) and for programs (JSON). docs/doctor.md describes the JSON.
#pragma once

#include <string>

#include "host/rule.hpp"

namespace tensorwire::host {

/// Summary first, then findings by severity, then what could not be judged. `colour`: with ANSI escapes.
[[nodiscard]] std::string report_text(const Host& host, const Diagnosis& diagnosis, bool colour);
[[nodiscard]] std::string report_json(const Host& host, const Diagnosis& diagnosis);

/// A finding as it stands in the report.
[[nodiscard]] std::string finding_text(const Finding& finding, bool colour);

/// 0: nothing to mend, 1: warnings, 2: errors.
[[nodiscard]] int exit_status(const Diagnosis& diagnosis);

}  // namespace tensorwire::host
