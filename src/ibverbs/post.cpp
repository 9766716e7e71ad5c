// The data path: posting and polling. Nothing here allocates, throws or waits.
#include <algorithm>

#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "ibverbs/translate.hpp"

namespace tensorwire::ibverbs {

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad_wr) noexcept {
  QueuePair& qp = of(base);
  SgeArray sges;
  for (; wr != nullptr; wr = wr->next) {
    const bool more = wr->next != nullptr;
    if (const int result = qp.hca->post_send(qp.engine, translate(*wr, sges), more); result != 0) {
      *bad_wr = wr;
      return result;
    }
  }
  return 0;
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept {
  QueuePair& qp = of(base);
  SgeArray sges;
  for (; wr != nullptr; wr = wr->next) {
    const auto pieces = translate(wr->sg_list, wr->num_sge, sges);
    if (const int result = qp.hca->post_recv(qp.engine, {.wr_id = wr->wr_id, .sges = pieces}); result != 0) {
      *bad_wr = wr;
      return result;
    }
  }
  return 0;
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
