#include "host/tree/live_tree.hpp"

#include <cerrno>

#include "host/tree/folder_tree.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host {

namespace {

constexpr std::string_view kTarget = "/proc/target/";

/// The value of HOME among the NUL-separated variables of a process.
std::string home_of(const std::string& environment) {
  std::size_t begin = 0;
  while (begin < environment.size()) {
    const std::size_t end = std::min(environment.find('\0', begin), environment.size());
    const std::string_view variable = std::string_view{environment}.substr(begin, end - begin);
    if (variable.starts_with("HOME=/")) return std::string{variable.substr(5)};
    begin = end + 1;
  }
  return {};
}

}  // namespace

LiveTree::LiveTree(const std::string& process, bool asks_firmware)
    : process_("/proc/" + process),
      asks_firmware_(asks_firmware),
      home_(home_of(read_file(process_ + "/environ").text)) {}

std::string LiveTree::real_name(const std::string& name) const {
  if (name.starts_with(kTarget)) return process_ + "/" + name.substr(kTarget.size());
  if (name.starts_with("~/")) return home_.empty() ? std::string{} : home_ + name.substr(1);
  return name;
}

Answer LiveTree::answer(Ask kind, const std::string& name) {
  if (kind == Ask::kTool && !asks_firmware_ && name.starts_with(tool::kMlxconfig)) {
    return {"it takes seconds and was not asked (--firmware)", ECANCELED};
  }
  if (kind == Ask::kTool) return run_tool(name);
  const std::string path = real_name(name);
  if (path.empty()) return {{}, ENOENT};
  switch (kind) {
    case Ask::kText:
      return read_file(path);
    case Ask::kNames:
      return list_folder(path);
    case Ask::kTarget:
      return real_path(path);
    case Ask::kOpens:
      return open_node(path);
    case Ask::kTool:
      break;
  }
  return {{}, EINVAL};
}

}  // namespace tensorwire::host
