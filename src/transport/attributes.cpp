#include "transport/attributes.hpp"

#include <array>
#include <cerrno>
#include <span>

#include "wire/headers.hpp"

namespace tensorwire::transport {
namespace {

struct Transition {
  QpState from;
  QpState to;
  std::uint32_t required;
  std::uint32_t optional;
};

constexpr std::uint32_t kInitAttributes = kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;

// Alternate paths and path migration are not offered, so their bits are in no row: asking for them is EINVAL.
constexpr std::array kRcTransitions = {
    Transition{QpState::kReset, QpState::kInit, kInitAttributes, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kInitAttributes},
    Transition{QpState::kInit, QpState::kRtr,
               kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer,
               kAttrAccessFlags | kAttrPkeyIndex},
    Transition{QpState::kRtr, QpState::kRts,
               kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic,
               kAttrCurState | kAttrAccessFlags | kAttrMinRnrTimer},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags | kAttrMinRnrTimer},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrEnSqdAsync},
    Transition{QpState::kSqd, QpState::kSqd, 0,
               kAttrAv | kAttrPort | kAttrPkeyIndex | kAttrAccessFlags | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry |
                   kAttrMinRnrTimer | kAttrMaxQpRdAtomic | kAttrMaxDestRdAtomic},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags | kAttrMinRnrTimer},
};

constexpr std::array kUcTransitions = {
    Transition{QpState::kReset, QpState::kInit, kInitAttributes, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kInitAttributes},
    Transition{QpState::kInit, QpState::kRtr, kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn,
               kAttrAccessFlags | kAttrPkeyIndex},
    Transition{QpState::kRtr, QpState::kRts, kAttrSqPsn, kAttrCurState | kAttrAccessFlags},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrEnSqdAsync},
    Transition{QpState::kSqd, QpState::kSqd, 0, kAttrAv | kAttrPkeyIndex | kAttrAccessFlags},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags},
    Transition{QpState::kSqe, QpState::kRts, 0, kAttrCurState | kAttrAccessFlags},
};

constexpr std::uint32_t kUdInitAttributes = kAttrPkeyIndex | kAttrPort | kAttrQkey;

constexpr std::array kUdTransitions = {
    Transition{QpState::kReset, QpState::kInit, kUdInitAttributes, 0},
    Transition{QpState::kInit, QpState::kInit, 0, kUdInitAttributes},
    Transition{QpState::kInit, QpState::kRtr, 0, kAttrPkeyIndex | kAttrQkey},
    Transition{QpState::kRtr, QpState::kRts, kAttrSqPsn, kAttrCurState | kAttrQkey},
    Transition{QpState::kRts, QpState::kRts, 0, kAttrCurState | kAttrQkey},
    Transition{QpState::kRts, QpState::kSqd, 0, kAttrEnSqdAsync},
    Transition{QpState::kSqd, QpState::kSqd, 0, kAttrPkeyIndex | kAttrQkey},
    Transition{QpState::kSqd, QpState::kRts, 0, kAttrCurState | kAttrQkey},
    Transition{QpState::kSqe, QpState::kRts, 0, kAttrCurState | kAttrQkey},
};

std::span<const Transition> transitions_of(QpType type) noexcept {
  switch (type) {
    case QpType::kUc:
      return kUcTransitions;
    case QpType::kUd:
      return kUdTransitions;
    default:
      return kRcTransitions;
  }
}

bool mask_fits(QpType type, QpState from, QpState to, std::uint32_t mask) noexcept {
  if (to == QpState::kErr || to == QpState::kReset) return mask == 0;
  for (const Transition& t : transitions_of(type)) {
    if (t.from != from || t.to != to) continue;
    return (mask & t.required) == t.required && (mask & ~(t.required | t.optional)) == 0;
  }
  return false;
}

bool address_good(const QpAttr& attr) noexcept { return attr.has_grh && !attr.av.remote.is_zero(); }

bool values_good(const QpAttr& attr, std::uint32_t mask) noexcept {
  const auto named = [mask](std::uint32_t bit) { return (mask & bit) != 0; };
  if (named(kAttrPkeyIndex) && attr.pkey_index != 0) return false;
  if (named(kAttrPort) && attr.port != 1) return false;
  if (named(kAttrAv) && !address_good(attr)) return false;
  if (named(kAttrPathMtu) && (attr.path_mtu < MtuCode::k256 || attr.path_mtu > MtuCode::k4096)) return false;
  if (named(kAttrDestQpn) && attr.dest_qpn > wire::kQpnMask) return false;
  if (named(kAttrTimeout) && attr.timeout > 31) return false;
  if (named(kAttrRetryCnt) && attr.retry_cnt > 7) return false;
  if (named(kAttrRnrRetry) && attr.rnr_retry > 7) return false;
  if (named(kAttrMinRnrTimer) && attr.min_rnr_timer > 31) return false;
  if (named(kAttrMaxQpRdAtomic) && attr.max_rd_atomic > kMaxRdAtomic) return false;
  if (named(kAttrMaxDestRdAtomic) && attr.max_dest_rd_atomic > kMaxRdAtomic) return false;
  return true;
}

}  // namespace

int check_modify(QpState current, const QpAttr& attr, std::uint32_t mask, QpState& next, QpType type) noexcept {
  const QpState wanted = (mask & kAttrState) != 0 ? attr.state : current;
  if ((mask & kAttrCurState) != 0 && attr.cur_state != current) return EINVAL;
  if (!mask_fits(type, current, wanted, mask & ~kAttrState) || !values_good(attr, mask)) return EINVAL;
  next = wanted;
  return 0;
}

void apply_attributes(QpAttr& to, const QpAttr& from, std::uint32_t mask) noexcept {
  const auto copy = [&](std::uint32_t bit, auto QpAttr::*field) {
    if ((mask & bit) != 0) to.*field = from.*field;
  };
  copy(kAttrPkeyIndex, &QpAttr::pkey_index);
  copy(kAttrPort, &QpAttr::port);
  copy(kAttrAccessFlags, &QpAttr::access_flags);
  copy(kAttrQkey, &QpAttr::qkey);
  copy(kAttrAv, &QpAttr::av);
  copy(kAttrAv, &QpAttr::has_grh);
  copy(kAttrPathMtu, &QpAttr::path_mtu);
  copy(kAttrDestQpn, &QpAttr::dest_qpn);
  copy(kAttrRqPsn, &QpAttr::rq_psn);
  copy(kAttrSqPsn, &QpAttr::sq_psn);
  copy(kAttrMaxDestRdAtomic, &QpAttr::max_dest_rd_atomic);
  copy(kAttrMaxQpRdAtomic, &QpAttr::max_rd_atomic);
  copy(kAttrMinRnrTimer, &QpAttr::min_rnr_timer);
  copy(kAttrTimeout, &QpAttr::timeout);
  copy(kAttrRetryCnt, &QpAttr::retry_cnt);
  copy(kAttrRnrRetry, &QpAttr::rnr_retry);
  to.rq_psn &= wire::kPsnMask;
  to.sq_psn &= wire::kPsnMask;
}

std::uint16_t entropy_port(std::uint32_t flow_label, std::uint32_t local_qpn, std::uint32_t remote_qpn) noexcept {
  std::uint32_t label = flow_label & 0xf'ffff;
  if (label == 0) {
    std::uint64_t folded = std::uint64_t{local_qpn} * remote_qpn;
    folded ^= folded >> 20;
    folded ^= folded >> 40;
    label = static_cast<std::uint32_t>(folded & 0xf'ffff);
  }
  return static_cast<std::uint16_t>(0xc000U | ((label & 0x3fffU) ^ (label >> 14)));
}

}  // namespace tensorwire::transport
