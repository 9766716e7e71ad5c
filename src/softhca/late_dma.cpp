#include "softhca/late_dma.hpp"

#include <algorithm>

namespace tensorwire::softhca {

void LateDma::take(std::span<const transport::TxDesc> descs, Ps now) noexcept {
  Ps leave_at = now;
  for (std::size_t i = 0; i < descs.size(); ++i) {
    const bool has_source = descs[i].piece_count != 0 && !descs[i].inline_pieces;  // inline data was read when posted
    if (has_source) leave_at = std::max(leave_at, now + late_by(config_, index_++));
    waiting_[i] = descs[i];
    leave_at_[i] = leave_at;
  }
  first_ = 0;
  count_ = descs.size();
}

}  // namespace tensorwire::softhca
