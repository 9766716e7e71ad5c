// A datagram (UD) queue pair written a second time: what it sends, whom it hears, what stands in front of a received
// datagram.
#pragma once

#include <array>
#include <cstdint>

#include "reference_unanswered.hpp"

namespace tensorwire::transport::faults {

class ReferenceUd final : public ReferenceUnanswered {
 public:
  static constexpr std::uint32_t kHeaderBytes = 40;  ///< in front of every datagram

  ReferenceUd(Registrations& registrations, Hits& hits);

  void on_sent(const TxDesc& desc);

  [[nodiscard]] Judgement judge(const wire::Headers& headers, std::uint32_t bytes, const PacketSource& source) const;
  void commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes);
  void reject(const wire::Headers& headers);

  /// The IP header as its receiver is told of it: IPv6 as it is, IPv4 behind twenty zeros.
  [[nodiscard]] static std::array<std::byte, kHeaderBytes> network_header(const wire::Headers& headers,
                                                                          std::uint32_t bytes,
                                                                          const PacketSource& source);

 private:
  void complete_datagram(const wire::Headers& headers, WcStatus status, std::uint32_t bytes);
};

}  // namespace tensorwire::transport::faults
