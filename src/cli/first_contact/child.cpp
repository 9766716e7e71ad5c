#include "cli/first_contact/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "base/units.hpp"

namespace tensorwire::cli {
namespace {

constexpr Ps kChildPoll = 50 * kMillisecond;
constexpr std::size_t kMostOutput = std::size_t{16} << 20;

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// The reading end of a pipe that the child writes to.
class Pipe {
 public:
  explicit Pipe(std::string& text) : text_(text) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("make a pipe", errno);
    read_ = UniqueFd{ends[0]};
    write_ = UniqueFd{ends[1]};
    fcntl(read_.get(), F_SETFL, O_NONBLOCK);
  }

  [[nodiscard]] int child_end() const { return write_.get(); }
  void started() { write_ = UniqueFd{}; }
  [[nodiscard]] pollfd entry() const { return {.fd = read_.get(), .events = POLLIN, .revents = 0}; }
  void drain() {
    std::array<char, 65536> piece;
    for (;;) {
      const ssize_t count = ::read(read_.get(), piece.data(), piece.size());
      if (count > 0 && text_.size() < kMostOutput) text_.append(piece.data(), static_cast<std::size_t>(count));
      if (count > 0) continue;
      if (count == 0) read_ = UniqueFd{};  // poll(2) skips it from here on
      return;
    }
  }

 private:
  std::string& text_;
  UniqueFd read_;
  UniqueFd write_;
};

pid_t spawn(const ChildPlan& plan, const Pipe& out, const Pipe& err, int& error) {
  std::vector<std::string> words = plan.words;
  std::vector<std::string> environment = plan.environment;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.child_end(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.child_end(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // A group of its own: what it starts ends with it, and a terminal's Ctrl-C is for this process alone.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  error = posix_spawnp(&pid, words.front().c_str(), &actions, &attributes, pointers_to(words).data(),
                       environment.empty() ? environ : pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? pid : -1;
}

std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string{text.substr(text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1)};
}

}  // namespace

std::string ChildResult::why() const {
  if (!problem.empty()) return fmt::format("{}: {}", program, problem);
  const std::string words = last_line(err);
  return fmt::format("{} ended with status {}{}{}", program, status, words.empty() ? "" : ": ", words);
}

ChildResult run_child(const ChildPlan& plan, const volatile std::sig_atomic_t& stop) {
  ChildResult result;
  result.program = plan.words.front();
  Pipe out{result.out};
  Pipe err{result.err};
  int error = 0;
  const pid_t pid = spawn(plan, out, err, error);
  if (pid < 0) {
    result.problem = error == ENOENT ? "it is not installed, or not in PATH" : errno_text(error);
    return result;
  }
  out.started();
  err.started();
  const Ps deadline = monotonic_now() + plan.bound;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    std::array<pollfd, 2> entries{out.entry(), err.entry()};
    poll(entries.data(), entries.size(), static_cast<int>(kChildPoll / kMillisecond));
    out.drain();
    err.drain();
    if (entries[0].fd < 0 && entries[1].fd < 0) nap(kChildPoll);
    if (monotonic_now() < deadline && stop == 0) continue;
    result.problem = stop != 0 ? "interrupted" : fmt::format("not over within {}", format_duration(plan.bound));
    kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
    break;
  }
  out.drain();
  err.drain();
  if (result.problem.empty() && WIFSIGNALED(status))
    result.problem = fmt::format("it died by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

const volatile std::sig_atomic_t& never_stops() {
  static const volatile std::sig_atomic_t never = 0;
  return never;
}

std::vector<std::string> this_program(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"/proc/self/exe"};
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length > 0) words[0].assign(path.data(), static_cast<std::size_t>(length));
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace tensorwire::cli
