// What every reader needs: a file of one line, of one number, a list of names, and facts of what a tool printed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/fact.hpp"
#include "host/facts/rdma.hpp"
#include "host/parse/text.hpp"
#include "host/tree/tools.hpp"
#include "host/tree/tree.hpp"

namespace tensorwire::host {

inline constexpr std::string_view kNotUnderstood = "its text is not understood";

/// `text` as `parse` reads it.
template <class Parse>
auto fact_of(const Answer& answer, const std::string& where, Parse parse)
    -> Fact<typename decltype(parse(std::string_view{}))::value_type> {
  using Result = Fact<typename decltype(parse(std::string_view{}))::value_type>;
  if (!answer.ok()) return Result::unknown(answer.why(), where);
  auto value = parse(std::string_view{answer.text});
  return value ? Result{std::move(*value), where} : Result::unknown(std::string{kNotUnderstood}, where);
}

template <class Parse>
auto fact_in_file(Tree& tree, const std::string& path, Parse parse) {
  return fact_of(tree.text(path), path, parse);
}

template <class Parse>
auto fact_of_tool(Tree& tree, std::string_view tool, const std::string& subject, Parse parse) {
  return fact_of(tree.tool(tool, subject), tool_command(tool, subject), parse);
}

/// The text of a file without blanks around it.
[[nodiscard]] Fact<std::string> line_in(Tree& tree, const std::string& path);

template <class Number>
[[nodiscard]] Fact<Number> number_in_file(Tree& tree, const std::string& path, int base = 10) {
  return fact_in_file(tree, path, [base](std::string_view text) { return number_in<Number>(trimmed(text), base); });
}

/// Every number in a folder of counters, by the names of the files.
[[nodiscard]] Fact<Counters> counters_in(Tree& tree, const std::string& folder);
/// The names in a folder.
[[nodiscard]] Fact<std::vector<std::string>> names_in(Tree& tree, const std::string& path);
/// Whether it exists; unknown where that could not be found out.
[[nodiscard]] Fact<bool> exists(const Answer& answer, const std::string& where);
/// The last part of where a link leads.
[[nodiscard]] Fact<std::string> target_name(Tree& tree, const std::string& path);

}  // namespace tensorwire::host
