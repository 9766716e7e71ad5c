#include "host/record.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <map>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "host/parse/counters.hpp"
#include "host/parse/text.hpp"
#include "host/read/read.hpp"
#include "host/tree/folder_tree.hpp"

namespace tensorwire::host {

namespace {

constexpr std::size_t kLongestRecording = std::size_t{64} << 20;

std::string fabric_variables(std::string_view environment) {
  std::string kept;
  for (const auto& [name, value] : parse_environment(environment)) {
    if (is_fabric_variable(name)) kept.append(name).append("=").append(value).append(1, '\0');
  }
  return kept;
}

std::string rdma_libraries(std::string_view maps) {
  std::string kept;
  for (const std::string_view line : lines_of(maps)) {
    const auto slash = line.find('/');
    if (slash == std::string_view::npos || !is_rdma_library(line.substr(line.rfind('/') + 1))) continue;
    const std::string path = std::string{line.substr(slash)} + "\n";
    if (kept.find(path) == std::string::npos) kept += path;
  }
  return kept;
}

/// The lines that begin with `head`.
std::string lines_with(std::string_view text, std::string_view head) {
  std::string kept;
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with(head)) kept.append(line).append("\n");
  }
  return kept;
}

/// Overwrites the Device Serial Number capability (0x0003) of configuration space.
void blank_serial_number(std::string& config) {
  constexpr std::size_t kExtended = 256;
  constexpr unsigned char kSerialNumber = 0x03;
  std::size_t at = kExtended;
  for (std::size_t steps = 0; at >= kExtended && at + 12 <= config.size() && steps < 1024; ++steps) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(config[at + i]); };
    const std::size_t next = (std::size_t{byte(3)} << 4) | (byte(2) >> 4);
    if (byte(0) == kSerialNumber && byte(1) == 0) config.replace(at + 4, 8, 8, '\0');
    at = next;
  }
}

}  // namespace

void remove_private(Recording& recording) {
  std::map<std::string, std::string> guids;  // the same card keeps the same replacement
  recording.filter([&guids](Ask kind, std::string_view name, Answer& answer) {
    if (kind != Ask::kText || !answer.ok()) return true;
    if (name == "/proc/target/environ") answer.text = fabric_variables(answer.text);
    if (name == "/proc/1/environ")
      answer.text = answer.text.find("container=") == std::string::npos ? "" : "container=";
    if (name == "/proc/target/maps") answer.text = rdma_libraries(answer.text);
    if (name == "/proc/target/limits") answer.text = lines_with(answer.text, "Max locked memory");
    if (name.ends_with("/information")) answer.text = lines_with(answer.text, "Model:");
    if (name.ends_with("/config")) blank_serial_number(answer.text);
    if (name.ends_with("/sys_image_guid")) {
      answer.text = guids.try_emplace(answer.text, "card " + std::to_string(guids.size() + 1)).first->second;
    }
    return true;
  });
}

std::string save(const Recording& recording, const std::string& folder) {
  constexpr mode_t kMode = 0755;
  if (mkdir(folder.c_str(), kMode) != 0 && errno != EEXIST) throw system_error("make folder " + folder, errno);
  std::string path = folder + "/" + std::string{kRecordingFile};
  replace_file(path, recording.to_text());
  return path;
}

std::unique_ptr<Tree> open_recorded(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw system_error("open recording " + path, errno);
  const std::string file = S_ISDIR(status.st_mode) ? path + "/" + std::string{kRecordingFile} : path;
  const Answer text = read_file(file, kLongestRecording);
  if (text.ok()) return std::make_unique<Recording>(Recording::from_text(text.text, file));
  if (S_ISDIR(status.st_mode) && text.error == ENOENT) return std::make_unique<FolderTree>(path);
  throw system_error("open recording " + file, text.error);
}

}  // namespace tensorwire::host
