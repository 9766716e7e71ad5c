// A queue pair as the Hca holds it: the engine's queue pair and what the adapter adds (user locks, doorbell, link
// choice). Owned by HcaImpl; the engine's part is created and destroyed with the shard's lock held.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "softhca/hca.hpp"

namespace tensorwire::softhca {

class CqImpl;

class Qp {
 public:
  transport::QueuePair* engine_qp = nullptr;
  CqImpl* send_cq = nullptr;
  CqImpl* recv_cq = nullptr;
  void* user = nullptr;
  LinkChoice choice = LinkChoice::kAuto;
  std::string link_description = "not connected";  ///< shard's lock

  /// Verbs are thread-safe, the engine's rings take one poster at a time.
  std::mutex send_mutex;
  std::mutex recv_mutex;

  /// A rung queue pair is in the shard's doorbell stack exactly once.
  std::atomic<bool> rung{false};
  Qp* next_rung = nullptr;
};

}  // namespace tensorwire::softhca
