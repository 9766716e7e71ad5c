#include "base/fd_passing.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace tensorwire {

namespace {

constexpr int kBacklog = 256;
constexpr std::size_t kLabelBytes = 12;  // token, sender

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw Error("pass memory between processes", "the path " + path + " is too long for a socket",
                "Set TMPDIR to a shorter one");
  }
  std::ranges::copy(path, address.sun_path);
  return address;
}

const sockaddr* generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

UniqueFd new_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw system_error("open a socket to pass memory between processes", errno);
  return fd;
}

/// A message with room for one descriptor.
struct Datagram {
  std::array<std::byte, kLabelBytes> label{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{label.data(), label.size()};
  msghdr header{};

  Datagram() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
};

bool of_this_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

bool readable(int fd, Ps deadline) {
  const Ps left = std::max<Ps>(deadline - monotonic_now(), 0);
  pollfd waited{fd, POLLIN, 0};
  return ::poll(&waited, 1, static_cast<int>(left / kMillisecond)) > 0;
}

}  // namespace

FdInbox::FdInbox() {
  const char* folder = std::getenv("TMPDIR");
  path_ =
      fmt::format("{}/tensorwire-{:016x}.sock", folder != nullptr && *folder != '\0' ? folder : "/tmp", entropy64());
  const sockaddr_un address = address_of(path_);
  listener_ = new_socket();
  if (::bind(listener_.get(), generic(address), sizeof address) != 0) {
    throw system_error("bind " + path_ + " to pass memory between processes", errno,
                       "Set TMPDIR to a folder that all ranks of this host can write to");
  }
  if (::chmod(path_.c_str(), 0600) != 0 || ::listen(listener_.get(), kBacklog) != 0) {
    const int error = errno;
    ::unlink(path_.c_str());
    throw system_error("listen on " + path_, error);
  }
}

FdInbox::~FdInbox() { ::unlink(path_.c_str()); }

FdInbox::Delivery FdInbox::receive(std::uint64_t token, Ps deadline) {
  while (readable(listener_.get(), deadline)) {
    const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection || !of_this_user(connection.get()) || !readable(connection.get(), deadline)) continue;
    Datagram message;
    const ssize_t got = ::recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
    if (got < 0 || control == nullptr || control->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
    UniqueFd owned(fd);
    if (got != kLabelBytes || load_be64(message.label.data()) != token) continue;
    return {load_be32(message.label.data() + 8), std::move(owned)};
  }
  throw Error("receive memory of other ranks at " + path_, "not all came in time");
}

void deliver_fd(const std::string& path, std::uint64_t token, std::uint32_t sender, int fd) {
  const sockaddr_un address = address_of(path);
  const UniqueFd connection = new_socket();
  if (::connect(connection.get(), generic(address), sizeof address) != 0) {
    throw system_error("reach " + path + " to pass memory to another rank", errno,
                       "Ranks of one host must share a folder ($TMPDIR, else /tmp) and a user");
  }
  Datagram message;
  store_be64(message.label.data(), token);
  store_be32(message.label.data() + 8, sender);
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  if (::sendmsg(connection.get(), &message.header, MSG_NOSIGNAL) != static_cast<ssize_t>(kLabelBytes)) {
    throw system_error("pass memory to another rank at " + path, errno);
  }
}

}  // namespace tensorwire
