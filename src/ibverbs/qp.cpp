// Queue pairs: create, modify, query, destroy.
#include <algorithm>
#include <cstring>

#include "ibverbs/acknowledgement.hpp"
#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "ibverbs/raw_enum.hpp"

namespace tensorwire::ibverbs {

namespace {

static_assert(IBV_QP_EN_SQD_ASYNC_NOTIFY == transport::kAttrEnSqdAsync);
static_assert(IBV_QP_STATE == transport::kAttrState && IBV_QP_AV == transport::kAttrAv);
static_assert(IBV_QP_MIN_RNR_TIMER == transport::kAttrMinRnrTimer && IBV_QP_DEST_QPN == transport::kAttrDestQpn);
static_assert(IBV_QPS_ERR == static_cast<int>(transport::QpState::kErr));
static_assert(IBV_QPT_RC == static_cast<int>(transport::QpType::kRc));
static_assert(IBV_QPT_UC == static_cast<int>(transport::QpType::kUc));
static_assert(IBV_QPT_UD == static_cast<int>(transport::QpType::kUd));
static_assert(IBV_QP_QKEY == transport::kAttrQkey && IBV_QPS_SQE == static_cast<int>(transport::QpState::kSqe));
static_assert(IBV_MTU_4096 == static_cast<int>(transport::MtuCode::k4096));

/// 0, or why the HCA cannot make such a queue pair.
int check(const ibv_qp_init_attr_ex& wanted, const softhca::DeviceLimits& limits, const ibv_context* context) noexcept {
  const unsigned type = raw(wanted.qp_type);
  if (type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD) {
    return not_supported("queue pairs other than RC, UC and UD");
  }
  if (wanted.pd == nullptr || wanted.send_cq == nullptr || wanted.recv_cq == nullptr) return EINVAL;
  if (wanted.pd->context != context || wanted.send_cq->context != context || wanted.recv_cq->context != context) {
    return EINVAL;
  }
  const ibv_qp_cap& cap = wanted.cap;
  if (cap.max_send_wr > limits.max_qp_wr || cap.max_send_sge > limits.max_sge) return EINVAL;
  if (wanted.srq != nullptr) {
    if (wanted.srq->context != context) return EINVAL;
  } else if (cap.max_recv_wr > limits.max_qp_wr || cap.max_recv_sge > limits.max_sge) {
    return EINVAL;
  }
  if (cap.max_inline_data > limits.max_inline) return EINVAL;
  return 0;
}

/// Never less than asked, and at least one of each; nothing to receive with where the buffers are a shared queue's.
ibv_qp_cap granted(const ibv_qp_init_attr_ex& wanted) noexcept {
  ibv_qp_cap cap = wanted.cap;
  for (std::uint32_t* count : {&cap.max_send_wr, &cap.max_send_sge, &cap.max_recv_wr, &cap.max_recv_sge}) {
    *count = std::max(*count, 1U);
  }
  if (wanted.srq != nullptr) cap.max_recv_wr = cap.max_recv_sge = 0;
  return cap;
}

/// Which ibv_qp_create_send_ops_flags a queue pair of this type has.
std::uint64_t send_ops_of(unsigned type) noexcept {
  switch (type) {
    case IBV_QPT_UD:
      return kDatagramSendOps;
    case IBV_QPT_UC:
      return kUnreliableSendOps;
    default:
      return kSupportedSendOps;
  }
}

/// `wanted.cap` receives what was given.
QueuePair* create(ibv_context* context, const ibv_qp_init_attr_ex& wanted, std::uint64_t send_ops, ibv_qp_cap& given) {
  Context& opened = of(context);
  if (const int result = check(wanted, opened.hca->limits(), context); result != 0) return fail<QueuePair>(result);

  auto qp = std::make_unique<QueuePair>();
  qp->hca = opened.hca.get();
  qp->signal_all = wanted.sq_sig_all != 0;
  qp->datagrams = raw(wanted.qp_type) == IBV_QPT_UD;
  qp->capabilities = granted(wanted);
  if (send_ops != 0) set_work_request_functions(*qp, static_cast<transport::QpType>(raw(wanted.qp_type)));

  transport::QpInit init;
  init.type = static_cast<transport::QpType>(raw(wanted.qp_type));
  init.pd = of(wanted.pd).id;
  init.srq = wanted.srq == nullptr ? nullptr : &of(wanted.srq).engine->queue();
  init.caps = {.max_send_wr = qp->capabilities.max_send_wr,
               .max_recv_wr = qp->capabilities.max_recv_wr,
               .max_send_sge = qp->capabilities.max_send_sge,
               .max_recv_sge = qp->capabilities.max_recv_sge,
               .max_inline_data = qp->capabilities.max_inline_data};
  init.signal_all = qp->signal_all;
  qp->engine = qp->hca->create_qp(init, *of(wanted.send_cq).engine, *of(wanted.recv_cq).engine, qp.get());

  ibv_qp& base = qp->qp_base;
  base.context = context;
  base.qp_context = wanted.qp_context;
  base.pd = wanted.pd;
  base.send_cq = wanted.send_cq;
  base.recv_cq = wanted.recv_cq;
  base.srq = wanted.srq;
  base.qp_num = qp->hca->qpn(qp->engine);
  base.handle = base.qp_num;
  base.state = IBV_QPS_RESET;
  base.qp_type = wanted.qp_type;
  init_acknowledgement(base.mutex, base.cond);
  ++of(wanted.send_cq).users;
  ++of(wanted.recv_cq).users;
  if (wanted.srq != nullptr) ++of(wanted.srq).users;
  given = qp->capabilities;
  const std::lock_guard lock(opened.objects_mutex);
  opened.qps.insert(qp.get());
  return qp.release();
}

transport::QpAttr translate_attr(const ibv_qp_attr& from) noexcept {
  transport::QpAttr to;
  to.state = static_cast<transport::QpState>(raw(from.qp_state));
  to.cur_state = static_cast<transport::QpState>(raw(from.cur_qp_state));
  to.en_sqd_async_notify = from.en_sqd_async_notify != 0;
  to.has_grh = from.ah_attr.is_global != 0;
  to.av = address_vector(from.ah_attr);
  to.path_mtu = static_cast<transport::MtuCode>(raw(from.path_mtu));
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qpn = from.dest_qp_num;
  to.access_flags = from.qp_access_flags;
  to.pkey_index = from.pkey_index;
  to.port = from.port_num;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  return to;
}

ibv_qp_attr translate_attr(const transport::QpAttr& from, const QueuePair& qp) noexcept {
  ibv_qp_attr to{};
  to.qp_state = static_cast<ibv_qp_state>(from.state);
  to.cur_qp_state = to.qp_state;
  to.path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  to.path_mig_state = IBV_MIG_MIGRATED;
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qpn;
  to.qp_access_flags = from.access_flags;
  to.cap = qp.capabilities;
  std::memcpy(to.ah_attr.grh.dgid.raw, from.av.remote.bytes.data(), sizeof to.ah_attr.grh.dgid.raw);
  to.ah_attr.grh.flow_label = from.av.flow_label;
  to.ah_attr.grh.sgid_index = from.av.sgid_index;
  to.ah_attr.grh.hop_limit = from.av.hop_limit;
  to.ah_attr.grh.traffic_class = from.av.traffic_class;
  to.ah_attr.is_global = from.has_grh ? 1 : 0;
  to.ah_attr.port_num = from.port;
  to.pkey_index = from.pkey_index;
  to.sq_draining = from.sq_draining ? 1 : 0;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  return to;
}

/// Numbers that the transport's enums have no enumerator for; everything else is judged there.
bool representable(const ibv_qp_attr& attributes, std::uint32_t mask) noexcept {
  if ((mask & IBV_QP_STATE) != 0 && raw(attributes.qp_state) > IBV_QPS_ERR) return false;
  if ((mask & IBV_QP_CUR_STATE) != 0 && raw(attributes.cur_qp_state) > IBV_QPS_ERR) return false;
  const unsigned mtu = raw(attributes.path_mtu);
  return (mask & IBV_QP_PATH_MTU) == 0 || (mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096);
}

}  // namespace

transport::AddressVector address_vector(const ibv_ah_attr& from) noexcept {
  transport::AddressVector to;
  std::memcpy(to.remote.bytes.data(), from.grh.dgid.raw, to.remote.bytes.size());
  to.sgid_index = from.grh.sgid_index;
  to.traffic_class = from.grh.traffic_class;
  to.hop_limit = from.grh.hop_limit;
  to.flow_label = from.grh.flow_label;
  return to;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) noexcept {
  return guarded(EINVAL, [&]() -> ibv_qp* {
    constexpr std::uint32_t kKnown =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const std::uint32_t mask = attributes->comp_mask;
    if ((mask & ~kKnown) != 0) return fail<ibv_qp>(not_supported("XRC, RSS and TSO queue pairs"));
    if ((mask & IBV_QP_INIT_ATTR_PD) == 0) return fail<ibv_qp>(EINVAL);
    if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attributes->create_flags != 0) {
      return fail<ibv_qp>(not_supported("queue pair creation flags"));
    }
    const std::uint64_t ops = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 ? attributes->send_ops_flags : 0;
    if ((ops & ~send_ops_of(raw(attributes->qp_type))) != 0) {
      return fail<ibv_qp>(not_supported("such operations on a queue pair of this type"));
    }
    QueuePair* qp = create(context, *attributes, ops, attributes->cap);
    return qp == nullptr ? nullptr : &qp->qp_base;
  });
}

int destroy_qp(QueuePair& qp) noexcept {
  Context& context = of(qp.qp_base.context);
  if (qp.engine != nullptr) {
    if (const int result = qp.hca->destroy_qp(qp.engine); result != 0) return result;
    qp.engine = nullptr;
    const std::lock_guard lock(context.objects_mutex);
    context.qps.erase(&qp);  // a late event finds it no more
  }
  drop_async_events(context, &qp.qp_base);
  if (const int result = await_acknowledgement(qp.qp_base.mutex, qp.qp_base.cond, qp.qp_base.events_completed,
                                               qp.reported_events, "queue pair");
      result != 0) {
    return result;
  }
  --of(qp.qp_base.send_cq).users;
  --of(qp.qp_base.recv_cq).users;
  if (qp.qp_base.srq != nullptr) --of(qp.qp_base.srq).users;
  destroy_acknowledgement(qp.qp_base.mutex, qp.qp_base.cond);
  delete &qp;
  return 0;
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  return tw::guarded(EINVAL, [&]() -> ibv_qp* {
    ibv_qp_init_attr_ex wanted{};
    std::memcpy(&wanted, qp_init_attr, offsetof(ibv_qp_init_attr_ex, comp_mask));  // so far both structs are the same
    wanted.pd = pd;
    tw::QueuePair* qp = tw::create(pd->context, wanted, 0, qp_init_attr->cap);
    return qp == nullptr ? nullptr : &qp->qp_base;
  });
}

TENSORWIRE_VERB int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  const auto mask = static_cast<std::uint32_t>(attr_mask);
  if (!tw::representable(*attr, mask)) return EINVAL;
  tw::QueuePair& pair = tw::of(qp);
  try {
    if (const int result = pair.hca->modify_qp(pair.engine, tw::translate_attr(*attr), mask); result != 0)
      return result;
  } catch (const std::exception& error) {
    tensorwire::log_warn(error.what());
    return ENOMEM;
  }
  if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return 0;
}

TENSORWIRE_VERB int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  tw::QueuePair& pair = tw::of(qp);
  *attr = tw::translate_attr(pair.hca->query_qp(pair.engine), pair);
  *init_attr = {};
  init_attr->qp_context = qp->qp_context;
  init_attr->send_cq = qp->send_cq;
  init_attr->recv_cq = qp->recv_cq;
  init_attr->srq = qp->srq;
  init_attr->cap = pair.capabilities;
  init_attr->qp_type = qp->qp_type;
  init_attr->sq_sig_all = pair.signal_all ? 1 : 0;
  qp->state = attr->qp_state;
  return 0;
}

TENSORWIRE_VERB int ibv_destroy_qp(ibv_qp* qp) { return tw::destroy_qp(tw::of(qp)); }

/// Where a payload lands is not ordered by address on every link of this HCA.
TENSORWIRE_VERB int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }
