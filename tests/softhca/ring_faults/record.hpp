// A record as the model has it, and the record format read a second time, from its description in local_record.hpp, as
// the judge of what decode() makes of a damaged slot.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "softhca/local_record.hpp"
#include "transport/faults/packet.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca::faults {

struct Record {
  transport::faults::Label label;
  wire::Headers headers;
  std::uint32_t bytes = 0;
  bool malformed = false;           ///< nothing else counts then
  std::vector<RemotePiece> pieces;  ///< where its payload is pulled from; none: it is in `payload`
  std::vector<std::byte> payload;
  std::uint64_t withdrawals = 0;  ///< with `pieces`

  [[nodiscard]] bool pulled() const noexcept { return !pieces.empty(); }
  /// No process has memory at any of its pieces.
  [[nodiscard]] bool nowhere() const noexcept;
};

/// Nothing when these bytes are not a record.
[[nodiscard]] std::optional<Record> read_record(RingSlot slot);

}  // namespace tensorwire::softhca::faults
