// Stands between a program and the kernel's route netlink (LD_PRELOAD): RTM_GETDCB and RTM_SETDCB for the interfaces in
// the file that DCB_PEER names are answered from there, as net/dcb/dcbnl.c and a driver answer them; all else goes to
// the kernel. Programs that the program starts, with whatever environment, are joined too. Formats: linux/dcbnl.h,
// linux/netlink.h.
#include <dlfcn.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <spawn.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "port.hpp"

namespace {

using dcb_peer::Port;
using Bytes = std::vector<char>;

// ---- messages

class Message {
 public:
  Message(const nlmsghdr& request, std::uint16_t type) : bytes_(NLMSG_HDRLEN) {
    header_ = {.nlmsg_len = 0,
               .nlmsg_type = type,
               .nlmsg_flags = 0,
               .nlmsg_seq = request.nlmsg_seq,
               .nlmsg_pid = request.nlmsg_pid};
  }
  template <class Body>
  void body(const Body& value) {
    append(&value, sizeof value);
  }
  void attribute(std::uint16_t type, const void* value, std::size_t length) {
    const nlattr head{.nla_len = static_cast<std::uint16_t>(NLA_HDRLEN + length), .nla_type = type};
    append(&head, sizeof head);
    append(value, length);
  }
  void byte(std::uint16_t type, std::uint8_t value) { attribute(type, &value, 1); }
  [[nodiscard]] std::size_t begin_nest(std::uint16_t type) {
    const std::size_t at = bytes_.size();
    attribute(type, nullptr, 0);
    return at;
  }
  void end_nest(std::size_t at) {
    const auto length = static_cast<std::uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &length, sizeof length);
  }
  [[nodiscard]] Bytes done() {
    header_.nlmsg_len = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &header_, sizeof header_);
    return bytes_;
  }

 private:
  void append(const void* from, std::size_t length) {
    if (length != 0)
      bytes_.insert(bytes_.end(), static_cast<const char*>(from), static_cast<const char*>(from) + length);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  nlmsghdr header_;
  Bytes bytes_;
};

/// Calls `use(type, bytes, length)` for each attribute.
template <class Use>
void for_attributes(const char* at, std::size_t left, Use use) {
  nlattr head;
  while (left >= sizeof head) {
    std::memcpy(&head, at, sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > left) return;
    use(head.nla_type & NLA_TYPE_MASK, at + NLA_HDRLEN, std::size_t{head.nla_len} - NLA_HDRLEN);
    const std::size_t step = std::min<std::size_t>(NLA_ALIGN(head.nla_len), left);
    at += step;
    left -= step;
  }
}

template <class Value>
Value value_of(const char* at, std::size_t length) {
  Value value{};
  std::memcpy(&value, at, std::min(length, sizeof value));
  return value;
}

struct Request {
  nlmsghdr header;
  dcbmsg dcb;
  std::string interface;
  Bytes attributes;
};

/// False for what is not about DCB.
bool read(const char* bytes, std::size_t length, Request& request) {
  if (length < NLMSG_LENGTH(sizeof(dcbmsg))) return false;
  request.header = value_of<nlmsghdr>(bytes, length);
  if (request.header.nlmsg_type != RTM_GETDCB && request.header.nlmsg_type != RTM_SETDCB) return false;
  if (request.header.nlmsg_len > length) return false;
  request.dcb = value_of<dcbmsg>(bytes + NLMSG_HDRLEN, sizeof(dcbmsg));
  const std::size_t offset = NLMSG_SPACE(sizeof(dcbmsg));
  request.attributes.assign(bytes + offset, bytes + request.header.nlmsg_len);
  for_attributes(request.attributes.data(), request.attributes.size(), [&](int type, const char* at, std::size_t n) {
    if (type == DCB_ATTR_IFNAME) request.interface.assign(at, strnlen(at, n));
  });
  return true;
}

// ---- answers

void ieee_get(Message& reply, const Request& request, const Port& port) {
  reply.attribute(DCB_ATTR_IFNAME, request.interface.c_str(), request.interface.size() + 1);
  const std::size_t ieee = reply.begin_nest(DCB_ATTR_IEEE);
  reply.attribute(DCB_ATTR_IEEE_ETS, &port.ets, sizeof port.ets);
  reply.attribute(DCB_ATTR_IEEE_PFC, &port.pfc, sizeof port.pfc);
  if (port.driver != dcb_peer::Driver::kBnxt) {
    dcbnl_buffer buffer = port.buffer;
    buffer.total_size = 0;
    for (const auto size : buffer.buffer_size) buffer.total_size += size;
    reply.attribute(DCB_ATTR_DCB_BUFFER, &buffer, sizeof buffer);
  }
  const std::size_t table = reply.begin_nest(DCB_ATTR_IEEE_APP_TABLE);
  for (const auto& [key, priority] : port.apps) {
    const dcb_app app{.selector = key.first, .priority = priority, .protocol = key.second};
    reply.attribute(DCB_ATTR_IEEE_APP, &app, sizeof app);
  }
  reply.end_nest(table);
  reply.end_nest(ieee);
  reply.byte(DCB_ATTR_DCBX, port.dcbx);
}

/// The first failure ends it, as in the kernel; what was set before stays.
int ieee_change(const Request& request, Port& port) {
  const bool deletes = request.dcb.cmd == DCB_CMD_IEEE_DEL;
  int status = 0;
  const auto change = [&](int type, const char* at, std::size_t n) {
    if (status != 0) return;
    if (type == DCB_ATTR_IEEE_ETS && !deletes) status = port.set_ets(value_of<ieee_ets>(at, n));
    if (type == DCB_ATTR_IEEE_PFC && !deletes) status = port.set_pfc(value_of<ieee_pfc>(at, n));
    if (type != DCB_ATTR_IEEE_APP_TABLE) return;
    for_attributes(at, n, [&](int, const char* app_at, std::size_t app_length) {
      const auto app = value_of<dcb_app>(app_at, app_length);
      if (status == 0) status = deletes ? port.delete_app(app) : port.set_app(app);
    });
  };
  for_attributes(request.attributes.data(), request.attributes.size(), [&](int type, const char* at, std::size_t n) {
    if (type == DCB_ATTR_IEEE) for_attributes(at, n, change);
  });
  return status;
}

/// 0, or an errno that takes the place of the reply.
int answer(Message& reply, const Request& request, Port& port) {
  switch (request.dcb.cmd) {
    case DCB_CMD_IEEE_GET:
      if (port.driver == dcb_peer::Driver::kVirtual) return EOPNOTSUPP;
      ieee_get(reply, request, port);
      return 0;
    case DCB_CMD_GDCBX:
      reply.byte(DCB_ATTR_DCBX, port.dcbx);
      return 0;
    case DCB_CMD_IEEE_SET:
    case DCB_CMD_IEEE_DEL:
      reply.byte(DCB_ATTR_IEEE, static_cast<std::uint8_t>(-ieee_change(request, port)));
      return 0;
    case DCB_CMD_SDCBX: {
      int status = EINVAL;
      for_attributes(request.attributes.data(), request.attributes.size(), [&](int type, const char* at, std::size_t) {
        if (type == DCB_ATTR_DCBX) status = port.set_dcbx(static_cast<std::uint8_t>(*at));
      });
      reply.byte(DCB_ATTR_DCBX, static_cast<std::uint8_t>(status));
      return 0;
    }
    default:
      return EOPNOTSUPP;
  }
}

Bytes status_message(const Request& request, int error) {
  Message message(request.header, NLMSG_ERROR);
  message.body(nlmsgerr{.error = -error, .msg = request.header});
  return message.done();
}

// ---- between the program and the kernel

std::mutex mutex;
std::map<int, std::deque<Bytes>> waiting;  ///< answers not read yet, by descriptor

/// False: the kernel should have it.
bool take(int fd, const char* bytes, std::size_t length) {
  const char* const path = std::getenv("DCB_PEER");
  Request request;
  if (path == nullptr || !read(bytes, length, request)) return false;
  dcb_peer::Ports ports(path);
  Port* const port = ports.find(request.interface);
  if (port == nullptr) return false;
  Message reply(request.header, request.header.nlmsg_type);
  reply.body(dcbmsg{.dcb_family = AF_UNSPEC, .cmd = request.dcb.cmd, .dcb_pad = 0});
  const int error = answer(reply, request, *port);
  ports.write();
  const std::lock_guard guard{mutex};
  if (error == 0) waiting[fd].push_back(reply.done());
  if (error != 0 || (request.header.nlmsg_flags & NLM_F_ACK) != 0) {
    waiting[fd].push_back(status_message(request, error));
  }
  return true;
}

bool give(int fd, Bytes& bytes, bool keep) {
  const std::lock_guard guard{mutex};
  const auto found = waiting.find(fd);
  if (found == waiting.end() || found->second.empty()) return false;
  bytes = found->second.front();
  if (!keep) found->second.pop_front();
  return true;
}

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

Bytes gathered(const msghdr& message) {
  Bytes all;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* const begin = static_cast<const char*>(message.msg_iov[i].iov_base);
    all.insert(all.end(), begin, begin + message.msg_iov[i].iov_len);
  }
  return all;
}

}  // namespace

extern "C" {

ssize_t sendto(int fd, const void* bytes, size_t length, int flags, const sockaddr* to, socklen_t to_length) {
  if (take(fd, static_cast<const char*>(bytes), length)) return static_cast<ssize_t>(length);
  static const auto real = original<decltype(sendto)>("sendto");
  return real(fd, bytes, length, flags, to, to_length);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const Bytes all = gathered(*message);
  if (take(fd, all.data(), all.size())) return static_cast<ssize_t>(all.size());
  static const auto real = original<decltype(sendmsg)>("sendmsg");
  return real(fd, message, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  Bytes bytes;
  if (!give(fd, bytes, (flags & MSG_PEEK) != 0)) {
    static const auto real = original<decltype(recvmsg)>("recvmsg");
    return real(fd, message, flags);
  }
  std::size_t done = 0;
  for (std::size_t i = 0; i < message->msg_iovlen && done < bytes.size(); ++i) {
    const std::size_t here = std::min(message->msg_iov[i].iov_len, bytes.size() - done);
    std::memcpy(message->msg_iov[i].iov_base, bytes.data() + done, here);
    done += here;
  }
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (message->msg_name != nullptr) {
    std::memcpy(message->msg_name, &kernel, std::min<std::size_t>(message->msg_namelen, sizeof kernel));
    message->msg_namelen = sizeof kernel;
  }
  message->msg_controllen = 0;
  message->msg_flags = done < bytes.size() ? MSG_TRUNC : 0;
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? bytes.size() : done);
}

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* files,
                const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  std::vector<std::string> ours;
  for (const char* const name : {"LD_PRELOAD", "DCB_PEER"}) {
    if (const char* const value = std::getenv(name)) ours.push_back(std::string(name) + "=" + value);
  }
  std::vector<char*> all;
  for (; *environment != nullptr; ++environment) all.push_back(*environment);
  for (std::string& variable : ours) all.push_back(variable.data());
  all.push_back(nullptr);
  static const auto real = original<decltype(posix_spawn)>("posix_spawn");
  return real(pid, path, files, attributes, arguments, all.data());
}

}  // extern "C"
