#include "softhca/peer_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "softhca/address_claim.hpp"
#include "softhca/shm_ring.hpp"

namespace tensorwire::softhca {
namespace {

constexpr std::uint64_t kLocalMagic = 0x7477'6c6f'6361'6c00;  // "twlocal"
constexpr std::size_t kDescriptors = 3;

/// "4fd9c1b2-..." to 16 bytes; zeros where the file is missing, which then compare equal on both sides.
std::array<std::byte, 16> read_boot_id() noexcept {
  std::array<std::byte, 16> id{};
  const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 40> digits{};
  if (!fd || ::read(fd.get(), digits.data(), digits.size()) <= 0) return id;
  std::size_t nibble = 0;
  for (const char c : digits) {
    const auto value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0 || nibble == 2 * id.size()) continue;
    id[nibble / 2] = id[nibble / 2] << 4 | static_cast<std::byte>(value);
    ++nibble;
  }
  return id;
}

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) noexcept : at_(out.data()) {}
  void u32(std::uint32_t v) noexcept { store_le32(std::exchange(at_, at_ + 4), v); }
  void u64(std::uint64_t v) noexcept {
    u32(static_cast<std::uint32_t>(v));
    u32(static_cast<std::uint32_t>(v >> 32));
  }
  void bytes(const void* from, std::size_t n) noexcept { std::memcpy(std::exchange(at_, at_ + n), from, n); }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) noexcept : at_(in.data()) {}
  std::uint32_t u32() noexcept { return load_le32(std::exchange(at_, at_ + 4)); }
  std::uint64_t u64() noexcept {
    const std::uint64_t low = u32();
    return low | std::uint64_t{u32()} << 32;
  }
  void bytes(void* to, std::size_t n) noexcept { std::memcpy(to, std::exchange(at_, at_ + n), n); }

 private:
  const std::byte* at_;
};

/// Takes the descriptors out of a control message, exactly kDescriptors of them; others are closed.
bool take_descriptors(const msghdr& message, Offer& out) noexcept {
  std::array<UniqueFd, kDescriptors> fds;
  std::size_t count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      UniqueFd owned(fd);
      if (count < kDescriptors) fds[count] = std::move(owned);
      ++count;
    }
  }
  if (count != kDescriptors) return false;
  out.memory = std::move(fds[0]);
  out.wake_consumer = std::move(fds[1]);
  out.wake_producer = std::move(fds[2]);
  return true;
}

/// An eventfd has no file type. Writing to a pipe, a terminal or a file that a peer passed instead could block us or
/// raise a signal.
bool is_anonymous(int fd) noexcept {
  struct stat status = {};
  return ::fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

bool make_non_blocking(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

Refusal read_probe(const Offer& offer) noexcept {
  std::uint64_t found = 0;
  const iovec local{&found, sizeof found};
  const iovec remote{reinterpret_cast<void*>(offer.greeting.probe.address), sizeof found};
  const ssize_t n = ::process_vm_readv(static_cast<pid_t>(offer.pid), &local, 1, &remote, 1, 0);
  if (n != sizeof found) return errno == EPERM || errno == ENOSYS ? Refusal::kPtracePolicy : Refusal::kWrongProbe;
  return found == offer.greeting.probe.value ? Refusal::kNone : Refusal::kWrongProbe;
}

}  // namespace

HostIdentity own_identity() {
  struct stat status = {};
  const bool known = ::stat("/proc/self/ns/pid", &status) == 0;
  return {.pid = static_cast<std::uint32_t>(::getpid()),
          .pid_namespace = known ? std::uint64_t{status.st_ino} : 0,
          .boot_id = read_boot_id()};
}

std::array<std::byte, Greeting::kBytes> encode(const Greeting& greeting) noexcept {
  std::array<std::byte, Greeting::kBytes> out;
  Writer w(out);
  w.u64(kLocalMagic);
  w.u32(greeting.version);
  w.u32(greeting.sender.pid);
  w.u64(greeting.sender.pid_namespace);
  w.bytes(greeting.sender.boot_id.data(), greeting.sender.boot_id.size());
  w.bytes(greeting.address.bytes.data(), greeting.address.bytes.size());
  w.u32(greeting.ring_slots);
  w.u32(greeting.slot_data_bytes);
  w.u64(greeting.probe.address);
  w.u64(greeting.probe.value);
  w.u64(greeting.withdrawals);
  return out;
}

std::optional<Greeting> decode_greeting(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kMagicAndVersion = 12;
  if (bytes.size() < kMagicAndVersion) return std::nullopt;
  Reader r(bytes);
  if (r.u64() != kLocalMagic) return std::nullopt;
  Greeting greeting;
  greeting.version = r.u32();
  if (greeting.version != kLocalProtocolVersion) return greeting;
  if (bytes.size() != Greeting::kBytes) return std::nullopt;
  greeting.sender.pid = r.u32();
  greeting.sender.pid_namespace = r.u64();
  r.bytes(greeting.sender.boot_id.data(), greeting.sender.boot_id.size());
  r.bytes(greeting.address.bytes.data(), greeting.address.bytes.size());
  greeting.ring_slots = r.u32();
  greeting.slot_data_bytes = r.u32();
  greeting.probe.address = r.u64();
  greeting.probe.value = r.u64();
  greeting.withdrawals = r.u64();
  return greeting;
}

std::string_view text(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kNone:
      return "accepted";
    case Refusal::kOtherVersion:
      return "the peer process runs another version of Tensorwire";
    case Refusal::kOtherUser:
      return "the peer process belongs to another user";
    case Refusal::kOtherPidNamespace:
      return "the peer process lives in another PID namespace (start both containers with one, for example --pid=host)";
    case Refusal::kOtherHost:
      return "the peer process runs under another kernel";
    case Refusal::kWrongProcessId:
      return "the peer process cannot see ours";
    case Refusal::kWrongGeometry:
      return "the peer process expects a ring of another shape";
    case Refusal::kPtracePolicy:
      return "the kernel forbids the peer process to read our memory (see kernel.yama.ptrace_scope; 0 allows it; in a "
             "container, CAP_SYS_PTRACE does)";
    case Refusal::kWrongProbe:
      return "the peer process did not find what it looked for in our memory";
    case Refusal::kBadAddress:
      return "the peer process does not take our address for one";
    case Refusal::kTooManyChannels:
      return "the peer process has too many same-host peers";
  }
  return "the peer process refuses for a reason that this version does not know";
}

ConnectResult connect_to_peer(std::uint32_t ipv4, std::uint8_t slot, int bound_ms) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return {{}, errno};
  // The send timeout bounds connect() too: a listener that accepts nobody has a queue that fills.
  const timeval bound{bound_ms / 1000, bound_ms % 1000 * 1000};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound) != 0) return {{}, errno};
  sockaddr_un address{};
  const socklen_t length = rendezvous_address(ipv4, slot, address);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return {{}, errno == EAGAIN ? ETIMEDOUT : errno};
  }
  // Anybody can listen under an abstract name: what we offer is for our own user's processes only.
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {{}, errno};
  if (peer.uid != ::geteuid()) return {{}, EACCES};
  if (!make_non_blocking(fd.get())) return {{}, errno};
  return {std::move(fd), 0};
}

int send_offer(int socket, const Greeting& greeting, int memory, int wake_consumer, int wake_producer) noexcept {
  auto bytes = encode(greeting);
  iovec part{bytes.data(), bytes.size()};
  const std::array<int, kDescriptors> fds{memory, wake_consumer, wake_producer};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof fds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(c), fds.data(), sizeof fds);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

OfferStatus receive_offer(int socket, Offer& out) noexcept {
  std::array<std::byte, 2 * Greeting::kBytes> bytes{};
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kDescriptors)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? OfferStatus::kNotYet : OfferStatus::kClosed;
  const bool descriptors = take_descriptors(message, out);
  if (n == 0) return OfferStatus::kClosed;
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || !descriptors) return OfferStatus::kMalformed;
  const auto greeting = decode_greeting(std::span(bytes).first(static_cast<std::size_t>(n)));
  if (!greeting) return OfferStatus::kMalformed;
  for (const UniqueFd* fd : {&out.wake_consumer, &out.wake_producer}) {
    if (!is_anonymous(fd->get()) || !make_non_blocking(fd->get())) return OfferStatus::kMalformed;
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return OfferStatus::kClosed;
  out.greeting = *greeting;
  out.pid = peer.pid > 0 ? static_cast<std::uint32_t>(peer.pid) : 0;
  out.uid = peer.uid;
  return OfferStatus::kOk;
}

Refusal check_offer(const Offer& offer, const HostIdentity& own) noexcept {
  const Greeting& greeting = offer.greeting;
  if (greeting.version != kLocalProtocolVersion) return Refusal::kOtherVersion;
  if (offer.uid != ::geteuid()) return Refusal::kOtherUser;
  if (greeting.sender.boot_id != own.boot_id) return Refusal::kOtherHost;
  if (greeting.sender.pid_namespace != own.pid_namespace) return Refusal::kOtherPidNamespace;
  if (offer.pid == 0 || offer.pid != greeting.sender.pid) return Refusal::kWrongProcessId;
  if (greeting.ring_slots != kRingSlots || greeting.slot_data_bytes != kSlotDataBytes) return Refusal::kWrongGeometry;
  if (greeting.address.is_zero()) return Refusal::kBadAddress;
  return read_probe(offer);
}

}  // namespace tensorwire::softhca
