// What a host answers: the text of a file, the names in a folder, where a link leads, whether a device can be opened,
// what a tool prints. Everything that this room knows of a host comes through one Tree, live or recorded, so whatever
// can be found out on a live host can be found out from its recording.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tensorwire::host {

/// The kinds of question. The value is the mark of such a line in a recording.
enum class Ask : char {
  kText = '=',    ///< the content of a file
  kNames = '/',   ///< the names in a folder, sorted, one a line
  kTarget = '>',  ///< the path without symbolic links
  kOpens = '?',   ///< whether a device node can be opened for reading and writing; the text is empty
  kTool = '$',    ///< what a tool prints; the name is that of a Tool, a space, and its subject
};

/// The question was never asked when the recording was made.
inline constexpr int kNotRecorded = -1;

struct Answer {
  std::string text;
  int error = 0;  ///< errno, or kNotRecorded; a tool that fails gives its first line as `text`

  [[nodiscard]] bool ok() const noexcept { return error == 0; }
  /// Why there is no answer: "No such file or directory (ENOENT)".
  [[nodiscard]] std::string why() const;

  bool operator==(const Answer&) const = default;
};

class Tree {
 public:
  Tree() = default;
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  virtual ~Tree() = default;

  [[nodiscard]] virtual Answer answer(Ask kind, const std::string& name) = 0;

  [[nodiscard]] Answer text(const std::string& path) { return answer(Ask::kText, path); }
  [[nodiscard]] Answer names(const std::string& path) { return answer(Ask::kNames, path); }
  [[nodiscard]] Answer target(const std::string& path) { return answer(Ask::kTarget, path); }
  [[nodiscard]] Answer opens(const std::string& path) { return answer(Ask::kOpens, path); }
  [[nodiscard]] Answer tool(std::string_view tool, std::string_view subject);
};

// Two paths have a meaning of their own in every tree, because who they belong to differs from host to host:
//   /proc/target/...  the process that is looked at (`--pid N`, else the program itself)
//   ~/...             the home folder of that process

}  // namespace tensorwire::host
