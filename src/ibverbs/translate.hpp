// Work requests and completions from the words of verbs.h to those of the transport and back. The values are equal by
// design (checked here); what differs is byte order: immediate data is big-endian in verbs.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "ibverbs/raw_enum.hpp"
#include "transport/types.hpp"

namespace tensorwire::ibverbs {

static_assert(IBV_WR_RDMA_WRITE == static_cast<int>(transport::WrOpcode::kWrite));
static_assert(IBV_WR_RDMA_WRITE_WITH_IMM == static_cast<int>(transport::WrOpcode::kWriteImm));
static_assert(IBV_WR_SEND == static_cast<int>(transport::WrOpcode::kSend));
static_assert(IBV_WR_SEND_WITH_IMM == static_cast<int>(transport::WrOpcode::kSendImm));
static_assert(IBV_WR_RDMA_READ == static_cast<int>(transport::WrOpcode::kRead));
static_assert(IBV_WR_ATOMIC_CMP_AND_SWP == static_cast<int>(transport::WrOpcode::kCompareSwap));
static_assert(IBV_WR_ATOMIC_FETCH_AND_ADD == static_cast<int>(transport::WrOpcode::kFetchAdd));
static_assert(IBV_WR_LOCAL_INV == static_cast<int>(transport::WrOpcode::kLocalInvalidate));
static_assert(IBV_WR_BIND_MW == static_cast<int>(transport::WrOpcode::kBindWindow));
static_assert(IBV_WR_SEND_WITH_INV == static_cast<int>(transport::WrOpcode::kSendInvalidate));
static_assert(IBV_WC_BIND_MW == static_cast<int>(transport::WcOpcode::kBindWindow));
static_assert(IBV_WC_LOCAL_INV == static_cast<int>(transport::WcOpcode::kLocalInvalidate));
static_assert(IBV_WC_MW_BIND_ERR == static_cast<int>(transport::WcStatus::kWindowBindError));
static_assert(IBV_WC_WITH_INV == transport::kWcWithInvalidate);
static_assert(IBV_WC_RDMA_READ == static_cast<int>(transport::WcOpcode::kRead));
static_assert(IBV_WC_COMP_SWAP == static_cast<int>(transport::WcOpcode::kCompareSwap));
static_assert(IBV_WC_FETCH_ADD == static_cast<int>(transport::WcOpcode::kFetchAdd));
static_assert(IBV_WC_RETRY_EXC_ERR == static_cast<int>(transport::WcStatus::kRetryExceeded));
static_assert(IBV_WC_WR_FLUSH_ERR == static_cast<int>(transport::WcStatus::kFlushError));
static_assert(IBV_WC_FATAL_ERR == static_cast<int>(transport::WcStatus::kFatal));
static_assert(IBV_WC_RECV == static_cast<int>(transport::WcOpcode::kRecv));
static_assert(IBV_WC_RECV_RDMA_WITH_IMM == static_cast<int>(transport::WcOpcode::kRecvWithImm));
static_assert(IBV_WC_RDMA_WRITE == static_cast<int>(transport::WcOpcode::kWrite));
static_assert(IBV_WC_GRH == transport::kWcWithGrh && IBV_WC_WITH_IMM == transport::kWcWithImm);

/// Where InfiniBand has a service level, mlx5 says on RoCE of which kind a datagram's network header is, and programs
/// (UCX) have come to look there: RoCE v2 over IPv4.
inline constexpr std::uint8_t kRoceV2Ipv4 = 0xa;
[[nodiscard]] inline std::uint8_t service_level(const transport::Completion& completion) noexcept {
  return (completion.flags & transport::kWcWithGrh) != 0 ? kRoceV2Ipv4 : 0;
}

/// Room for one piece more than any queue pair takes: a longer list is cut to that, for the transport to refuse. A
/// refusal must come from there, because it also starts the requests of the chain that were accepted before.
using SgeArray = std::array<transport::Sge, transport::kMaxSge + 1>;

[[nodiscard]] inline std::span<const transport::Sge> translate(const ibv_sge* list, int count, SgeArray& to) noexcept {
  const std::size_t pieces = std::min(static_cast<std::size_t>(count), to.size());  // a negative count is a long list
  for (std::size_t i = 0; i < pieces && i < transport::kMaxSge; ++i) {
    to[i] = {.address = list[i].addr, .length = list[i].length, .lkey = list[i].lkey};
  }
  return {to.data(), pieces};
}

/// `sges` keeps the pieces that the result names. An opcode that the transport has no word for keeps its
/// number, or becomes 255.
[[nodiscard]] inline transport::SendWr translate(const ibv_send_wr& from, SgeArray& sges) noexcept {
  const auto opcode = static_cast<transport::WrOpcode>(std::min(raw(from.opcode), 255U));
  const bool atomic = transport::is_atomic(opcode);
  return {.wr_id = from.wr_id,
          .opcode = opcode,
          .signaled = (from.send_flags & IBV_SEND_SIGNALED) != 0,
          .solicited = (from.send_flags & IBV_SEND_SOLICITED) != 0,
          .fence = (from.send_flags & IBV_SEND_FENCE) != 0,
          .inline_data = (from.send_flags & IBV_SEND_INLINE) != 0,
          .immediate = be32toh(from.imm_data),
          .remote_address = atomic ? from.wr.atomic.remote_addr : from.wr.rdma.remote_addr,
          .rkey = atomic ? from.wr.atomic.rkey : from.wr.rdma.rkey,
          .compare_add = atomic ? from.wr.atomic.compare_add : 0,
          .swap = atomic ? from.wr.atomic.swap : 0,
          .sges = translate(from.sg_list, from.num_sge, sges)};
}

/// A datagram's destination, which stands where other requests have their remote memory. No address handle, or one of
/// another protection domain, is left for the transport to refuse, as a piece too many is.
inline void translate_target(const ibv_send_wr& from, const ibv_pd* pd, transport::SendWr& to) noexcept {
  ibv_ah* const ah = from.wr.ud.ah;
  to.address = ah != nullptr && ah->pd == pd ? &of(ah).address : nullptr;
  to.dest_qpn = from.wr.ud.remote_qpn;
  to.qkey = from.wr.ud.remote_qkey;
}

/// Of a request that binds or invalidates: the window, in the place of remote memory.
inline void translate_window(const ibv_send_wr& from, transport::WindowBinding& binding,
                             transport::SendWr& to) noexcept {
  if (transport::is_local(to.opcode)) to.sges = {};
  if (to.opcode == transport::WrOpcode::kBindWindow) {
    translate_bind(from.bind_mw.mw, from.bind_mw.rkey, from.bind_mw.bind_info, binding, to);
  } else {
    to.rkey = from.invalidate_rkey;
  }
}

/// Immediate data is big-endian, a key is not; both stand in the same place.
[[nodiscard]] inline __be32 immediate_or_key(const transport::Completion& from) noexcept {
  return (from.flags & transport::kWcWithInvalidate) != 0 ? from.invalidated_key : htobe32(from.immediate);
}

inline void translate(const transport::Completion& from, ibv_wc& to) noexcept {
  to.wr_id = from.wr_id;
  to.status = static_cast<ibv_wc_status>(from.status);
  to.opcode = static_cast<ibv_wc_opcode>(from.opcode);
  to.vendor_err = from.vendor_error;
  to.byte_len = from.byte_len;
  to.imm_data = immediate_or_key(from);
  to.qp_num = from.qp_num;
  to.src_qp = from.src_qp;
  to.wc_flags = from.flags;
  to.pkey_index = 0;
  to.slid = 0;
  to.sl = service_level(from);
  to.dlid_path_bits = 0;
}

}  // namespace tensorwire::ibverbs
