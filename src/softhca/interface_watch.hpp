// Watches the network interface of an Hca through rtnetlink: link up or down, addresses come and gone. It owns the
// netlink socket and what was last known of the interface; the engine thread waits on the socket and takes the events.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"
#include "softhca/devices.hpp"
#include "softhca/hca.hpp"

namespace tensorwire::softhca {

/// What a run of rtnetlink messages (rtnetlink(7)) says of one interface.
struct InterfaceChanges {
  std::optional<bool> running = std::nullopt;  ///< what the last link message said: up and with carrier
  bool stopped = false;        ///< some link message said that it does not run, even if a later one says it does
  bool address_added = false;  ///< IPv4; or an address told again, as when a lease is renewed
  bool address_removed = false;
  bool ipv6_changed = false;  ///< an IPv6 address came, went, or was told again
  bool incomplete = false;    ///< messages were lost or cut: only the system knows the state

  friend bool operator==(const InterfaceChanges&, const InterfaceChanges&) = default;
};

/// Adds what `messages`, one or more whole netlink messages, say of the interface. Never reads beyond them.
void parse_changes(std::span<const std::byte> messages, int interface_index, InterfaceChanges& changes) noexcept;
[[nodiscard]] InterfaceChanges parse_changes(std::span<const std::byte> messages, int interface_index) noexcept;

class InterfaceWatch {
 public:
  /// `device.ipv4` is the claimed address. A system that gives no such socket costs one warning and the events.
  explicit InterfaceWatch(const DeviceInfo& device);

  /// -1: there is nothing to wait for.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  void close() noexcept { socket_.reset(); }

  /// Reads what waits and says what became of it, in order. One thread.
  [[nodiscard]] std::vector<HcaEvent> take_events();

  /// The addresses of the device that can be bound, as of the last look: the claimed one, and the IPv6 ones where the
  /// device has them. The thread that calls take_events().
  [[nodiscard]] const std::vector<wire::Gid>& bindable() const noexcept { return bindable_; }

 private:
  [[nodiscard]] InterfaceChanges receive() noexcept;
  /// @throws Error when the addresses cannot be read.
  void look_at_addresses();
  [[nodiscard]] bool has_own_address() const noexcept;
  /// True when the addresses are others than at the last look.
  [[nodiscard]] bool addresses_differ() noexcept;

  const DeviceInfo device_;
  UniqueFd socket_;
  bool active_ = true;
  std::vector<InterfaceAddress> addresses_;
  std::vector<wire::Gid> bindable_;
};

}  // namespace tensorwire::softhca
