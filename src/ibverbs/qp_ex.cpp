// The extended way of posting: ibv_wr_start, one call per work request, one per its data, ibv_wr_complete. Requests are
// staged in the queue pair and posted together by ibv_wr_complete.
#include <endian.h>

#include <algorithm>

#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"

namespace tensorwire::ibverbs {

namespace {

void wr_start(ibv_qp_ex* qp) noexcept {
  StagedRequests& staged = *of(qp).staged;
  staged.mutex.lock();
  staged.requests.clear();
  staged.first_piece.clear();
  staged.pieces.clear();
  staged.bindings.clear();
  staged.inline_bytes.clear();
  staged.error = 0;
}

void begin(ibv_qp_ex* qp, transport::SendWr request) noexcept {
  StagedRequests& staged = *of(qp).staged;
  if (staged.error != 0) return;
  if (staged.requests.size() == of(qp).capabilities.max_send_wr) {
    staged.error = ENOMEM;
    return;
  }
  request.wr_id = qp->wr_id;
  request.signaled = (qp->wr_flags & IBV_SEND_SIGNALED) != 0;
  request.solicited = (qp->wr_flags & IBV_SEND_SOLICITED) != 0;
  request.fence = (qp->wr_flags & IBV_SEND_FENCE) != 0;
  staged.requests.push_back(request);
  staged.first_piece.push_back(staged.pieces.size());
}

void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_address) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kWrite, .remote_address = remote_address, .rkey = rkey, .sges = {}});
}

void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_address, __be32 immediate) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kWriteImm,
             .immediate = be32toh(immediate),
             .remote_address = remote_address,
             .rkey = rkey,
             .sges = {}});
}

void wr_send(ibv_qp_ex* qp) noexcept { begin(qp, {.opcode = transport::WrOpcode::kSend, .sges = {}}); }

void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kSendImm, .immediate = be32toh(immediate), .sges = {}});
}

void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_address) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kRead, .remote_address = remote_address, .rkey = rkey, .sges = {}});
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_address, std::uint64_t compare,
                       std::uint64_t swap) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kCompareSwap,
             .remote_address = remote_address,
             .rkey = rkey,
             .compare_add = compare,
             .swap = swap,
             .sges = {}});
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_address, std::uint64_t add) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kFetchAdd,
             .remote_address = remote_address,
             .rkey = rkey,
             .compare_add = add,
             .sges = {}});
}

void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kSendInvalidate, .rkey = rkey, .sges = {}});
}

void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) noexcept {
  begin(qp, {.opcode = transport::WrOpcode::kLocalInvalidate, .rkey = rkey, .sges = {}});
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) noexcept {
  StagedRequests& staged = *of(qp).staged;
  begin(qp, {.opcode = transport::WrOpcode::kBindWindow, .sges = {}});
  if (staged.error != 0) return;
  staged.bindings.emplace_back();
  translate_bind(mw, rkey, *info, staged.bindings.back(), staged.requests.back());
  if (staged.requests.back().binding == nullptr) staged.error = EINVAL;
}

/// One more piece of the request begun last.
void add_piece(StagedRequests& staged, const ibv_qp_cap& capabilities, transport::Sge piece) noexcept {
  if (staged.error != 0) return;
  if (staged.requests.empty() || staged.pieces.size() - staged.first_piece.back() == capabilities.max_send_sge) {
    staged.error = EINVAL;
    return;
  }
  staged.pieces.push_back(piece);
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    add_piece(*of(qp).staged, of(qp).capabilities,
              {.address = list[i].addr, .length = list[i].length, .lkey = list[i].lkey});
  }
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) noexcept {
  add_piece(*of(qp).staged, of(qp).capabilities, {.address = address, .length = length, .lkey = lkey});
}

/// The buffers may be reused when this returns: their bytes are gathered into one piece of our own.
void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) noexcept {
  StagedRequests& staged = *of(qp).staged;
  if (staged.error != 0) return;
  std::size_t length = 0;
  for (std::size_t i = 0; i < count; ++i) length += list[i].length;
  if (staged.requests.empty() || length > of(qp).capabilities.max_inline_data) {
    staged.error = EINVAL;
    return;
  }
  const std::size_t start = staged.inline_bytes.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto* bytes = static_cast<const std::byte*>(list[i].addr);
    staged.inline_bytes.insert(staged.inline_bytes.end(), bytes, bytes + list[i].length);
  }
  staged.requests.back().inline_data = true;
  add_piece(staged, of(qp).capabilities,
            {.address = reinterpret_cast<std::uint64_t>(staged.inline_bytes.data() + start),
             .length = static_cast<std::uint32_t>(length)});
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) noexcept {
  const ibv_data_buf buffer{.addr = address, .length = length};
  wr_set_inline_data_list(qp, 1, &buffer);
}

/// Of the request begun last. The handle may go when ibv_wr_complete has returned.
void wr_set_ud_addr(ibv_qp_ex* base, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) noexcept {
  QueuePair& qp = of(base);
  StagedRequests& staged = *qp.staged;
  if (staged.error != 0) return;
  if (!qp.datagrams || staged.requests.empty() || ah == nullptr || ah->pd != qp.qp_base.pd) {
    staged.error = EINVAL;
    return;
  }
  transport::SendWr& request = staged.requests.back();
  request.address = &of(ah).address;
  request.dest_qpn = remote_qpn;
  request.qkey = remote_qkey;
}

/// Gives each request its pieces, and tries it. @return why one would not be posted, found here, before the first one
/// is: a batch is sent as a whole or not at all.
int rehearse(StagedRequests& staged) noexcept {
  for (std::size_t i = 0; i < staged.requests.size(); ++i) {
    const std::size_t first = staged.first_piece[i];
    const std::size_t end = i + 1 == staged.requests.size() ? staged.pieces.size() : staged.first_piece[i + 1];
    transport::SendWr& request = staged.requests[i];
    request.sges = {staged.pieces.data() + first, end - first};
    if (const int error = staged.rehearsal.post(request); error != 0) return error;
    staged.rehearsal.pop();
  }
  return 0;
}

int wr_complete(ibv_qp_ex* base) noexcept {
  QueuePair& qp = of(base);
  StagedRequests& staged = *qp.staged;
  int result = staged.error != 0 ? staged.error : rehearse(staged);
  if (result == 0 && !staged.requests.empty()) result = qp.hca->post_send_batch(qp.engine, staged.requests);
  staged.mutex.unlock();
  return result;
}

void wr_abort(ibv_qp_ex* qp) noexcept { of(qp).staged->mutex.unlock(); }

// Operations that create_qp_ex refuses to give: a program that calls one all the same gets its error from
// ibv_wr_complete.
void refuse(ibv_qp_ex* qp) noexcept {
  StagedRequests& staged = *of(qp).staged;
  if (staged.error == 0) staged.error = EOPNOTSUPP;
}
void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t, std::uint64_t, const void*) noexcept { refuse(qp); }
void wr_send_tso(ibv_qp_ex* qp, void*, std::uint16_t, std::uint16_t) noexcept { refuse(qp); }
void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t) noexcept { refuse(qp); }

}  // namespace

void set_work_request_functions(QueuePair& qp, transport::QpType type) {
  transport::QpCaps one;
  one.max_send_sge = qp.capabilities.max_send_sge;
  one.max_inline_data = qp.capabilities.max_inline_data;
  qp.staged = std::make_unique<StagedRequests>(one, type);
  const std::size_t requests = qp.capabilities.max_send_wr;
  qp.staged->requests.reserve(requests);
  qp.staged->first_piece.reserve(requests);
  qp.staged->pieces.reserve(requests * qp.capabilities.max_send_sge);
  qp.staged->bindings.reserve(requests);
  qp.staged->inline_bytes.reserve(requests * qp.capabilities.max_inline_data);

  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_atomic_write = wr_atomic_write;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_tso = wr_send_tso;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return tw::of(qp).staged == nullptr ? tw::fail<ibv_qp_ex>(EOPNOTSUPP) : &tw::of(qp);
}
