#include "host/configure/persist.hpp"

#include <fmt/format.h>

#include <cctype>

namespace tensorwire::host {
namespace {

/// As systemd-escape writes a name into that of a unit: "eth2", "rail\\x2d1".
std::string unit_name(const std::string& netdev) {
  std::string name;
  for (const char c : netdev) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' || c == '.';
    name += plain ? std::string{c} : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return name;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> persistent_files(const std::string& etc, const std::string& netdev,
                                                                  const std::string& program,
                                                                  const std::string& options) {
  const std::string unit = fmt::format("tensorwire-configure-{}.service", unit_name(netdev));
  // --force: at boot there is neither a session nor traffic to protect, and nobody who could confirm.
  const std::string service = fmt::format(
      "[Unit]\nDescription=RoCEv2 settings of {0}\nAfter=network-pre.target sys-subsystem-net-devices-{1}.device\n\n"
      "[Service]\nType=oneshot\nExecStart=\"{2}\" configure {0} --apply --force --no-timer{3}{4}\n",
      netdev, unit_name(netdev), program, options.empty() ? "" : " ", options);
  // Where udev gives interfaces no names (net.ifnames=0) the kernel's is the one that stays.
  std::string rule;
  for (const char* const name : {"NAME==\"{}\"", "NAME==\"\", KERNEL==\"{}\""}) {
    rule += fmt::format("ACTION==\"add\", SUBSYSTEM==\"net\", {}, TAG+=\"systemd\", ENV{{SYSTEMD_WANTS}}+=\"{}\"\n",
                        fmt::format(fmt::runtime(name), netdev), unit);
  }
  return {{etc + "/systemd/system/" + unit, service},
          {fmt::format("{}/udev/rules.d/90-tensorwire-configure-{}.rules", etc, netdev), rule}};
}

}  // namespace tensorwire::host
