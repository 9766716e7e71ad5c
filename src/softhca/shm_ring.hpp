// A ring of records in shared memory from one process (the producer) to another (the consumer), and the flags by which
// either side asks to be woken. It carries opaque bytes; local_record.hpp says what they mean. The producer makes the
// memory and passes its descriptor on; each side owns its own mapping.
//
// Neither side trusts the other: positions are private counters, what is read from shared memory is checked before it
// counts, and the memory is sealed so that it cannot shrink under a reader. A hostile peer can spoil its own channel
// and nothing else.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/unique_fd.hpp"

namespace tensorwire::softhca {

inline constexpr std::uint32_t kRingSlots = 256;
inline constexpr std::size_t kSlotBodyBytes = 120;   ///< with its stamp two cache lines, which prefetchers fetch as one
inline constexpr std::size_t kSlotDataBytes = 4096;  ///< for what does not fit into the body
static_assert((kRingSlots & (kRingSlots - 1)) == 0, "a position becomes a slot by masking");

/// The consumer's answer to the offer of this ring.
enum class RingAnswer : std::uint32_t { kNone = 0, kReady = 1, kRefused = 2 };

/// The layout of the shared memory. One writer a cache line; a line that is polled holds nothing that changes for
/// another reason.
struct RingLayout {
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> stamp;  ///< position + 1 of the record that is here; a stale one never matches
    std::array<std::byte, kSlotBodyBytes> body;
  };
  /// One line more than the data, or the data of all slots would fall into the same few sets of every cache.
  struct alignas(64) Data {
    std::array<std::byte, kSlotDataBytes> bytes;
    std::array<std::byte, 64> stagger;
  };

  alignas(64) std::atomic<std::uint32_t> answer;             ///< RingAnswer; consumer, once
  std::atomic<std::uint32_t> reason;                         ///< of kRefused; consumer, before `answer`
  alignas(64) std::atomic<std::uint64_t> freed;              ///< records consumed and given back; consumer
  alignas(64) std::atomic<std::uint32_t> consumer_sleeping;  ///< set by the consumer, taken by who wakes it
  alignas(64) std::atomic<std::uint32_t> producer_sleeping;
  alignas(128) std::array<Slot, kRingSlots> slots;
  std::array<Data, kRingSlots> data;
};
static_assert(sizeof(RingLayout::Slot) == 128);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "an atomic with a lock inside would not work between processes");

/// A mapping of the shared memory. Copies share it: both ends of a ring inside one process.
class RingMemory {
 public:
  /// New, zeroed, sealed against resizing, with every page present. @throws Error when the system has no memory.
  [[nodiscard]] static RingMemory create();
  /// Maps what a peer passed. Nothing unless it is shared memory of our size that its maker can no longer shrink.
  [[nodiscard]] static std::optional<RingMemory> adopt(UniqueFd fd);

  [[nodiscard]] RingLayout& layout() const noexcept { return *layout_; }
  [[nodiscard]] int fd() const noexcept { return fd_->get(); }

 private:
  RingMemory(UniqueFd fd, RingLayout* layout);
  std::shared_ptr<UniqueFd> fd_;
  std::shared_ptr<RingLayout> layout_;
};

/// Where a record is written or read.
struct RingSlot {
  std::span<std::byte, kSlotBodyBytes> body;
  std::span<std::byte, kSlotDataBytes> data;
};

// Why nobody sleeps through a record. The one who is about to sleep stores its flag and then looks at the ring; the one
// who changes the ring stores that change and then looks at the flag. All four accesses are sequentially consistent, so
// they have one order that everybody sees: either the look at the ring comes after the change, and the sleeper stays
// awake, or it comes before it, so the flag was stored before it too, and the look at the flag, which comes after the
// change, finds it. (Dekker's argument. On x86 the stores are xchg, about 20 cycles.) Taking the flag by exchange makes
// one system call of many reasons to wake.

class RingProducer {
 public:
  explicit RingProducer(RingMemory memory) noexcept : memory_(std::move(memory)) {}

  /// True when `slots` more records fit. Reads the consumer's line only when its last known value does not answer.
  [[nodiscard]] bool has_room(std::uint32_t slots) noexcept;
  /// The slot of the next record; has_room(1) must have been true.
  [[nodiscard]] RingSlot next_slot() noexcept;
  /// Hands the record in next_slot() to the consumer.
  void publish() noexcept;
  /// After publish(): true when the consumer sleeps and the caller must now wake it.
  [[nodiscard]] bool must_wake_consumer() noexcept;

  /// Asks to be woken when records are given back. Returns false, and takes it back, when `slots` already fit.
  [[nodiscard]] bool prepare_sleep(std::uint32_t slots) noexcept;
  void end_sleep() noexcept;

  [[nodiscard]] RingMemory& memory() noexcept { return memory_; }
  [[nodiscard]] std::uint64_t published() const noexcept { return published_; }
  /// True once the consumer claimed to have consumed what was never published.
  [[nodiscard]] bool corrupt() const noexcept { return corrupt_; }

 private:
  RingMemory memory_;
  std::uint64_t published_ = 0;
  std::uint64_t freed_ = 0;  ///< last known
  bool corrupt_ = false;
};

class RingConsumer {
 public:
  explicit RingConsumer(RingMemory memory) noexcept : memory_(std::move(memory)) {}

  [[nodiscard]] bool empty() const noexcept;
  /// The oldest record; !empty() must have been true. Its bytes may change while they are read if the producer is
  /// hostile: copy what is to be checked, then check the copy.
  [[nodiscard]] RingSlot front() const noexcept;
  /// The oldest record is done with.
  void pop() noexcept { ++consumed_; }
  /// Gives popped records back. Returns true when the producer waits for that and the caller must now wake it.
  [[nodiscard]] bool give_back() noexcept;

  /// Asks to be woken for the next record. Returns false, and takes it back, when there is one.
  [[nodiscard]] bool prepare_sleep() noexcept;
  void end_sleep() noexcept;

  [[nodiscard]] RingMemory& memory() noexcept { return memory_; }

 private:
  RingMemory memory_;
  std::uint64_t consumed_ = 0;
  std::uint64_t given_back_ = 0;
};

}  // namespace tensorwire::softhca
