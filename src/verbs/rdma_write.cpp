#include "verbs/rdma_write.hpp"

#include <arpa/inet.h>

namespace tensorwire::verbs {

namespace {

int post_write(QueuePair& qp, const WriteRequest& request, ibv_wr_opcode opcode) noexcept {
  ibv_sge piece{.addr = request.local_address, .length = request.length, .lkey = request.local_key};
  ibv_send_wr wr{};
  wr.wr_id = request.wr_id;
  wr.sg_list = &piece;
  wr.num_sge = request.length > 0 ? 1 : 0;
  wr.opcode = opcode;
  wr.imm_data = htonl(request.immediate);
  wr.wr.rdma.remote_addr = request.remote_address;
  wr.wr.rdma.rkey = request.remote_key;
  if (request.signaled) wr.send_flags |= IBV_SEND_SIGNALED;
  // Inline saves the HCA one read of host memory, and the caller may reuse the buffer at once.
  if (request.may_inline && request.length > 0 && request.length <= qp.max_inline()) wr.send_flags |= IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp.raw(), &wr, &bad);
}

}  // namespace

int post_gpudirect_rdma_write(QueuePair& qp, const WriteRequest& request) noexcept {
  return post_write(qp, request, IBV_WR_RDMA_WRITE_WITH_IMM);
}

int post_rdma_write_silent(QueuePair& qp, const WriteRequest& request) noexcept {
  return post_write(qp, request, IBV_WR_RDMA_WRITE);
}

std::uint32_t immediate_of(const ibv_wc& completion) noexcept { return ntohl(completion.imm_data); }

}  // namespace tensorwire::verbs
