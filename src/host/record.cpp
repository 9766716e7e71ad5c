#include "host/record.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <map>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "host/parse/counters.hpp"
#include "host/parse/mlxconfig.hpp"
#include "host/parse/systemd.hpp"
#include "host/parse/text.hpp"
#include "host/read/read.hpp"
#include "host/tree/folder_tree.hpp"
#include "host/tree/tools.hpp"

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

/// Everything else that is read lies below /sys or /proc.
bool is_settings_file(std::string_view name) { return !name.starts_with("/sys/") && !name.starts_with("/proc/"); }

std::string fabric_lines(std::string_view settings) {
  std::string kept;
  for (const auto& [name, value] : parse_nccl_conf(settings)) {
    if (is_fabric_variable(name)) kept.append(name).append("=").append(value).append("\n");
  }
  return kept;
}

/// What tells that this is a container.
std::string kept_marks(std::string_view environment) {
  for (const std::string_view mark : {"container=", "KUBERNETES_SERVICE_HOST="}) {
    if (environment.find(mark) != std::string_view::npos) return std::string{mark};
  }
  return {};
}

/// `ip neigh show` without "lladdr 52:54:00:77:00:02".
std::string without_link_addresses(std::string_view text) {
  std::string kept;
  for (const std::string_view line : lines_of(text)) {
    const auto words = words_of(line);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "lladdr") {
        ++i;
      } else {
        kept.append(kept.empty() || kept.ends_with('\n') ? "" : " ").append(words[i]);
      }
    }
    kept += "\n";
  }
  return kept;
}

/// Without the lines that hold GUIDs and serial numbers.
std::string without_serials(std::string_view text) {
  std::string kept;
  for (const std::string_view line : lines_of(text)) {
    const bool is_serial = line.find("_guid:") != std::string_view::npos ||
                           line.find("Serial Number") != std::string_view::npos ||
                           line.find("[SN]") != std::string_view::npos;
    if (!is_serial) kept.append(line).append("\n");
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
    if (kind == Ask::kTool && name == tool::kNeighbours) answer.text = without_link_addresses(answer.text);
    if (kind == Ask::kTool && (name == tool::kVerbsDevices || name == tool::kLspci))
      answer.text = without_serials(answer.text);
    if (kind == Ask::kTool && name.starts_with(tool::kMlxconfig)) answer.text = fabric_settings(answer.text);
    if (kind != Ask::kText || !answer.ok()) return true;
    if (name == "/proc/target/environ") answer.text = fabric_variables(answer.text);
    if (name == "/proc/1/environ") answer.text = kept_marks(answer.text);
    if (name == "/proc/meminfo") answer.text = lines_with(answer.text, "CmaTotal:");
    if (name == "/proc/target/maps") answer.text = rdma_libraries(answer.text);
    if (name == "/proc/target/limits") answer.text = lines_with(answer.text, "Max locked memory");
    if (name == "/proc/target/cgroup") answer.text = service_in(answer.text) + "\n";
    if (name.find("/systemd/system/") != std::string_view::npos) {
      const auto limit = limit_memlock_in(answer.text);
      answer.text = limit ? "LimitMEMLOCK=" + std::string{*limit} + "\n" : "";
    } else if (is_settings_file(name)) {
      answer.text = fabric_lines(answer.text);
    }
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
