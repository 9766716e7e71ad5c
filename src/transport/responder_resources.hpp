// The responder's memory of READs and atomics: the last max_dest_rd_atomic of them, so that a duplicate can be answered
// again (a READ by reading again, an atomic with the value it found then), and what of their answers has yet to leave.
// A ring of its Responder; there is none while the queue pair may not be asked for any.
//
// Requests are known by their position: the number of PSNs executed before them, in 64 bits, so that a record is never
// taken for one a lap of the PSN circle later.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/attributes.hpp"
#include "wire/opcode.hpp"

namespace tensorwire::transport {

/// An executed READ or atomic.
struct FetchRecord {
  std::uint64_t position = 0;
  std::uint32_t psns = 0;  ///< that it and its answer take
  wire::Opcode opcode = wire::Opcode::kRcReadRequest;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  std::uint64_t va = 0;
  std::uint64_t original = 0;  ///< atomic: the value that was there
  bool answered = false;       ///< the whole answer has left once

  // The answer that is leaving: for a duplicate, part of the whole one.
  bool pending = false;
  std::uint32_t reply_first = 0;   ///< packets of the whole answer before it
  std::uint32_t reply_length = 0;  ///< bytes
  std::uint32_t reply_sent = 0;    ///< packets of it that have left

  [[nodiscard]] bool is_read() const noexcept { return opcode == wire::Opcode::kRcReadRequest; }
};

class ResponderResources {
 public:
  /// Forgets everything; from now on keeps `depth` records, at most kMaxRdAtomic.
  void reset(std::uint32_t depth) noexcept;
  /// From now on keeps `depth` records; the oldest beyond it are forgotten, answered or not.
  void resize(std::uint32_t depth) noexcept;

  /// False when the peer has more requests outstanding than it may, or may have none.
  [[nodiscard]] bool has_room() const noexcept;
  /// A new record in place of the oldest, its answer pending.
  void add(const FetchRecord& record) noexcept;

  /// The record that covers this position; null when there is none (any more).
  [[nodiscard]] FetchRecord* find(std::uint64_t position) noexcept;
  /// Position of the first record after this one; `otherwise` when there is none.
  [[nodiscard]] std::uint64_t next_after(std::uint64_t position, std::uint64_t otherwise) const noexcept;

  [[nodiscard]] bool pending() const noexcept { return pending_ != 0; }
  /// The oldest record whose answer is pending; only when pending().
  [[nodiscard]] FetchRecord& oldest_pending() noexcept;
  /// (Re)starts the answer, `reply_length` bytes from packet `first` on.
  void start_reply(FetchRecord& record, std::uint32_t first, std::uint32_t reply_length) noexcept;
  void finish_reply(FetchRecord& record) noexcept;
  void drop_replies() noexcept;

 private:
  void set_depth(std::uint32_t depth) noexcept;
  void forget_oldest() noexcept;
  /// Record number n counted from the oldest that is kept.
  [[nodiscard]] FetchRecord& at(std::uint32_t n) noexcept { return records_[(first_ + n) % kMaxRdAtomic]; }
  [[nodiscard]] const FetchRecord& at(std::uint32_t n) const noexcept { return records_[(first_ + n) % kMaxRdAtomic]; }

  std::vector<FetchRecord> records_;  ///< kMaxRdAtomic, from the first depth on that is not 0
  std::uint32_t depth_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t pending_ = 0;
};

}  // namespace tensorwire::transport
