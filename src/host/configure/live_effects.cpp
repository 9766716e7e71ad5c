#include "host/configure/live_effects.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "host/parse/counters.hpp"
#include "host/parse/text.hpp"
#include "host/read/parts.hpp"
#include "host/tree/run_program.hpp"

namespace tensorwire::host {
namespace {

/// Of one command. mlnx_qos alone takes a second or more, and a NIC that changes PFC waits for its link.
constexpr Ps kChangeBound = 30 * kSecond;
constexpr int kMostAncestors = 64;
constexpr Ps kTrafficInterval = 200 * kMillisecond;

/// One write, as the kernel's files want it.
std::string write_word(const std::string& path, const std::string& text) {
  const UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC)};
  if (!fd) return errno_text(errno);
  const ssize_t written = ::write(fd.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  return errno_text(written < 0 ? errno : EIO);
}

/// iproute2's dcb numbers its messages by the second. Where one begins between its reading and its writing, it takes
/// the acknowledgement of the former for a wrong answer to the latter, and fails although the driver did it.
bool is_late_acknowledgement(const Action& action, const Answer& answer) {
  return action.program.front() == "dcb" && answer.text.ends_with("Protocol error");
}

Fact<double> bytes_of(Tree& tree, const std::string& netdev) {
  const std::string folder = "/sys/class/net/" + netdev + "/statistics/";
  const auto rx = number_in_file<std::uint64_t>(tree, folder + "rx_bytes");
  const auto tx = number_in_file<std::uint64_t>(tree, folder + "tx_bytes");
  if (!rx || !tx) return Fact<double>::unknown(rx ? tx.why() : rx.why(), folder);
  return {static_cast<double>(*rx + *tx), folder};
}

std::string text_of(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

/// The value of SSH_CONNECTION in a process, or in the nearest process above it: sudo takes the variable away, but not
/// from the shell that it was called in.
std::string ssh_connection() {
  LiveTree tree;
  std::string process = "self";
  for (int level = 0; level < kMostAncestors; ++level) {
    const auto variables = parse_environment(tree.text("/proc/" + process + "/environ").text);
    if (const auto found = variables.find("SSH_CONNECTION"); found != variables.end()) return found->second;
    const std::string status = tree.text("/proc/" + process + "/status").text;
    const auto parent = between(status, "PPid:", "\n");
    if (!parent || trimmed(*parent) == "0") break;
    process = trimmed(*parent);
  }
  return {};
}

}  // namespace

std::string LiveEffects::perform(const Action& action) {
  if (action.program.empty()) return write_word(action.path, action.text);
  Answer answer = run_program(action.program, kChangeBound);
  if (is_late_acknowledgement(action, answer)) answer = run_program(action.program, kChangeBound);
  if (answer.ok()) return {};
  return answer.text.empty() ? answer.why() : answer.text;
}

PortState LiveEffects::read(const std::string& netdev) {
  LiveTree tree;
  return read_port_state(tree, netdev);
}

std::vector<Witness> LiveEffects::hear(const PortState& state, const Wanted& wanted) {
  LiveTree tree;
  return witnesses(tree, state, wanted);
}

std::string session_interface() {
  const std::string connection = ssh_connection();  // client address and port, server address and port
  const auto words = words_of(connection);
  ifaddrs* all = nullptr;
  if (words.size() < 4 || ::getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{all, ::freeifaddrs};
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const bool internet = at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6;
    if (internet && text_of(at->ifa_addr) == words[2]) return at->ifa_name;
  }
  return {};
}

Fact<double> traffic(const std::string& netdev) {
  LiveTree tree;
  const auto before = bytes_of(tree, netdev);
  const Ps start = monotonic_now();
  nap(kTrafficInterval);
  const auto after = bytes_of(tree, netdev);
  if (!before || !after) return before ? after : before;
  const double seconds = static_cast<double>(monotonic_now() - start) / static_cast<double>(kSecond);
  return {(*after - *before) / seconds, after.where()};
}

}  // namespace tensorwire::host
