// Opening and closing a device: the context with its table of operations.
#include <cstring>

#include "ibverbs/acknowledgement.hpp"
#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"

namespace tensorwire::ibverbs {

Context::Context(Device& opened, std::shared_ptr<softhca::Hca> running)
    : verbs_context{}, device(&opened), hca(std::move(running)) {
  sz = sizeof(verbs_context);
  context.device = device;
  context.cmd_fd = -1;  // no kernel device behind it
  context.async_fd = events.fd();
  context.num_comp_vectors = 1;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);

  set_unsupported_operations(*this);
  context.ops.poll_cq = ibverbs::poll_cq;
  context.ops.req_notify_cq = ibverbs::req_notify_cq;
  context.ops.post_send = ibverbs::post_send;
  context.ops.post_recv = ibverbs::post_recv;
  context.ops.post_srq_recv = ibverbs::post_srq_recv;
  context.ops.alloc_mw = ibverbs::alloc_mw;
  context.ops.bind_mw = ibverbs::bind_mw;
  context.ops.dealloc_mw = ibverbs::dealloc_mw;
  verbs_context::query_port = ibverbs::query_port;
  verbs_context::query_device_ex = ibverbs::query_device_ex;
  verbs_context::create_cq_ex = ibverbs::create_cq_ex;
  verbs_context::create_qp_ex = ibverbs::create_qp_ex;

  device->retain();
  hca->add_event_callback({.function = on_hca_event, .user = this});
}

Context::~Context() {
  hca->remove_event_callback(this);
  for (QueuePair* qp : qps) {
    hca->destroy_qp(qp->engine);
    delete qp;
  }
  for (SharedReceiveQueue* srq : srqs) delete srq;
  for (AddressHandle* ah : ahs) delete ah;
  for (CompletionQueue* cq : cqs) {
    cq->engine.reset();
    leave_channel(*cq);
    delete cq;
  }
  for (Mw* mw : mws) {
    hca->deallocate_window(mw->rkey);
    delete mw;
  }
  for (Mr* mr : mrs) {
    hca->deregister_memory(mr->lkey);
    delete mr;
  }
  for (Pd* pd : pds) {
    hca->destroy_pd(pd->id);
    delete pd;
  }
  pthread_mutex_destroy(&context.mutex);
  device->release();
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_context* ibv_open_device(ibv_device* device) {
  return tw::guarded(ENODEV, [&]() -> ibv_context* {
    tw::Device& opened = tw::of(device);
    auto context = std::make_unique<tw::Context>(opened, tensorwire::softhca::Hca::open(opened.info));
    return &context.release()->context;
  });
}

TENSORWIRE_VERB int ibv_close_device(ibv_context* context) {
  delete &tw::of(context);
  return 0;
}
