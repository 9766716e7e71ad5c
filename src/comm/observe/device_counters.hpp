// The device counters that tell of lost packets and slow receivers, as differences since the communicator was made.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/link.hpp"
#include "comm/statistics.hpp"

namespace tensorwire::comm {

class DeviceCounters {
 public:
  explicit DeviceCounters(const Link& link);

  /// Any thread, while the link lives.
  [[nodiscard]] std::vector<DeviceCount> read() const;

 private:
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"port_xmit_packets", "port_rcv_packets", "retransmitted_packets", "local_ack_timeout_err", "packet_seq_err",
       "implied_nak_seq_err", "out_of_sequence", "duplicate_request", "rnr_nak_retry_err", "out_of_buffer",
       "rx_discards", "np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"});

  const Link* link_;
  std::array<std::optional<std::uint64_t>, kNames.size()> at_birth_;
};

/// CommStats::retransmissions.
[[nodiscard]] std::uint64_t retransmissions(const std::vector<DeviceCount>& counts) noexcept;

}  // namespace tensorwire::comm
