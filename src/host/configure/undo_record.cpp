#include "host/configure/undo_record.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "host/configure/apply.hpp"

namespace tensorwire::host {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUndo = ".undo.sh";
constexpr std::string_view kTimer = "timer-";

std::string text_of(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Commands of an earlier record, without its first lines.
std::string commands_in(const std::string& record) {
  const auto begin = record.find("\n\n");
  return begin == std::string::npos ? std::string{} : record.substr(begin + 2);
}

/// With no terminal, in a session of its own where `detached`.
pid_t start_shell(const std::vector<std::string>& arguments, bool detached) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (detached) {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (detached) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::vector<char*> words{const_cast<char*>("sh")};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  std::array<char*, 2> environment{const_cast<char*>("PATH=/usr/sbin:/usr/bin:/sbin:/bin"), nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, "/bin/sh", &files, &attributes, words.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw system_error("start a shell", error);
  return pid;
}

}  // namespace

std::string UndoRecords::path(const std::string& netdev) const {
  return fmt::format("{}/{}{}", folder_, netdev, kUndo);
}

bool UndoRecords::exists(const std::string& netdev) const { return ::access(path(netdev).c_str(), F_OK) == 0; }

std::string UndoRecords::write(const PortDifference& difference) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw system_error("make " + folder_, error.value(), "Name another folder with --state");
  std::string text = fmt::format(
      "#!/bin/sh\n# Sets {0} back to what it was before tensorwire configure changed it ({1}).\n"
      "# Each line is tried; the status is 1 if one failed.\nfailed=0\n\n",
      difference.netdev, difference.recipe);
  const std::string record = text_of(path(difference.netdev));
  const std::string earlier = commands_in(record);
  for (const Action& action : undo_of(difference)) text += action.shell() + " || failed=1\n";
  text += earlier.empty() ? "exit $failed\n" : earlier;
  replace_file(path(difference.netdev), text);
  return record;
}

void UndoRecords::replace(const std::string& netdev, const std::string& text) const {
  if (text.empty()) {
    ::unlink(path(netdev).c_str());
  } else {
    replace_file(path(netdev), text);
  }
}

bool UndoRecords::run(const std::string& netdev) const {
  const pid_t pid = start_shell({path(netdev)}, false);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return false;
  return ::unlink(path(netdev).c_str()) == 0;
}

void UndoRecords::arm(std::span<const std::string> netdevs, Ps bound) const {
  const std::string timer = fmt::format("{}/{}{}", folder_, kTimer, ::getpid());
  replace_file(timer, "tensorwire configure confirm removes this file and so stops the timer\n");
  std::string script = fmt::format("sleep {}; [ -e {} ] || exit 0; rm -f {}", bound / kSecond, timer, timer);
  for (const std::string& netdev : netdevs) script += fmt::format("; sh {0} && rm -f {0}", path(netdev));
  start_shell({"-c", script}, true);
}

std::size_t UndoRecords::disarm() const {
  std::size_t stopped = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename().string().starts_with(kTimer) && fs::remove(entry.path(), error)) ++stopped;
  }
  return stopped;
}

}  // namespace tensorwire::host
