// A rule: a pure function from the facts of a host to findings, with the words of its page in docs/rules/. The rules
// are data: all_rules() is the only list of them, and report, documentation and tests are made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/fact.hpp"
#include "host/facts/host.hpp"

namespace tensorwire::host {

enum class Severity : std::uint8_t { kInfo, kWarning, kError };
enum class Confidence : std::uint8_t { kPossible, kLikely, kCertain };
[[nodiscard]] std::string_view to_string(Severity severity) noexcept;
[[nodiscard]] std::string_view to_string(Confidence confidence) noexcept;

struct Finding {
  std::string id;
  Severity severity = Severity::kInfo;
  Confidence confidence = Confidence::kPossible;
  std::string subject;                ///< "mlx5_0", "eth2", "NCCL_IB_TC"
  std::vector<std::string> evidence;  ///< "/sys/class/net/eth2/mtu: 1500": what was read, and where
  std::string cause;
  std::string remedy;
};

/// A fact that a rule needed and could not get.
struct Unknown {
  std::string id;
  std::string fact;  ///< "access control of 0000:3a:00.0"
  std::string why;   ///< "/sys/.../config: the kernel shows it to root only"
};

struct Diagnosis {
  std::vector<Finding> findings;
  std::vector<Unknown> unknown;
};

struct Rule;

/// What a rule hands its verdicts to.
class Judgement {
 public:
  Judgement(const Rule& rule, Diagnosis& diagnosis) : rule_(rule), diagnosis_(diagnosis) {}

  void found(Confidence confidence, std::string subject, std::string cause, std::string remedy,
             std::vector<std::string> evidence);
  template <class T>
  void unknown(std::string what, const Fact<T>& fact) {
    not_known(std::move(what), fact.where(), fact.why());
  }

 private:
  void not_known(std::string what, const std::string& where, const std::string& why);

  const Rule& rule_;
  Diagnosis& diagnosis_;
};

struct Rule {
  std::string_view id;  ///< "TW-GID-003": never used anew for something else
  Severity severity;
  std::string_view title;  ///< what is wrong, in a line
  std::string_view why;    ///< what it does to traffic, how one comes there, where that is known from
  void (*judge)(const Host& host, Judgement& judgement);
};

/// The rules about one subject: a file of src/host/rules/ and a section of the list in docs/rules/.
struct RuleGroup {
  std::string_view title;
  std::span<const Rule> rules;
};

[[nodiscard]] std::span<const RuleGroup> all_rules();

/// Applies them all. Findings come by severity, then in the order of the rules.
[[nodiscard]] Diagnosis diagnose(const Host& host);

/// "where: text".
template <class T>
[[nodiscard]] std::string evidence(const Fact<T>& fact, std::string_view text) {
  return fact.where() + ": " + std::string{text};
}

}  // namespace tensorwire::host
