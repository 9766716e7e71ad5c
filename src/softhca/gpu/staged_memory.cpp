#include "softhca/gpu/staged_memory.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "wire/opcode.hpp"

namespace tensorwire::softhca {

namespace {

constexpr std::size_t kMostGpus = 64;

/// Its commit may put a completion where the application sees it, and looks for bytes. (An atomic's answer is stored by
/// the engine itself, and an acknowledgement brings none.)
bool may_complete(const wire::OpcodeTraits& traits) noexcept {
  return traits.ends() && (traits.send || traits.immediate || (traits.response && traits.payload));
}

}  // namespace

StagedMemory::StagedMemory(GpuPlatform& platform, Ps write_late) : platform_(platform), write_late_(write_late) {
  gpus_.reserve(kMostGpus);
}

std::unique_ptr<StagedRegion> StagedMemory::make_region(const GpuRange& range) {
  const std::lock_guard guard{set_up_};
  for (const Gpu& gpu : gpus()) {
    if (gpu.device == range.device) return std::make_unique<StagedRegion>(*gpu.staging, range.allocation);
  }
  if (gpus_.size() == kMostGpus) throw system_error("register memory of another GPU", ENOMEM);
  gpus_.push_back(
      {range.device, std::make_unique<Staging>(platform_.open(range.device, Staging::kPinnedBytes), write_late_ != 0)});
  count_.store(gpus_.size(), std::memory_order_release);
  return std::make_unique<StagedRegion>(*gpus_.back().staging, range.allocation);
}

void StagedMemory::settle_all() noexcept {
  for (const Gpu& gpu : gpus()) gpu.staging->settle();
  due_ = kNever;
}

// ---- transmit

void StagedMemory::fetch(std::span<const transport::TxDesc> descs) noexcept {
  for (const transport::TxDesc& desc : descs) {
    for (const transport::Piece& piece : std::span{desc.pieces}.first(desc.piece_count)) {
      if (piece.mr != nullptr && piece.mr->staged) piece.mr->ops->prefetch(piece.address, piece.length);
    }
  }
  for (const Gpu& gpu : gpus()) gpu.staging->wanted();
}

void StagedMemory::fetched() noexcept {
  for (const Gpu& gpu : gpus()) gpu.staging->forget_batch();
}

void StagedMemory::before_send(std::span<const transport::TxDesc> descs) noexcept {
  for (const transport::TxDesc& desc : descs) {
    const wire::OpcodeTraits& traits = wire::traits(desc.headers.opcode);
    const bool reads = traits.response && desc.piece_count != 0;
    if (reads || (traits.response && write_late_ == 0)) return settle_all();
  }
}

// ---- receive

void StagedMemory::placing(const transport::QueuePair& qp) noexcept {
  for (const Gpu& gpu : gpus()) gpu.staging->defer(qp.life() + 1);
}

void StagedMemory::placed() noexcept {
  for (const Gpu& gpu : gpus()) gpu.staging->defer(0);
}

bool StagedMemory::landed(const transport::RxVerdict& verdict, const wire::Headers& headers) noexcept {
  if (verdict.qp == nullptr || !may_complete(wire::traits(headers.opcode))) return true;
  if (write_late_ == 0) settle_all();
  bool whole = true;
  for (const Gpu& gpu : gpus()) whole = whole && gpu.staging->whole(verdict.qp->life() + 1);
  return whole;
}

void StagedMemory::received(Ps now) noexcept {
  bool outstanding = false;
  for (const Gpu& gpu : gpus()) {
    gpu.staging->issue();
    outstanding = outstanding || gpu.staging->outstanding();
  }
  if (write_late_ != 0 && outstanding && due_ == kNever) due_ = now + write_late_;
}

void StagedMemory::on_timer(Ps now) noexcept {
  if (due_ <= now) settle_all();
}

void StagedMemory::visit_counters(const Link::CounterSink& sink) const {
  StagingCounters all;
  for (const Gpu& gpu : gpus()) {
    const StagingCounters& c = gpu.staging->counters();
    all.bytes_read += c.bytes_read;
    all.bytes_written += c.bytes_written;
    all.copies += c.copies;
    all.settles += c.settles;
  }
  sink("gpu_bytes_read", all.bytes_read);
  sink("gpu_bytes_written", all.bytes_written);
  sink("gpu_copies", all.copies);
  sink("gpu_settles", all.settles);
}

}  // namespace tensorwire::softhca
