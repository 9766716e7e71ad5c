// What makes a configuration survive a reboot and a reload of the driver, which no QoS setting does by itself: a
// systemd service for each interface, and a udev rule that starts it when the interface appears.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tensorwire::host {

/// (path, content) of each file below `etc`, usually /etc.
/// @param program, options  how this program is called, "/usr/bin/tensorwire" and "--mtu 9000"
[[nodiscard]] std::vector<std::pair<std::string, std::string>> persistent_files(const std::string& etc,
                                                                                const std::vector<std::string>& netdevs,
                                                                                const std::string& program,
                                                                                const std::string& options);

}  // namespace tensorwire::host
