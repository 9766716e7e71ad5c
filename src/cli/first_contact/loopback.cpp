#include "cli/first_contact/loopback.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/failure.hpp"
#include "verbs/rdma_write.hpp"
#include "verbs/roce_qp.hpp"

namespace tensorwire::cli {
namespace {

constexpr std::uint32_t kLoopbackPiece = 1 << 20;
constexpr std::uint32_t kLoopbackDepth = 8;
constexpr Ps kLoopbackBound = 10 * kSecond;
constexpr const char* kLoopbackWrite = "RDMA WRITE to the same HCA";

class Loopback {
 public:
  explicit Loopback(const std::shared_ptr<verbs::ProtectionDomain>& domain)
      : queue_(verbs::CompletionQueue::create(domain->context(), 4 * kLoopbackDepth)),
        from_(end(domain)),
        to_(end(domain)) {
    verbs::ConnectOptions options;
    options.peer = "this host itself";
    verbs::transition_qp_to_rts(*from_, to_->address(), options);
    verbs::transition_qp_to_rts(*to_, from_->address(), options);
  }

  void write(const verbs::MemoryRegion& source, const verbs::MemoryRegion& target, std::size_t offset,
             std::uint32_t length) {
    while (in_flight_ == kLoopbackDepth) take();
    verbs::WriteRequest request;
    request.local_address = source.address() + offset;
    request.local_key = source.lkey();
    request.length = length;
    request.remote_address = target.address() + offset;
    request.remote_key = target.rkey();
    if (const int error = verbs::post_rdma_write_silent(*from_, request); error != 0) {
      throw Error{verbs::explain_post(error, kLoopbackWrite, ends())};
    }
    ++in_flight_;
  }

  void finish() {
    while (in_flight_ > 0) take();
  }

 private:
  [[nodiscard]] std::unique_ptr<verbs::QueuePair> end(const std::shared_ptr<verbs::ProtectionDomain>& domain) const {
    verbs::QpOptions options;
    options.send_depth = 2 * kLoopbackDepth;
    options.receive_depth = 1;
    options.link = verbs::SameHostLink::kPackets;
    return verbs::QueuePair::create(domain, queue_, queue_, options);
  }

  void take() {
    std::array<ibv_wc, kLoopbackDepth> done;
    verbs::WaitPolicy policy;
    policy.bound = kLoopbackBound;
    const int count = queue_->wait(done, policy);
    if (count < 0) throw system_error("poll for completions", -count);
    if (count == 0) throw Error{kLoopbackWrite, "no completion came within 10 s"};
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = done[static_cast<std::size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) {
        throw Error{verbs::explain_completion(completion, kLoopbackWrite, ends())};
      }
    }
    in_flight_ -= static_cast<std::uint32_t>(count);
  }

  [[nodiscard]] verbs::Endpoints ends() const {
    verbs::Endpoints ends;
    ends.local_gid = from_->address().gid;
    ends.local_qpn = from_->qpn();
    ends.remote_gid = to_->address().gid;
    ends.remote_qpn = to_->qpn();
    ends.peer_host = "this host itself";
    return ends;
  }

  std::shared_ptr<verbs::CompletionQueue> queue_;
  std::unique_ptr<verbs::QueuePair> from_;
  std::unique_ptr<verbs::QueuePair> to_;
  std::uint32_t in_flight_ = 0;
};

}  // namespace

double write_to_itself(const std::shared_ptr<verbs::ProtectionDomain>& domain, const verbs::MemoryRegion& source,
                       const verbs::MemoryRegion& target, std::uint32_t rounds) {
  Loopback loopback{domain};
  const std::size_t length = std::min(source.length(), target.length());
  const Ps started = monotonic_now();
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::size_t at = 0; at < length; at += kLoopbackPiece) {
      loopback.write(source, target, at,
                     static_cast<std::uint32_t>(std::min<std::size_t>(kLoopbackPiece, length - at)));
    }
  }
  loopback.finish();
  const double seconds = static_cast<double>(monotonic_now() - started) / static_cast<double>(kSecond);
  return static_cast<double>(length) * rounds / seconds / 1e9;
}

}  // namespace tensorwire::cli
