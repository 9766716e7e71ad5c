#include "host/configure/persist.hpp"

#include <fmt/format.h>

namespace tensorwire::host {

std::vector<std::pair<std::string, std::string>> persistent_files(const std::string& etc,
                                                                  const std::vector<std::string>& netdevs,
                                                                  const std::string& program,
                                                                  const std::string& options) {
  // --force: at boot there is neither a session nor traffic to protect, and nobody who could confirm.
  const std::string service = fmt::format(
      "[Unit]\nDescription=RoCEv2 settings of %i\nAfter=network-pre.target sys-subsystem-net-devices-%i.device\n\n"
      "[Service]\nType=oneshot\nExecStart={} configure %i --apply --force --no-timer{}{}\n",
      program, options.empty() ? "" : " ", options);
  std::string rules;
  for (const std::string& netdev : netdevs) {
    rules += fmt::format(
        "ACTION==\"add\", SUBSYSTEM==\"net\", NAME==\"{0}\", TAG+=\"systemd\", "
        "ENV{{SYSTEMD_WANTS}}+=\"tensorwire-configure@{0}.service\"\n",
        netdev);
  }
  return {{etc + "/systemd/system/tensorwire-configure@.service", service},
          {etc + "/udev/rules.d/90-tensorwire-configure.rules", rules}};
}

}  // namespace tensorwire::host
