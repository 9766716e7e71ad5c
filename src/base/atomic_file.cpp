#include "base/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.hpp"

namespace tensorwire {

namespace {

[[noreturn]] void give_up(const std::string& path, const std::string& beside, int error) {
  unlink(beside.c_str());
  throw system_error("write " + path, error);
}

}  // namespace

void replace_file(const std::string& path, std::string_view text) {
  const std::string beside = path + "." + std::to_string(getpid()) + ".new";
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw system_error("write " + path, errno);
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOSPC;
      close(fd);
      give_up(path, beside, error);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  // Some file systems report a full disk only here.
  if (close(fd) != 0) give_up(path, beside, errno);
  if (rename(beside.c_str(), path.c_str()) != 0) give_up(path, beside, errno);
}

}  // namespace tensorwire
