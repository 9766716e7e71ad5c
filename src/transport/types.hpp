// The vocabulary of the transport: work requests, completions, queue-pair attributes. Values of enumerators and mask
// bits equal those of libibverbs, so that the ibverbs room translates by name and not by table; nothing here includes
// its headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.hpp"
#include "wire/gid.hpp"
#include "wire/headers.hpp"

namespace tensorwire::transport {

enum class QpType : std::uint8_t { kRc = 2, kUc = 3, kUd = 4 };
enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };

/// What peers ask for is done, and what they send is received.
[[nodiscard]] constexpr bool can_receive(QpState state) noexcept {
  return state >= QpState::kRtr && state <= QpState::kSqe;
}
/// Something sent may be under way, and is answered or sent again.
[[nodiscard]] constexpr bool can_send(QpState state) noexcept {
  return state == QpState::kRts || state == QpState::kSqd;
}

// Access rights of a memory region or a queue pair.
inline constexpr std::uint32_t kAccessLocalWrite = 1U << 0;
inline constexpr std::uint32_t kAccessRemoteWrite = 1U << 1;
inline constexpr std::uint32_t kAccessRemoteRead = 1U << 2;
inline constexpr std::uint32_t kAccessRemoteAtomic = 1U << 3;
inline constexpr std::uint32_t kAccessWindowBind = 1U << 4;  ///< of a region: memory windows may be bound to it
inline constexpr std::uint32_t kAccessRemote = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

enum class WrOpcode : std::uint8_t {
  kWrite = 0,
  kWriteImm = 1,
  kSend = 2,
  kSendImm = 3,
  kRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInvalidate = 7,
  kBindWindow = 8,
  kSendInvalidate = 9
};

[[nodiscard]] constexpr bool is_send(WrOpcode opcode) noexcept {
  return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendImm || opcode == WrOpcode::kSendInvalidate;
}
/// Done here, without a packet.
[[nodiscard]] constexpr bool is_local(WrOpcode opcode) noexcept {
  return opcode == WrOpcode::kLocalInvalidate || opcode == WrOpcode::kBindWindow;
}
[[nodiscard]] constexpr bool is_atomic(WrOpcode opcode) noexcept {
  return opcode == WrOpcode::kCompareSwap || opcode == WrOpcode::kFetchAdd;
}
/// READ and the atomics: the answer carries data. The transport calls them fetches.
[[nodiscard]] constexpr bool is_fetch(WrOpcode opcode) noexcept {
  return opcode == WrOpcode::kRead || is_atomic(opcode);
}

enum class WcStatus : std::uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalProtectionError = 4,
  kFlushError = 5,
  kWindowBindError = 6,  ///< a memory window could not be bound or invalidated
  kBadResponseError = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequestError = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kRemoteAborted = 16,
  kFatal = 19,
};

enum class WcOpcode : std::uint8_t {
  kSend = 0,
  kWrite = 1,
  kRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kBindWindow = 5,
  kLocalInvalidate = 6,
  kRecv = 128,
  kRecvWithImm = 129
};

inline constexpr std::uint32_t kWcWithGrh = 1U << 0;
inline constexpr std::uint32_t kWcWithImm = 1U << 1;
inline constexpr std::uint32_t kWcWithInvalidate = 1U << 3;

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

inline constexpr std::uint32_t kMaxSge = 16;
inline constexpr std::uint32_t kMaxInlineBytes = 512;
inline constexpr std::uint32_t kMaxMessageBytes = 1U << 31;
/// What an atomic operation works on, here and at the peer.
inline constexpr std::uint32_t kAtomicBytes = 8;

/// A protection domain of an engine.
using PdId = std::uint32_t;

struct DatagramAddress;

/// What a memory window is to open: part of a region, and the remote rights to it.
struct WindowBinding {
  std::uint64_t address = 0;  ///< as work requests and peers name it
  std::uint64_t length = 0;   ///< bytes; 0 closes a window of type 1
  std::uint32_t lkey = 0;     ///< the region's
  std::uint32_t access = 0;   ///< of kAccessRemote
};

struct SendWr {
  std::uint64_t wr_id = 0;
  WrOpcode opcode = WrOpcode::kSend;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;        ///< has its turn when every READ and atomic posted before it has completed
  bool inline_data = false;  ///< copy the bytes now; lkeys are not looked at
  std::uint32_t immediate = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;                  ///< also: the key to invalidate, or the new key of the window to bind
  const WindowBinding* binding = nullptr;  ///< kBindWindow: copied when posted
  std::uint64_t compare_add = 0;           ///< atomics: what to compare with, or to add
  std::uint64_t swap = 0;                  ///< compare-and-swap: the new value
  std::span<const Sge> sges;  ///< READ: where the bytes go; atomics: where the old value goes, 8 bytes in all
  // Datagrams (UD) only.
  const DatagramAddress* address = nullptr;  ///< copied when posted
  std::uint32_t dest_qpn = 0;
  std::uint32_t qkey = 0;  ///< with the highest bit set: the queue pair's own is sent instead
};

struct RecvWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges;
};

struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  std::uint32_t vendor_error = 0;
  std::uint32_t byte_len = 0;
  std::uint32_t immediate = 0;
  std::uint32_t qp_num = 0;
  std::uint32_t src_qp = 0;
  std::uint32_t flags = 0;
  std::uint32_t invalidated_key = 0;  ///< with kWcWithInvalidate
};

/// Where a queue pair's packets go; fixed at RTR.
struct AddressVector {
  wire::Gid local;
  wire::Gid remote;
  std::uint8_t sgid_index = 0;
  std::uint8_t traffic_class = 0;  ///< the IP ToS byte: DSCP << 2
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
  std::uint16_t udp_source_port = 0;  ///< entropy for ECMP, 0xC000 and up; from the flow label, else the QPNs
};

/// Where a datagram goes, resolved: what an address handle holds.
struct DatagramAddress {
  AddressVector av;
  std::uint32_t max_payload = 0;  ///< bytes; the MTU of the link that it leaves by
};

/// A Q_Key with this bit is privileged: only the queue pair's own attribute may carry one (IB specification vol. 1,
/// 10.2.5).
inline constexpr std::uint32_t kPrivilegedQkey = 1U << 31;

enum class MtuCode : std::uint8_t { k256 = 1, k512 = 2, k1024 = 3, k2048 = 4, k4096 = 5 };
[[nodiscard]] constexpr std::uint32_t mtu_bytes(MtuCode code) noexcept { return 128U << static_cast<unsigned>(code); }
/// A message of nothing is a packet, too.
[[nodiscard]] constexpr std::uint32_t packets_of_message(std::uint32_t length, std::uint32_t mtu) noexcept {
  return length <= mtu ? 1 : (length + mtu - 1) / mtu;
}
/// Bytes of packet number `packet` of a message.
[[nodiscard]] constexpr std::uint32_t payload_of_packet(std::uint32_t length, std::uint32_t packet,
                                                        std::uint32_t mtu) noexcept {
  const std::uint32_t rest = length - packet * mtu;
  return rest < mtu ? rest : mtu;
}

struct QpCaps {
  std::uint32_t max_send_wr = 1;
  std::uint32_t max_recv_wr = 1;
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_recv_sge = 1;
  std::uint32_t max_inline_data = 0;
  bool late_rings = false;  ///< memory for a ring comes with the first post, which allocates: for many idle queue pairs
};

// Bits of the attribute mask of modify_qp (IB specification table 96 "QP state transition properties").
inline constexpr std::uint32_t kAttrState = 1U << 0;
inline constexpr std::uint32_t kAttrCurState = 1U << 1;
inline constexpr std::uint32_t kAttrEnSqdAsync = 1U << 2;
inline constexpr std::uint32_t kAttrAccessFlags = 1U << 3;
inline constexpr std::uint32_t kAttrPkeyIndex = 1U << 4;
inline constexpr std::uint32_t kAttrPort = 1U << 5;
inline constexpr std::uint32_t kAttrQkey = 1U << 6;
inline constexpr std::uint32_t kAttrAv = 1U << 7;
inline constexpr std::uint32_t kAttrPathMtu = 1U << 8;
inline constexpr std::uint32_t kAttrTimeout = 1U << 9;
inline constexpr std::uint32_t kAttrRetryCnt = 1U << 10;
inline constexpr std::uint32_t kAttrRnrRetry = 1U << 11;
inline constexpr std::uint32_t kAttrRqPsn = 1U << 12;
inline constexpr std::uint32_t kAttrMaxQpRdAtomic = 1U << 13;
inline constexpr std::uint32_t kAttrAltPath = 1U << 14;
inline constexpr std::uint32_t kAttrMinRnrTimer = 1U << 15;
inline constexpr std::uint32_t kAttrSqPsn = 1U << 16;
inline constexpr std::uint32_t kAttrMaxDestRdAtomic = 1U << 17;
inline constexpr std::uint32_t kAttrPathMigState = 1U << 18;
inline constexpr std::uint32_t kAttrCap = 1U << 19;
inline constexpr std::uint32_t kAttrDestQpn = 1U << 20;

struct QpAttr {
  QpState state = QpState::kReset;
  QpState cur_state = QpState::kReset;
  bool en_sqd_async_notify = false;  ///< RTS to SQD: AsyncEvent::kSqDrained is wanted
  bool sq_draining = false;          ///< SQD, when asked for: what had been begun is not complete yet
  bool has_grh = false;              ///< ah_attr.is_global; RTR without it is EINVAL on every RoCE port
  AddressVector av;
  MtuCode path_mtu = MtuCode::k1024;
  std::uint32_t qkey = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint32_t dest_qpn = 0;
  std::uint32_t access_flags = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  ///< 5-bit code
  std::uint8_t timeout = 0;        ///< 4.096 us x 2^n, 0 = infinite
  std::uint8_t retry_cnt = 0;
  std::uint8_t rnr_retry = 0;  ///< 7 = infinite
};

enum class AsyncEvent : std::uint8_t {
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommEstablished = 4,
  kSqDrained = 5,  ///< everything begun before SQD is complete
  kSrqLimitReached = 15,
  kLastWqeReached = 16,  ///< a queue pair in ERR takes nothing more from its shared receive queue
};

}  // namespace tensorwire::transport
