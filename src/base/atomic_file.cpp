#include "base/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace tensorwire {

namespace {

/// 0, or an errno.
int write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// What a link leads to; the path itself where nothing is there yet.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real{realpath(path.c_str(), nullptr), &std::free};
  return real ? std::string{real.get()} : path;
}

bool is_file_or_nothing(const std::string& path) noexcept {
  struct stat status = {};
  return stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
}

void write_into(const std::string& path, std::string_view text) {
  const UniqueFd fd{open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  if (!fd) throw system_error("write " + path, errno);
  if (const int error = write_all(fd.get(), text); error != 0) throw system_error("write " + path, error);
}

[[noreturn]] void give_up(const std::string& path, const std::string& beside, int error) {
  unlink(beside.c_str());
  throw system_error("write " + path, error);
}

}  // namespace

void replace_file(const std::string& path, std::string_view text) {
  // A file renamed to /dev/stdout would be in everybody's way from then on.
  if (!is_file_or_nothing(path)) return write_into(path, text);
  const std::string target = resolved(path);
  const std::string beside = target + "." + std::to_string(getpid()) + ".new";
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw system_error("write " + path, errno);
  const int error = write_all(fd, text);
  // Some file systems report a full disk only here.
  if (close(fd) != 0 || error != 0) give_up(path, beside, error != 0 ? error : errno);
  if (rename(beside.c_str(), target.c_str()) != 0) give_up(path, beside, errno);
}

}  // namespace tensorwire
