#include "softhca/shm_ring.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/error.hpp"

namespace tensorwire::softhca {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::uint32_t kSlotMask = kRingSlots - 1;

/// MAP_POPULATE: a page fault in the middle of a message would be seen in the latency.
RingLayout* map(int fd) noexcept {
  void* const at = ::mmap(nullptr, sizeof(RingLayout), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<RingLayout*>(at);
}

RingSlot slot_at(RingLayout& layout, std::uint64_t position) noexcept {
  const auto slot = static_cast<std::uint32_t>(position) & kSlotMask;
  return {layout.slots[slot].body, layout.data[slot].bytes};
}

}  // namespace

// ---- RingMemory

RingMemory RingMemory::create() {
  const auto failed = [] { return system_error("make a shared-memory ring", errno, "Is /dev/shm or memory full?"); };
  UniqueFd fd(::memfd_create("tensorwire-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw failed();
  if (::ftruncate(fd.get(), sizeof(RingLayout)) != 0) throw failed();
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw failed();
  RingLayout* const layout = map(fd.get());
  if (layout == nullptr) throw failed();
  // A new memfd is all zero bytes, which is the initial value of every field; this begins the objects' lifetime.
  std::uninitialized_default_construct_n(layout, 1);
  return RingMemory(std::move(fd), layout);
}

std::optional<RingMemory> RingMemory::adopt(UniqueFd fd) {
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0 || status.st_size != static_cast<off_t>(sizeof(RingLayout))) return std::nullopt;
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return std::nullopt;
  RingLayout* const layout = map(fd.get());
  if (layout == nullptr) return std::nullopt;
  return RingMemory(std::move(fd), layout);
}

RingMemory::RingMemory(UniqueFd fd, RingLayout* layout)
    : fd_(std::make_shared<UniqueFd>(std::move(fd))),
      layout_(layout, [](RingLayout* mapped) { ::munmap(mapped, sizeof(RingLayout)); }) {}

// ---- RingProducer

bool RingProducer::has_room(std::uint32_t slots) noexcept {
  if (published_ - freed_ + slots <= kRingSlots) return true;
  const std::uint64_t freed = memory_.layout().freed.load(std::memory_order_acquire);
  if (freed < freed_ || freed > published_) {  // no correct consumer does that: use the ring no more
    corrupt_ = true;
    return false;
  }
  freed_ = freed;
  return published_ - freed_ + slots <= kRingSlots;
}

RingSlot RingProducer::next_slot() noexcept { return slot_at(memory_.layout(), published_); }

void RingProducer::publish() noexcept {
  auto& slot = memory_.layout().slots[static_cast<std::uint32_t>(published_) & kSlotMask];
  slot.stamp.store(++published_, std::memory_order_seq_cst);
}

bool RingProducer::must_wake_consumer() noexcept {
  auto& flag = memory_.layout().consumer_sleeping;
  return flag.load(std::memory_order_seq_cst) != 0 && flag.exchange(0) != 0;
}

bool RingProducer::prepare_sleep(std::uint32_t slots) noexcept {
  auto& layout = memory_.layout();
  layout.producer_sleeping.store(1, std::memory_order_seq_cst);
  const std::uint64_t freed = layout.freed.load(std::memory_order_seq_cst);
  if (published_ - freed + slots > kRingSlots) return true;
  end_sleep();
  return false;
}

void RingProducer::end_sleep() noexcept { memory_.layout().producer_sleeping.store(0, std::memory_order_relaxed); }

// ---- RingConsumer

bool RingConsumer::empty() const noexcept {
  const auto& slot = memory_.layout().slots[static_cast<std::uint32_t>(consumed_) & kSlotMask];
  return slot.stamp.load(std::memory_order_acquire) != consumed_ + 1;
}

RingSlot RingConsumer::front() const noexcept { return slot_at(memory_.layout(), consumed_); }

bool RingConsumer::give_back() noexcept {
  if (given_back_ == consumed_) return false;
  given_back_ = consumed_;
  auto& layout = memory_.layout();
  layout.freed.store(consumed_, std::memory_order_seq_cst);
  return layout.producer_sleeping.load(std::memory_order_seq_cst) != 0 && layout.producer_sleeping.exchange(0) != 0;
}

bool RingConsumer::prepare_sleep() noexcept {
  auto& layout = memory_.layout();
  layout.consumer_sleeping.store(1, std::memory_order_seq_cst);
  const auto& slot = layout.slots[static_cast<std::uint32_t>(consumed_) & kSlotMask];
  if (slot.stamp.load(std::memory_order_seq_cst) != consumed_ + 1) return true;
  end_sleep();
  return false;
}

void RingConsumer::end_sleep() noexcept { memory_.layout().consumer_sleeping.store(0, std::memory_order_relaxed); }

}  // namespace tensorwire::softhca
