// A datagram queue pair beside the connections of a host, its reference, and the application that uses it: to whom it
// sends what. Datagrams of all hosts go wherever the seed says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference_ud.hpp"
#include "unanswered_end.hpp"

namespace tensorwire::transport::faults {

/// Few keys, so that strangers' fit now and then.
inline constexpr std::uint32_t kFirstQkey = 0x1000;
inline constexpr std::uint32_t kQkeys = 3;

class DatagramEnd final : public UnansweredEnd {
 public:
  DatagramEnd(const Scenario& scenario, Random& random, Hits& hits, SimHost& on, std::size_t host_number);

  /// `number` makes QPNs unique. Made and brought up at once: nobody needs to agree with anybody.
  void create(std::uint8_t number, SharedQueue* shared);
  /// Whom its datagrams may be for.
  struct Target {
    std::size_t host;
    std::uint32_t qpn;
    std::uint32_t qkey;
  };
  bool post_sends(std::span<const Target> targets, std::span<SimHost* const> hosts, Ps now);

  struct Datagram {
    std::uint64_t address = 0;  ///< of its bytes, which never change
    std::uint32_t length = 0;
    std::size_t to_host = 0;
    std::uint32_t delivered = 0;
  };

  [[nodiscard]] ReferenceUnanswered& reference() noexcept override { return ref; }

  ReferenceUd ref;
  std::vector<Datagram> datagrams;  ///< by work request

 private:
  static const Kind kKind;

  void bring_up(Ps now) override;
  [[nodiscard]] DatagramAddress choose_address(const SimHost& to);
  [[nodiscard]] ReferenceUd::Send choose_send(const Target& target, const DatagramAddress& address,
                                              std::uint64_t& from);
  [[nodiscard]] bool post_send(std::span<const Target> targets, std::span<SimHost* const> hosts, Ps now);
};

}  // namespace tensorwire::transport::faults
