#include "host/tree/run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/clock.hpp"
#include "base/time.hpp"

namespace tensorwire::host {

namespace {

constexpr Ps kBound = 1 * kSecond;
constexpr std::size_t kLongestOutput = 1 << 20;

std::string find_program(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/", "/usr/local/sbin/", "/usr/local/bin/"}) {
    std::string path = folder + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

struct Child {
  pid_t pid = 0;
  int output = -1;
  int error = 0;
};

Child start(const std::string& path, const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {.error = errno};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  char path_variable[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char language[] = "LC_ALL=C";
  char* environment[] = {path_variable, language, nullptr};
  Child child{.output = ends[0]};
  child.error = posix_spawn(&child.pid, path.c_str(), &actions, nullptr, arguments.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  return child;
}

/// All that comes until the end or the deadline. @return false at the deadline.
bool drain(int output, std::string& text) {
  const Ps deadline = monotonic_now() + kBound;
  char block[4096];
  while (true) {
    const Ps left = deadline - monotonic_now();
    pollfd waiting{output, POLLIN, 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left / kMillisecond) + 1) < 0) return false;
    if (waiting.revents == 0) continue;
    const ssize_t got = read(output, block, sizeof block);
    if (got <= 0) return true;
    if (text.size() < kLongestOutput) text.append(block, static_cast<std::size_t>(got));
  }
}

}  // namespace

Answer run_program(const std::vector<std::string>& words) {
  const std::string path = find_program(words.front());
  if (path.empty()) return {words.front() + " is not installed", ENOENT};
  const Child child = start(path, words);
  if (child.error != 0) {
    if (child.output >= 0) close(child.output);
    return {{}, child.error};
  }
  Answer answer;
  const bool ended = drain(child.output, answer.text);
  close(child.output);
  if (!ended) kill(child.pid, SIGKILL);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return {{}, ETIMEDOUT};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return answer;
  return {answer.text.substr(0, answer.text.find('\n')), EIO};
}

Answer find_line(const std::string& path, std::string_view text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "re"), std::fclose};
  if (!file) return {{}, errno};
  char line[1024];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::string_view{line}.find(text) != std::string_view::npos) return {line, 0};
  }
  return {};
}

}  // namespace tensorwire::host
