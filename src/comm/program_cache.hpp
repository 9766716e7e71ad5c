// The programs of the collectives that a communicator has run: a decode loop asks for the same few shapes again and
// again. Owns them; pointers stay valid until trim().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collective/builders.hpp"
#include "collective/runner.hpp"

namespace tensorwire::comm {

/// What it takes to run one collective on this rank.
struct CachedPrograms {
  collective::Shape shape;
  bool in_place = false;
  collective::Algorithm algorithm = collective::Algorithm::kOneShot;
  collective::Segmentation cut;
  std::vector<std::uint64_t> counts;          ///< as collective::BuildOptions::counts
  std::vector<collective::Program> programs;  ///< of each segment; or two: of all segments but the last, and of that
  std::uint64_t signature_count = 0;
  bool reads_input = false;    ///< a write is sourced from the user's input, which must be registered then
  bool shares_output = false;  ///< peers write into the user's output, or writes are sourced from it
  bool moves_input = false;    ///< in place, but what arrives would overwrite what has not left: a copy goes in
  /// A peer may still wait, when this rank is done, for the acknowledgement of a write out of its user's buffer.
  bool owes_acknowledgements = true;

  [[nodiscard]] const collective::Program& of_segment(std::uint64_t segment) const noexcept {
    if (programs.size() == cut.segments) return programs[segment];
    return programs[segment + 1 == cut.segments ? 1 : 0];
  }
  /// Bytes from the start of the user's tensors to where the segment begins in them.
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t segment) const noexcept {
    return segment * cut.segment_count * element_bytes(shape.dtype);
  }
};

class ProgramCache {
 public:
  /// For tests: may change a program when it is built.
  using Hook = std::function<void(collective::Program&)>;

  ProgramCache(std::uint32_t rank, std::uint64_t slot_payload_bytes, const collective::Thresholds& thresholds,
               collective::Order order = collective::Order::kAny, Hook hook = {})
      : rank_(rank),
        slot_payload_bytes_(slot_payload_bytes),
        thresholds_(thresholds),
        order_(order),
        hook_(std::move(hook)) {}

  /// Builds and reserves them in the runner at the first call of a shape. @throws Error.
  const CachedPrograms& get(const collective::Shape& shape, bool in_place, std::span<const std::uint64_t> counts,
                            collective::Runner& runner);
  /// Forgets all when there are too many; call while no operation is under way.
  void trim() noexcept;

 private:
  void build(CachedPrograms& entry) const;

  std::uint32_t rank_;
  std::uint64_t slot_payload_bytes_;
  collective::Thresholds thresholds_;
  collective::Order order_;
  Hook hook_;
  std::vector<std::unique_ptr<CachedPrograms>> entries_;
  std::size_t last_ = 0;
};

}  // namespace tensorwire::comm
