#include "host/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.hpp"
#include "host/hidden.hpp"
#include "host/parse/text.hpp"
#include "host/writing.hpp"

namespace tensorwire::host {

namespace {

constexpr std::size_t kWidth = 100;

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  [[nodiscard]] std::string bold(std::string_view text) const { return wrapped("1", text); }
  [[nodiscard]] std::string faint(std::string_view text) const { return wrapped("2", text); }
  [[nodiscard]] std::string severity(Severity severity, std::string_view text) const {
    const char* code = severity == Severity::kError ? "1;31" : severity == Severity::kWarning ? "1;33" : "36";
    return wrapped(code, text);
  }

 private:
  [[nodiscard]] std::string wrapped(const char* code, std::string_view text) const {
    return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string{text};
  }
  bool on_;
};

/// "  head   text text" with the further lines indented like the first.
std::string paragraph(std::string_view head, std::string_view text) {
  const std::string indent(12, ' ');
  std::string out = fmt::format("  {:<10}", head);
  std::size_t column = indent.size();
  for (const std::string_view word : words_of(text)) {
    if (column > indent.size() && column + word.size() > kWidth) {
      out += "\n" + indent;
      column = indent.size();
    }
    out.append(column > indent.size() ? " " : "").append(printable(word));
    column += word.size() + 1;
  }
  return out + "\n";
}

std::size_t count(const Diagnosis& diagnosis, Severity severity) {
  return static_cast<std::size_t>(std::ranges::count(diagnosis.findings, severity, &Finding::severity));
}

std::string counted(std::size_t number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string summary(const Diagnosis& diagnosis, const Paint& paint) {
  const std::size_t errors = count(diagnosis, Severity::kError);
  const std::size_t warnings = count(diagnosis, Severity::kWarning);
  const std::string all = fmt::format("{}, {}, {}", counted(errors, "error"), counted(warnings, "warning"),
                                      counted(count(diagnosis, Severity::kInfo), "remark"));
  if (errors + warnings == 0) return paint.bold("nothing to mend: ") + all;
  return paint.severity(errors > 0 ? Severity::kError : Severity::kWarning, all);
}

std::string device_line(const RdmaDevice& device, const RdmaPort& port) {
  const std::string netdev = netdev_of(port);
  return fmt::format("  {}:{} {} {}{}{}\n", printable(device.name), port.number, to_string(device.family),
                     printable(port.state.value_or("state unknown")),
                     port.rate_gbps ? fmt::format(", {} Gb/s", *port.rate_gbps) : "",
                     netdev.empty() ? "" : ", " + printable(netdev));
}

/// The same fact is asked for by several rules and several devices: a line for each reason.
std::string unknown_text(const Diagnosis& diagnosis, const Paint& paint) {
  if (diagnosis.unknown.empty()) return {};
  std::string text = "\n" + paint.bold("could not be judged") + "\n";
  for (const Unknown& unknown : diagnosis.unknown) {
    text += paragraph(unknown.id, printable(unknown.fact) + ": " + printable(unknown.why));
  }
  return text;
}

std::string json_of(const Finding& finding) {
  return fmt::format(R"({{"id":{},"severity":{},"confidence":{},"subject":{},"evidence":{},"cause":{},"remedy":{}}})",
                     json_quoted(finding.id), json_quoted(to_string(finding.severity)),
                     json_quoted(to_string(finding.confidence)), json_quoted(finding.subject),
                     json_array(finding.evidence, json_quoted), json_quoted(finding.cause),
                     json_quoted(finding.remedy));
}

std::string json_of(const Unknown& unknown) {
  return fmt::format(R"({{"id":{},"fact":{},"why":{}}})", json_quoted(unknown.id), json_quoted(unknown.fact),
                     json_quoted(unknown.why));
}

}  // namespace

std::string report_text(const Host& host, const Diagnosis& diagnosis, bool colour) {
  const Paint paint{colour};
  std::string text = summary(diagnosis, paint) + "\n";
  for (const RdmaDevice& device : host.rdma.value_or({})) {
    for (const RdmaPort& port : device.ports) text += device_line(device, port);
  }
  for (const std::string& hidden : hidden_facts(host)) text += paragraph("hidden", hidden + " (this is a container)");
  for (const Finding& finding : diagnosis.findings) text += "\n" + finding_text(finding, colour);
  return text + unknown_text(diagnosis, paint);
}

std::string finding_text(const Finding& finding, bool colour) {
  const Paint paint{colour};
  std::string text = fmt::format("{} {} {} {}\n", paint.severity(finding.severity, to_string(finding.severity)),
                                 paint.bold(finding.id), paint.bold(printable(finding.subject)),
                                 paint.faint(fmt::format("({})", to_string(finding.confidence))));
  text += paragraph("cause", finding.cause);
  const char* head = "evidence";
  for (const std::string& line : finding.evidence) {
    text += paragraph(head, line);
    head = "";
  }
  return text + paragraph("remedy", finding.remedy);
}

std::string report_json(const Host& host, const Diagnosis& diagnosis) {
  const auto devices =
      json_array(host.rdma.value_or({}), [](const RdmaDevice& device) { return json_quoted(device.name); });
  return fmt::format(R"({{"version":1,"devices":{},"in_container":{},"hidden":{},"findings":{},"unknown":{}}})",
                     devices, host.in_container ? (*host.in_container ? "true" : "false") : "null",
                     json_array(hidden_facts(host), json_quoted),
                     json_array(diagnosis.findings, [](const Finding& finding) { return json_of(finding); }),
                     json_array(diagnosis.unknown, [](const Unknown& unknown) { return json_of(unknown); })) +
         "\n";
}

int exit_status(const Diagnosis& diagnosis) {
  if (count(diagnosis, Severity::kError) > 0) return 2;
  return count(diagnosis, Severity::kWarning) > 0 ? 1 : 0;
}

}  // namespace tensorwire::host
