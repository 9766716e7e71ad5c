// A queue pair that nobody answers (UD, UC), its reference, and what the applications of both kinds do alike: buffers
// that any message may meet, sources that must not be read, coming back after an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "reference_unanswered.hpp"
#include "shared_queue.hpp"
#include "sim_host.hpp"
#include "slots.hpp"

namespace tensorwire::transport::faults {

class UnansweredEnd {
 public:
  virtual ~UnansweredEnd() = default;
  UnansweredEnd(const UnansweredEnd&) = delete;
  UnansweredEnd& operator=(const UnansweredEnd&) = delete;

  [[nodiscard]] virtual ReferenceUnanswered& reference() noexcept = 0;
  [[nodiscard]] const ReferenceUnanswered& reference() const noexcept {
    return const_cast<UnansweredEnd*>(this)->reference();
  }

  bool post_receives();
  /// Out of SQE, SQD or ERR, some time.
  bool recover(Ps now);
  void abort(Ps now);
  void restart(Ps now);
  /// What is drawn for it comes from `random`.
  void drain(Ps now, Random& random);
  /// The engine may have found a source that is not registered.
  void discover_failure();
  /// The buffer of a completion holds the network header and what was sent.
  void check_received(std::uint64_t wr_id, std::span<const std::byte> header, std::span<const std::byte> sent) const;
  [[nodiscard]] Slots& slots_in_use() noexcept { return srq != nullptr ? srq->slots : slots; }
  [[nodiscard]] bool finished() const noexcept;
  [[nodiscard]] std::string describe() const;

  SimHost* host;
  std::size_t host_number;
  std::uint32_t qpn = 0;
  QueuePair* qp = nullptr;
  PathId path = kDefaultPath;
  SimCq* cq = nullptr;
  SharedQueue* srq = nullptr;
  Slots slots;  ///< of its own queue

 protected:
  struct Kind {
    QpType type;
    const char* name;
    std::uint32_t max_inline;
    std::uint32_t source_bytes;
    Point abort, restart, from_sqe_to_rts;
  };
  UnansweredEnd(const Kind& kind, const Scenario& scenario, Random& random, Hits& hits, SimHost& on,
                std::size_t number);

  /// Makes the queue pair, its buffers and what it sends from.
  void create(SharedQueue* shared, std::uint32_t slot_bytes);
  virtual void bring_up(Ps now) = 0;
  void modify(const QpAttr& attr, std::uint32_t mask, Ps now);
  [[nodiscard]] SgeList source_list(std::uint64_t address, std::uint32_t length);
  /// Bytes for an inline request: what they hold after posting does not count.
  [[nodiscard]] SgeList inline_list(std::uint64_t address, std::uint32_t length);
  /// Posts, and tells the reference; false when the ring is full.
  bool post(SendWr& wr, const ReferenceUnanswered::Send& send, Ps now);
  [[nodiscard]] bool all_posted() const noexcept { return posted_ == number_of_sends_; }
  /// The next work request.
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

  const Kind& kind_;
  const Scenario& scenario_;
  Random& random_;
  Hits& hits_;
  QpCaps caps_;
  Zone source_;
  std::uint32_t number_of_sends_ = 0;

 private:
  void create_qp();
  [[nodiscard]] bool post_receive();

  std::uint32_t posted_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace tensorwire::transport::faults
