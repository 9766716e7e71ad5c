// What verbs.h reaches through function pointers instead of symbols; context.cpp, cq_ex.cpp and qp_ex.cpp hang them in.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "ibverbs/objects.hpp"

namespace tensorwire::ibverbs {

// query.cpp
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes, std::size_t size) noexcept;
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                    std::size_t size) noexcept;
/// The type as sysfs counts: 0 IB or RoCE v1, 1 RoCE v2. Returns 0, or -1 and errno.
int query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, unsigned* type) noexcept;

// post.cpp
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) noexcept;
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept;
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept;
int poll_cq(ibv_cq* cq, int entries, ibv_wc* wc) noexcept;
int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept;

// mw.cpp
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept;
/// Type 1: posts the binding under a new key, which stands in `mw` at once.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept;
int dealloc_mw(ibv_mw* mw) noexcept;
/// The binding of a type 2 window, kept in `binding`. What cannot be one (type 1, no region, a key of another window,
/// zero-based) is left out, for the transport to refuse.
void translate_bind(const ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info,
                    transport::WindowBinding& binding, transport::SendWr& to) noexcept;

// cq.cpp, qp.cpp
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) noexcept;
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) noexcept;
int destroy_cq(CompletionQueue& cq) noexcept;
int destroy_qp(QueuePair& qp) noexcept;
/// The part of an address that a program names.
[[nodiscard]] transport::AddressVector address_vector(const ibv_ah_attr& from) noexcept;

// cq_ex.cpp, qp_ex.cpp
void set_poll_functions(CompletionQueue& cq) noexcept;
/// Which of the asked ibv_qp_create_send_ops_flags this HCA has; the others are refused.
inline constexpr std::uint64_t kDatagramSendOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
inline constexpr std::uint64_t kUnreliableSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                                    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
                                                    kDatagramSendOps;
inline constexpr std::uint64_t kSupportedSendOps = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
                                                   kUnreliableSendOps;
/// @throws std::bad_alloc.
void set_work_request_functions(QueuePair& qp, transport::QpType type);

// events.cpp
void on_completion_event(void* cq) noexcept;
void on_hca_event(void* context, softhca::HcaEvent event, void* object) noexcept;
void join_channel(CompletionQueue& cq) noexcept;
/// Drops the unread events of the queue; later ones go nowhere.
void leave_channel(CompletionQueue& cq) noexcept;
/// Tells the overrun of a queue to the context, once; returns EIO.
int fail_overrun(CompletionQueue& cq) noexcept;
/// Drops the unread events of a queue pair, completion queue or shared receive queue that is being destroyed.
void drop_async_events(Context& context, const void* object) noexcept;

// unsupported.cpp
void set_unsupported_operations(Context& context) noexcept;

}  // namespace tensorwire::ibverbs
