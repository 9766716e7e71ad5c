#include "host/configure/undo_record.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "host/configure/apply.hpp"
#include "host/tree/run_program.hpp"

namespace tensorwire::host {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUndo = ".undo.sh";
constexpr std::string_view kGuard = "guard-";
constexpr Ps kUndoBound = 300 * kSecond;

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

/// For a shell.
std::string quoted(const std::string& text) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return all + "'";
}

/// dcb, where it reads before it writes, fails now and then although the driver did it (live_effects.cpp): twice does
/// no harm.
std::string shell_line(const Action& action) {
  const std::string line = action.shell();
  const bool reads_first = line.starts_with("dcb ets ") || line.starts_with("dcb pfc ");
  return reads_first ? line + " || " + line : line;
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error("make " + folder, error.value(), "Name another folder with --state");
}

}  // namespace

Guard::Guard(UniqueFd lifeline, std::string marker, bool waits)
    : lifeline_(std::move(lifeline)), marker_(std::move(marker)), waits_(waits) {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) sigaddset(&held, signal);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

Guard::~Guard() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void Guard::finished() noexcept {
  if (!waits_) ::unlink(marker_.c_str());
  static_cast<void>(::send(lifeline_.get(), "done\n", 5, MSG_NOSIGNAL));
  lifeline_.reset();
}

void Guard::stop() noexcept {
  ::unlink(marker_.c_str());
  lifeline_.reset();
}

UniqueFd UndoRecords::lock() const {
  make_folder(folder_);
  UniqueFd folder{::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!folder) throw system_error("open " + folder_, errno);
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error{"configure", "another tensorwire configure is changing ports right now", "Wait for it to end"};
  }
  return folder;
}

std::string UndoRecords::path(const std::string& netdev) const {
  return fmt::format("{}/{}{}", folder_, netdev, kUndo);
}

bool UndoRecords::exists(const std::string& netdev) const { return ::access(path(netdev).c_str(), F_OK) == 0; }

std::string UndoRecords::write(const PortDifference& difference, std::span<const std::string> new_files) const {
  make_folder(folder_);
  std::string text = fmt::format(
      "#!/bin/sh\n# Sets {0} back to what it was before tensorwire configure changed it ({1}).\n"
      "# Each line is tried; the status is 1 if one failed.\nfailed=0\n\n",
      difference.netdev, difference.recipe);
  const std::string record = text_of(path(difference.netdev));
  const std::string earlier = commands_in(record);
  for (const std::string& file : new_files) text += fmt::format("rm -f {} || failed=1\n", quoted(file));
  for (const Action& action : undo_of(difference)) text += shell_line(action) + " || failed=1\n";
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
  if (!run_program({"sh", path(netdev)}, kUndoBound).ok()) return false;
  return ::unlink(path(netdev).c_str()) == 0;
}

/// Children inherit the lifeline: where this process is killed, the guard waits for the command that still runs.
Guard UndoRecords::guard(std::span<const std::string> netdevs, std::optional<Ps> bound) const {
  const std::string marker = fmt::format("{}/{}{}", folder_, kGuard, ::getpid());
  replace_file(marker, "tensorwire configure confirm removes this file and so stops the timer\n");
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw system_error("make a lifeline", errno);
  UniqueFd ours{ends[0]};
  const UniqueFd theirs{ends[1]};
  std::string script = fmt::format(
      "read -r end <&3; exec 3<&-; [ -e {0} ] || exit 0; [ \"$end\" != done ] || sleep {1}; [ -e {0} ] || exit 0; rm "
      "-f {0}",
      quoted(marker), bound.value_or(0) / kSecond);
  for (const std::string& netdev : netdevs) script += fmt::format("; sh {0} && rm -f {0}", quoted(path(netdev)));
  if (const int error = run_detached(script, theirs); error != 0) throw system_error("start a guard", error);
  ::fcntl(ours.get(), F_SETFD, 0);
  return Guard{std::move(ours), marker, bound.has_value()};
}

std::size_t UndoRecords::disarm() const {
  std::size_t stopped = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().filename().string().starts_with(kGuard) && fs::remove(entry.path(), error)) ++stopped;
  }
  return stopped;
}

}  // namespace tensorwire::host
