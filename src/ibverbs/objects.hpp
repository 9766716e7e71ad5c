// The objects behind the pointers that programs hold. Each begins with the struct that verbs.h declares (its base
// class), so a cast leads from one to the other. An object belongs to its context; a context belongs to the program
// until ibv_close_device, which takes what is left with it, as closing the kernel's file would.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "ibverbs/event_fd.hpp"
#include "softhca/hca.hpp"
#include "transport/send_queue.hpp"

namespace tensorwire::ibverbs {

/// Shared by the list that showed it and the contexts that opened it.
struct Device : ibv_device {
  /// libmlx5 and libefa look for their own data behind ibv_device to tell whether a device is theirs: zero means no.
  std::array<std::byte, 1024> foreign_provider_area{};
  softhca::DeviceInfo info;
  std::atomic<int> references{1};

  explicit Device(softhca::DeviceInfo device_info);
  void retain() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept;
};

struct Context;

struct Pd : ibv_pd {
  transport::PdId id = 0;
};

struct Mr : ibv_mr {};

/// Its `rkey` is the program's to set where it is of type 2, but for the bits that say which window it is.
struct Mw : ibv_mw {};

struct CompletionQueue;

/// A queue of completion events: the queues that have some, each with its count. Nothing is allocated after creation.
struct CompletionChannel : ibv_comp_channel {
  std::mutex mutex;
  EventFd events;
  CompletionQueue* first = nullptr;  ///< queues with pending events, oldest first
  CompletionQueue* last = nullptr;
};

struct CompletionQueue : ibv_cq_ex {
  std::unique_ptr<softhca::Cq> engine;
  transport::Completion current;  ///< what read_*() of the extended interface look at
  std::mutex poll_mutex;          ///< held from start_poll to end_poll unless single_threaded
  bool single_threaded = false;
  std::atomic<int> users{0};  ///< queue pairs
  std::atomic<bool> failure_told{false};
  std::uint32_t reported_async_events = 0;  ///< under the context's event lock
  // Under the channel's lock:
  std::uint32_t pending_events = 0;
  std::uint32_t reported_events = 0;
  CompletionQueue* next_in_channel = nullptr;
};

/// Work requests between ibv_wr_start and ibv_wr_complete; the vectors are reserved when the queue pair is created.
struct StagedRequests {
  StagedRequests(const transport::QpCaps& caps, transport::QpType type) : rehearsal(caps, type) {}

  std::mutex mutex;
  std::vector<transport::SendWr> requests;
  std::vector<std::size_t> first_piece;  ///< index into `pieces`, one per request
  std::vector<transport::Sge> pieces;
  std::vector<transport::WindowBinding> bindings;
  std::vector<std::byte> inline_bytes;
  int error = 0;  ///< the first, reported by ibv_wr_complete
  /// Takes requests as the queue pair does, one at a time, and sends none: says which would be refused.
  transport::SendQueue rehearsal;
};

struct AddressHandle : ibv_ah {
  transport::DatagramAddress address;
};

struct SharedReceiveQueue : ibv_srq {
  std::unique_ptr<softhca::Srq> engine;
  ibv_srq_attr capabilities{};        ///< without the limit, which is the engine's
  std::atomic<int> users{0};          ///< queue pairs
  std::uint32_t reported_events = 0;  ///< under the context's event lock
};

struct QueuePair : ibv_qp_ex {
  softhca::Hca* hca = nullptr;  ///< the context's: one step less on the way of a work request
  softhca::Qp* engine = nullptr;
  ibv_qp_cap capabilities{};
  bool signal_all = false;
  bool datagrams = false;                  ///< UD
  std::unique_ptr<StagedRequests> staged;  ///< only with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
  std::uint32_t reported_events = 0;       ///< under the context's event lock
};

struct Context : verbs_context {
  Device* device = nullptr;
  std::shared_ptr<softhca::Hca> hca;

  std::mutex objects_mutex;
  std::unordered_set<Pd*> pds;
  std::unordered_set<Mr*> mrs;
  std::unordered_set<Mw*> mws;
  std::unordered_set<CompletionQueue*> cqs;
  std::unordered_set<SharedReceiveQueue*> srqs;
  std::unordered_set<AddressHandle*> ahs;
  std::unordered_set<QueuePair*> qps;

  std::mutex event_mutex;  ///< taken after objects_mutex where both are needed
  EventFd events;
  std::deque<ibv_async_event> event_queue;

  Context(Device& opened, std::shared_ptr<softhca::Hca> running);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

inline Device& of(ibv_device* device) noexcept { return *static_cast<Device*>(device); }
inline Pd& of(ibv_pd* pd) noexcept { return *static_cast<Pd*>(pd); }
inline Mr& of(ibv_mr* mr) noexcept { return *static_cast<Mr*>(mr); }
inline Mw& of(ibv_mw* mw) noexcept { return *static_cast<Mw*>(mw); }
inline AddressHandle& of(ibv_ah* ah) noexcept { return *static_cast<AddressHandle*>(ah); }
inline SharedReceiveQueue& of(ibv_srq* srq) noexcept { return *static_cast<SharedReceiveQueue*>(srq); }
inline CompletionChannel& of(ibv_comp_channel* channel) noexcept { return *static_cast<CompletionChannel*>(channel); }
inline CompletionQueue& of(ibv_cq_ex* cq) noexcept { return *static_cast<CompletionQueue*>(cq); }
inline CompletionQueue& of(ibv_cq* cq) noexcept { return of(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline QueuePair& of(ibv_qp_ex* qp) noexcept { return *static_cast<QueuePair*>(qp); }
inline QueuePair& of(ibv_qp* qp) noexcept { return of(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline Context& of(ibv_context* context) noexcept {
  return *static_cast<Context*>(
      reinterpret_cast<verbs_context*>(reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context)));
}

inline ibv_cq* as_cq(CompletionQueue& cq) noexcept { return ibv_cq_ex_to_cq(&cq); }

}  // namespace tensorwire::ibverbs
