// The rules of ibv_modify_qp for RC, UC and UD: which attributes each state transition requires and allows, and which
// values are good. Pure functions; the table is data. (IB specification vol. 1, 11.2.5.2, table "QP state transition
// properties".)
#pragma once

#include <cstdint>

#include "transport/types.hpp"

namespace tensorwire::transport {

/// Outstanding RDMA READ and atomic operations, as requester and as responder.
inline constexpr std::uint8_t kMaxRdAtomic = 16;

/// The state that `attr` and `mask` ask for, when the transition from `current` is legal, the mask has every required
/// and no forbidden bit, and every value is good. Returns 0 and sets `next`, or EINVAL.
[[nodiscard]] int check_modify(QpState current, const QpAttr& attr, std::uint32_t mask, QpState& next,
                               QpType type = QpType::kRc) noexcept;

/// Copies the attributes that `mask` names. PSNs are taken modulo 2^24, as HCAs do.
void apply_attributes(QpAttr& to, const QpAttr& from, std::uint32_t mask) noexcept;

/// The UDP source port of a queue pair whose owner gave none: from the flow label when there is one, else from the two
/// QPNs (the folding of Linux' rdma_calc_flow_label and rdma_flow_label_to_udp_sport).
[[nodiscard]] std::uint16_t entropy_port(std::uint32_t flow_label, std::uint32_t local_qpn,
                                         std::uint32_t remote_qpn) noexcept;

}  // namespace tensorwire::transport
