#include "bootstrap/unique_id.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "bootstrap/secret.hpp"
#include "bootstrap/socket.hpp"

namespace tensorwire::bootstrap {

namespace {

// [0,8) magic, the last byte is the version  [8,10) port  [10] addresses  [16,32) job  [32,64) secret
// [64,128) four IPv6 addresses, IPv4 ones mapped
constexpr std::array<unsigned char, 8> kIdMagic{'T', 'W', 'U', 'N', 'I', 'Q', 0, 1};
constexpr std::size_t kPortAt = 8;
constexpr std::size_t kAddressCountAt = 10;
constexpr std::size_t kJobAt = 16;
constexpr std::size_t kJobBytes = 16;
constexpr std::size_t kSecretAt = kJobAt + kJobBytes;
constexpr std::size_t kAddressesAt = kSecretAt + kNonceBytes;
constexpr std::size_t kAddressBytes = sizeof(in6_addr);
constexpr std::size_t kMostAddresses = (kUniqueIdBytes - kAddressesAt) / kAddressBytes;
static_assert(kMostAddresses == 4);

/// Ports that make_unique_id() opened and no rank 0 has taken yet, by job.
class OpenPorts {
 public:
  void put(const std::string& job, std::shared_ptr<Socket> listener) {
    const std::scoped_lock lock{mutex_};
    listeners_[job] = std::move(listener);
  }
  [[nodiscard]] std::shared_ptr<Socket> take(const std::string& job) {
    const std::scoped_lock lock{mutex_};
    auto node = listeners_.extract(job);
    return node.empty() ? nullptr : std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Socket>> listeners_;
};

OpenPorts& open_ports() {
  static OpenPorts ports;
  return ports;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

in6_addr mapped(const in_addr& address) {
  in6_addr result{};
  result.s6_addr[10] = result.s6_addr[11] = 0xff;
  std::memcpy(result.s6_addr + 12, &address, sizeof address);
  return result;
}

std::string text_of(const in6_addr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&address) != 0) {
    inet_ntop(AF_INET, address.s6_addr + 12, text.data(), text.size());
  } else {
    inet_ntop(AF_INET6, &address, text.data(), text.size());
  }
  return text.data();
}

struct InterfaceAddress {
  std::string interface;
  in6_addr address{};
  int rank = 0;  ///< what is tried first has the lowest
};

/// Addresses of interfaces that are up. Link-local ones mean something else on every host and are left out.
std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw system_error("list this host's addresses", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{list, freeifaddrs};
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (entry->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      found.push_back({entry->ifa_name, mapped(address.sin_addr), loopback ? 2 : 0});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr) != 0) continue;
      found.push_back({entry->ifa_name, address.sin6_addr, loopback ? 3 : 1});
    }
  }
  std::ranges::stable_sort(found, {}, &InterfaceAddress::rank);
  return found;
}

std::vector<in6_addr> chosen_addresses() {
  const auto wish = env::get("TENSORWIRE_BOOTSTRAP_ADDRESS");
  std::vector<in6_addr> result;
  if (wish) {
    in_addr v4{};
    in6_addr v6{};
    if (inet_pton(AF_INET, wish->c_str(), &v4) == 1) return {mapped(v4)};
    if (inet_pton(AF_INET6, wish->c_str(), &v6) == 1) return {v6};
  }
  for (const InterfaceAddress& entry : interface_addresses()) {
    if (wish && entry.interface != *wish) continue;
    if (result.size() < kMostAddresses) result.push_back(entry.address);
  }
  // The ranks of this host can always meet here.
  const in6_addr loopback = mapped({htonl(INADDR_LOOPBACK)});
  const auto is_loopback = [&](const in6_addr& a) { return IN6_ARE_ADDR_EQUAL(&a, &loopback) != 0; };
  if (!wish && std::ranges::none_of(result, is_loopback)) {
    if (result.size() == kMostAddresses) result.pop_back();
    result.push_back(loopback);
  }
  if (result.empty()) {
    throw Error{fmt::format("read TENSORWIRE_BOOTSTRAP_ADDRESS={}", *wish),
                "it is neither an address nor an interface with one", "Give an address of this host, or unset it"};
  }
  return result;
}

/// Listens on a free port of every interface: of both families where the id names both.
std::shared_ptr<Socket> open_port(const std::vector<in6_addr>& addresses, std::uint16_t& port) {
  const bool with_v6 = std::ranges::any_of(addresses, [](const in6_addr& a) { return IN6_IS_ADDR_V4MAPPED(&a) == 0; });
  sockaddr_in6 both{};
  both.sin6_family = AF_INET6;
  sockaddr_in v4_only{};
  v4_only.sin_family = AF_INET;
  const Address any = with_v6 ? Address{&both, sizeof both} : Address{&v4_only, sizeof v4_only};
  int error = 0;
  auto listener = std::make_shared<Socket>(listen_on(any, error, with_v6));
  if (!*listener) throw system_error("open a port for the other ranks", error);
  port = local_address(*listener).port();
  return listener;
}

}  // namespace

UniqueId make_unique_id() {
  const std::vector<in6_addr> addresses = chosen_addresses();
  std::uint16_t port = 0;
  std::shared_ptr<Socket> listener = open_port(addresses, port);

  UniqueId id{};
  std::memcpy(id.data(), kIdMagic.data(), kIdMagic.size());
  store_be16(id.data() + kPortAt, port);
  id[kAddressCountAt] = static_cast<std::byte>(addresses.size());
  const Nonce job = fresh_nonce();
  const Nonce secret = fresh_nonce();
  std::memcpy(id.data() + kJobAt, job.data(), kJobBytes);
  std::memcpy(id.data() + kSecretAt, secret.data(), secret.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    std::memcpy(id.data() + kAddressesAt + i * kAddressBytes, &addresses[i], kAddressBytes);
  }
  open_ports().put(hex(std::span{id}.subspan(kJobAt, kJobBytes)), std::move(listener));
  return id;
}

std::uint64_t job_number(std::span<const std::byte, kUniqueIdBytes> id) noexcept {
  return load_be64(id.data() + kJobAt);
}

std::shared_ptr<Socket> take_port(std::span<const std::byte, kUniqueIdBytes> id) {
  return open_ports().take(hex(id.subspan<kJobAt, kJobBytes>()));
}

GroupOptions options_of(std::span<const std::byte, kUniqueIdBytes> id, int rank, int world_size,
                        std::shared_ptr<Socket> port) {
  const std::size_t count = static_cast<std::size_t>(id[kAddressCountAt]);
  if (std::memcmp(id.data(), kIdMagic.data(), kIdMagic.size()) != 0 || count == 0 || count > kMostAddresses) {
    throw Error{"join by a unique id", "these bytes are not an id of this version",
                "Make it with twGetUniqueId in rank 0's process and give all ranks the same 128 bytes"};
  }
  GroupOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.master_port = load_be16(id.data() + kPortAt);
  for (std::size_t i = 0; i < count; ++i) {
    in6_addr address{};
    std::memcpy(&address, id.data() + kAddressesAt + i * kAddressBytes, kAddressBytes);
    (i == 0 ? options.master_address : options.more_addresses.emplace_back()) = text_of(address);
  }
  options.job = hex(id.subspan<kJobAt, kJobBytes>());
  options.secret = hex(id.subspan<kSecretAt, kNonceBytes>());
  options.timeout = env::get_duration("TENSORWIRE_BOOTSTRAP_TIMEOUT", options.timeout);
  options.launcher = "unique id";
  check_options(options);
  if (rank != 0) return options;
  options.listener = port ? std::move(port) : take_port(id);
  if (!options.listener && world_size > 1) {
    throw Error{"join by a unique id as rank 0", "this process did not make the id, or has used it before",
                "Call twGetUniqueId in rank 0's process, once for each communicator"};
  }
  return options;
}

}  // namespace tensorwire::bootstrap
