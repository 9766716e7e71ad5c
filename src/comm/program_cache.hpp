// The programs of the all-reduces that a communicator has run: a decode loop asks for the same few shapes again and
// again. Owns them; pointers stay valid until trim().
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/builders.hpp"
#include "collective/runner.hpp"

namespace tensorwire::comm {

/// What it takes to run one all-reduce on this rank.
struct CachedPrograms {
  collective::Shape shape;
  bool in_place = false;
  collective::Algorithm algorithm = collective::Algorithm::kOneShot;
  collective::Segmentation cut;
  collective::Program full;  ///< of all segments but the last
  collective::Program last;
  bool reads_input = false;  ///< a write is sourced from user memory, which must be registered then
};

class ProgramCache {
 public:
  ProgramCache(std::uint32_t rank, std::uint64_t slot_payload_bytes, const collective::Thresholds& thresholds) noexcept
      : rank_(rank), slot_payload_bytes_(slot_payload_bytes), thresholds_(thresholds) {}

  /// Builds and reserves them in the runner at the first call of a shape. @throws Error.
  const CachedPrograms& get(const collective::Shape& shape, bool in_place, collective::Runner& runner);
  /// Forgets all when there are too many; call while no operation is under way.
  void trim() noexcept;

 private:
  [[nodiscard]] collective::Program build(const CachedPrograms& entry, std::uint64_t segment) const;

  std::uint32_t rank_;
  std::uint64_t slot_payload_bytes_;
  collective::Thresholds thresholds_;
  std::vector<std::unique_ptr<CachedPrograms>> entries_;
  std::size_t last_ = 0;
};

}  // namespace tensorwire::comm
