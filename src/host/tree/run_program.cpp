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

namespace tensorwire::host {

namespace {

constexpr std::size_t kLongestOutput = 1 << 20;
constexpr int kLifeline = 3;  ///< of a detached script

std::string find_program(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/", "/usr/local/sbin/", "/usr/local/bin/"}) {
    std::string path = folder + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

struct Child {
  pid_t pid = 0;
  int error = 0;
};

/// What a program gets besides its words.
struct Surroundings {
  int output = -1;  ///< for what it prints; -1: nowhere
  int lifeline = -1;
  bool detached = false;  ///< in a session of its own; else in a process group of its own
};

Child start(const std::string& path, const std::vector<std::string>& words, const Surroundings& with) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (with.output >= 0) {
    posix_spawn_file_actions_adddup2(&files, with.output, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  if (with.lifeline >= 0) posix_spawn_file_actions_adddup2(&files, with.lifeline, kLifeline);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Signals that this program holds back while it changes something are none of the child's business.
  sigset_t nothing;
  sigemptyset(&nothing);
  posix_spawnattr_setsigmask(&attributes, &nothing);
  const int group = with.detached ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | group));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  char path_variable[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin";
  char language[] = "LC_ALL=C";
  char* environment[] = {path_variable, language, nullptr};
  Child child;
  child.error = posix_spawn(&child.pid, path.c_str(), &files, &attributes, arguments.data(), environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return child;
}

/// All that comes until the end or the deadline. @return false at the deadline.
bool drain(int output, Ps bound, std::string& text) {
  const Ps deadline = monotonic_now() + bound;
  char block[4096];
  while (true) {
    const Ps left = deadline - monotonic_now();
    pollfd waiting{output, POLLIN, 0};
    if (left <= 0) return false;
    if (poll(&waiting, 1, static_cast<int>(left / kMillisecond) + 1) < 0 && errno != EINTR) return false;
    if (waiting.revents == 0) continue;
    const ssize_t got = ::read(output, block, sizeof block);
    if (got <= 0) return true;
    if (text.size() < kLongestOutput) text.append(block, static_cast<std::size_t>(got));
  }
}

/// What a child printed until its end, or ETIMEDOUT. `answer` is given that and its exit status.
template <class MakeAnswer>
Answer answer_of(pid_t child, int output, Ps bound, MakeAnswer answer) {
  std::string text;
  const bool ended = drain(output, bound, text);
  if (!ended) kill(-child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return {{}, ETIMEDOUT};
  return WIFEXITED(status) ? answer(text, WEXITSTATUS(status)) : Answer{"it crashed", EIO};
}

}  // namespace

Answer run_program(const std::vector<std::string>& words, Ps bound) {
  const std::string path = find_program(words.front());
  if (path.empty()) return {words.front() + " is not installed", ENOENT};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {{}, errno};
  const UniqueFd output{ends[0]};
  UniqueFd input{ends[1]};
  const Child child = start(path, words, {.output = input.get()});
  input.reset();
  if (child.error != 0) return {{}, child.error};
  return answer_of(child.pid, output.get(), bound, [](const std::string& text, int status) {
    return status == 0 ? Answer{text, 0} : Answer{text.substr(0, text.find('\n')), EIO};
  });
}

Answer run_apart(int (*body)(std::string& text), Ps bound) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {{}, errno};
  const UniqueFd output{ends[0]};
  UniqueFd input{ends[1]};
  const pid_t child = fork();
  if (child < 0) return {{}, errno};
  if (child == 0) {
    setpgid(0, 0);
    for (const int unwanted : {STDOUT_FILENO, STDERR_FILENO}) dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), unwanted);
    std::string text;
    const int error = body(text);
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t wrote = write(input.get(), text.data() + done, text.size() - done);
      if (wrote <= 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    _exit(error);
  }
  input.reset();
  return answer_of(child, output.get(), bound, [](const std::string& text, int status) {
    return Answer{status == 0 ? text : "", status};
  });
}

int run_detached(const std::string& script, const UniqueFd& lifeline) {
  return start("/bin/sh", {"sh", "-c", script}, {.lifeline = lifeline.get(), .detached = true}).error;
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
