// Messages between the controller and a rank: text, whole or not at all (SOCK_SEQPACKET).
#pragma once

#include <optional>
#include <string>

namespace tensorwire::chaos {

inline constexpr std::size_t kLongestMessage = 8192;

/// False when the other end is gone.
bool tell(int socket, const std::string& message);
/// Waits for the next one; nothing when the other end is gone, or the time is over.
[[nodiscard]] std::optional<std::string> hear(int socket, int timeout_ms);

}  // namespace tensorwire::chaos
