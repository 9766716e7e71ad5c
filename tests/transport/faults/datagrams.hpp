// A datagram queue pair beside the connections of a host, its reference, and the application that uses it: to whom it
// sends what, when its buffers come, and what it does after an error. Datagrams of all hosts go wherever the seed says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "reference_ud.hpp"
#include "shared_queue.hpp"
#include "sim_host.hpp"
#include "slots.hpp"

namespace tensorwire::transport::faults {

/// Few keys, so that strangers' fit now and then.
inline constexpr std::uint32_t kFirstQkey = 0x1000;
inline constexpr std::uint32_t kQkeys = 3;

class DatagramEnd {
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
  bool post_receives();
  /// Out of SQE or ERR, some time.
  bool recover(Ps now);
  void abort(Ps now);
  void restart(Ps now);
  /// The engine may have found a source that is not registered.
  void discover_failure();
  /// The buffer of a completion holds the network header and what was sent.
  void check_received(std::uint64_t wr_id, std::span<const std::byte> header, std::span<const std::byte> sent) const;
  [[nodiscard]] bool finished() const noexcept;
  [[nodiscard]] std::string describe() const;

  struct Datagram {
    std::uint64_t address = 0;  ///< of its bytes, which never change
    std::uint32_t length = 0;
    std::size_t to_host = 0;
    std::uint32_t delivered = 0;
  };

  SimHost* host;
  std::size_t host_number;
  std::uint32_t qpn = 0;
  QueuePair* qp = nullptr;
  SimCq* cq = nullptr;
  SharedQueue* srq = nullptr;
  ReferenceUd ref;
  Slots slots;                      ///< of its own queue
  std::vector<Datagram> datagrams;  ///< by work request

 private:
  void create_qp();
  void bring_up(Ps now);
  void modify(QpState to, std::uint32_t mask, Ps now);
  [[nodiscard]] DatagramAddress choose_address(const SimHost& to);
  [[nodiscard]] ReferenceUd::Send choose_send(const Target& target, const DatagramAddress& address,
                                              std::uint64_t& from);
  [[nodiscard]] bool post_send(std::span<const Target> targets, std::span<SimHost* const> hosts, Ps now);
  [[nodiscard]] bool post_receive();
  [[nodiscard]] SgeList source_list(std::uint64_t address, std::uint32_t length);

  const Scenario& scenario_;
  Random& random_;
  Hits& hits_;
  QpCaps caps_;
  Zone source_;
  std::uint32_t number_of_sends_;
  std::vector<std::byte> scratch_;
};

}  // namespace tensorwire::transport::faults
