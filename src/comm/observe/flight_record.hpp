// The last operations of a rank, kept in a ring while all is well and written when the communicator fails: one JSON
// object a line, the failure first, then the operations from old to new. The data path only stores numbers. One thread
// begins and ends operations, any thread may write them down.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "comm/observe/operation_info.hpp"
#include "comm/observe/output_name.hpp"
#include "comm/observe/published.hpp"

namespace tensorwire::comm {

/// Why the communicator failed and what it waited for then.
struct FailureNote {
  std::string line;
  int peer = -1;                  ///< the rank to blame, -1 for none
  std::uint32_t waiting_for = 0;  ///< the number of ranks when it waited for none
  const char* waiting_for_what = "";
};

class FlightRecord {
 public:
  static constexpr std::size_t kOperations = 64;

  struct Entry {
    OperationInfo info;
    Ps begun = 0;
    Ps ended = 0;  ///< 0: under way, or failed
    Ps waited = 0;
    std::uint32_t waited_for = 0;  ///< the peer that came last; meaningful if waited
  };

  /// @return the operation's ordinal, for end().
  std::uint64_t begin(const OperationInfo& info, Ps now) noexcept {
    Entry& entry = entries_[begun_ % kOperations];
    entry = {info, now, 0, 0, 0};
    published_[begun_ % kOperations].store(entry);
    published_begun_.store(begun_ + 1, std::memory_order_release);
    return begun_++;
  }
  Entry& end(std::uint64_t ordinal, Ps now, Ps waited, std::uint32_t waited_for) noexcept {
    Entry& entry = entries_[ordinal % kOperations];
    entry.ended = now;
    entry.waited = waited;
    entry.waited_for = waited_for;
    published_[ordinal % kOperations].store(entry);
    return entry;
  }

  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
  /// Needs begun() > 0.
  [[nodiscard]] const Entry& last() const noexcept { return entries_[(begun_ - 1) % kOperations]; }

  // Any thread.
  /// @param now as given to begin() and end()
  [[nodiscard]] std::string to_json_lines(const Identity& who, const FailureNote& failure, Ps now) const;

 private:
  std::array<Entry, kOperations> entries_;
  std::uint64_t begun_ = 0;
  // The same, for any thread.
  std::array<Published<Entry>, kOperations> published_;
  std::atomic<std::uint64_t> published_begun_ = 0;
};

/// Writes the record into a file of its own in `folder`, which is made if need be. @return its path. @throws Error.
std::string write_flight_record(const std::string& folder, const Identity& who, const std::string& text);

}  // namespace tensorwire::comm
