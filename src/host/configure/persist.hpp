// What makes a configuration survive a reboot and a reload of the driver, which no QoS setting does by itself: for each
// interface a systemd service, and a udev rule that starts it when the interface appears.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tensorwire::host {

/// (path, content) of the files of an interface below `etc`, usually /etc.
/// @param program, options  how this program is called, "/usr/bin/tensorwire" and "--mtu 9000"
[[nodiscard]] std::vector<std::pair<std::string, std::string>> persistent_files(const std::string& etc,
                                                                                const std::string& netdev,
                                                                                const std::string& program,
                                                                                const std::string& options);

}  // namespace tensorwire::host
