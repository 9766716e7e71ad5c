#include "trace.hpp"

#include <fmt/format.h>

namespace tensorwire::transport::faults {

std::string Trace::text() const {
  static constexpr std::array<const char*, 3> kTruths = {"", "corrupt", "forged"};
  std::string text;
  for (std::size_t i = count_ < kEntries ? 0 : count_ - kEntries; i < count_; ++i) {
    const Entry& e = entries_[i % kEntries];
    const wire::Headers& h = e.headers;
    text += fmt::format("  {:>12} ns  host {}  ", e.time / kNanosecond, e.host);
    if (h.dest_qpn == 0) {
      text += fmt::format("{}\n", e.what);
      continue;
    }
    text += fmt::format("{:<10}  {:<36} to {:06x} psn {:06x} bytes {:<5} {}", e.what, wire::name(h.opcode), h.dest_qpn,
                        h.psn, e.bytes, h.ack_req ? "ack " : "");
    if (wire::traits(h.opcode).aeth) text += fmt::format("syndrome {:02x} msn {} ", h.syndrome, h.msn);
    text += fmt::format("{} {}\n", kTruths[static_cast<std::size_t>(e.truth)], e.verdict);
  }
  return text;
}

}  // namespace tensorwire::transport::faults
