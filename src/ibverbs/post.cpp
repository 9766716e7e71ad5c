// The data path: posting and polling. Nothing here allocates, throws or waits.
#include <algorithm>

#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "ibverbs/translate.hpp"

namespace tensorwire::ibverbs {

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad_wr) noexcept {
  QueuePair& qp = of(base);
  SgeArray sges;
  transport::WindowBinding binding;
  for (; wr != nullptr; wr = wr->next) {
    const bool more = wr->next != nullptr;
    transport::SendWr request = translate(*wr, sges);
    if (qp.datagrams) translate_target(*wr, base->pd, request);
    if (request.opcode >= transport::WrOpcode::kLocalInvalidate) translate_window(*wr, binding, request);
    if (const int result = qp.hca->post_send(qp.engine, request, more); result != 0) {
      *bad_wr = wr;
      return result;
    }
  }
  return 0;
}

namespace {

/// Posts a chain of receives one by one, by `post`.
template <typename Post>
int post_receives(ibv_recv_wr* wr, ibv_recv_wr** bad_wr, Post&& post) noexcept {
  SgeArray sges;
  for (; wr != nullptr; wr = wr->next) {
    const transport::RecvWr request{.wr_id = wr->wr_id, .sges = translate(wr->sg_list, wr->num_sge, sges)};
    if (const int result = post(request); result != 0) {
      *bad_wr = wr;
      return result;
    }
  }
  return 0;
}

}  // namespace

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  QueuePair& qp = of(base);
  return post_receives(wr, bad_wr,
                       [&](const transport::RecvWr& request) { return qp.hca->post_recv(qp.engine, request); });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  softhca::Srq& queue = *of(srq).engine;
  return post_receives(wr, bad_wr, [&](const transport::RecvWr& request) { return queue.post(request); });
}

int poll_cq(ibv_cq* base, int entries, ibv_wc* wc) noexcept {
  CompletionQueue& cq = of(base);
  std::array<transport::Completion, 16> batch;
  int done = 0;
  while (done < entries) {
    const std::size_t wanted = std::min<std::size_t>(batch.size(), static_cast<std::size_t>(entries - done));
    const std::size_t found = cq.engine->poll({batch.data(), wanted});
    for (std::size_t i = 0; i < found; ++i) translate(batch[i], wc[done++]);
    if (found < wanted) break;
  }
  if (done == 0 && entries > 0 && cq.engine->overrun()) {
    fail_overrun(cq);
    return -1;
  }
  return done;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept {
  of(cq).engine->arm(solicited_only != 0);
  return 0;
}

}  // namespace tensorwire::ibverbs
