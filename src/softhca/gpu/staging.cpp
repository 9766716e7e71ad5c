#include "softhca/gpu/staging.hpp"

#include <algorithm>
#include <cstring>

#include "wire/icrc.hpp"

namespace tensorwire::softhca {

namespace {

void copy(std::byte* to, std::span<const std::byte> from, std::uint32_t* crc) noexcept {
  if (crc != nullptr) {
    *crc = wire::crc_copy(*crc, to, from);
  } else {
    std::memcpy(to, from.data(), from.size());
  }
}

constexpr bool contains(std::uint64_t start, std::size_t bytes, std::uint64_t address, std::size_t length) noexcept {
  return address >= start && length <= bytes && address - start <= bytes - length;
}

constexpr bool overlap(std::uint64_t a, std::size_t a_bytes, std::uint64_t b, std::size_t b_bytes) noexcept {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

Staging::Staging(std::unique_ptr<CopyEngine> engine, bool late)
    : engine_(std::move(engine)),
      late_(late),
      read_arena_(engine_->pinned().first(kReadArenaBytes)),
      bounce_(engine_->pinned().subspan(kReadArenaBytes, kCopyBytes)),
      write_arena_(engine_->pinned().subspan(kReadArenaBytes + kCopyBytes, kWriteArenaBytes)) {}

Staging::~Staging() {
  forget_batch();
  settle();
}

// ---- reading

void Staging::want(StagedRegion& region, std::uint64_t address, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  Chunk* const open = chunk_count_ > begun_chunks_ ? &chunks_[chunk_count_ - 1] : nullptr;
  const std::size_t used = chunk_count_ == 0 ? 0 : chunks_[chunk_count_ - 1].offset + chunks_[chunk_count_ - 1].bytes;
  if (bytes > kReadArenaBytes - used) return;  // read() will see to it
  const bool joins = open != nullptr && open->region == &region && open->address + open->bytes == address &&
                     open->bytes + bytes <= kCopyBytes;
  if (joins) {
    open->bytes += bytes;
    return;
  }
  wanted();
  if (chunk_count_ == kMaxChunks) return;
  chunks_[chunk_count_++] = {&region, address, used, bytes, 0};
}

void Staging::wanted() noexcept {
  while (begun_chunks_ < chunk_count_) begin_chunk(chunks_[begun_chunks_++]);
}

void Staging::begin_chunk(Chunk& chunk) noexcept {
  settle_if_touched(chunk.address, chunk.bytes);
  if (!chunk.region->valid_at(chunk.address)) return;
  chunk.ticket = engine_->begin_read(read_arena_.subspan(chunk.offset, chunk.bytes), chunk.address);
  if (chunk.ticket == 0) return;
  last_read_ = chunk.ticket;
  ++counters_.copies;
  counters_.bytes_read += chunk.bytes;
}

void Staging::forget_batch() noexcept {
  // What nobody waited for still writes into the arena.
  if (finished_ < last_read_) engine_->finish_read(last_read_);
  finished_ = last_read_;
  chunk_count_ = begun_chunks_ = next_chunk_ = 0;
}

const Staging::Chunk* Staging::find_chunk(const StagedRegion& region, std::uint64_t address,
                                          std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < begun_chunks_; ++i) {
    const std::size_t at = (next_chunk_ + i) % begun_chunks_;
    const Chunk& chunk = chunks_[at];
    if (chunk.region != &region || !contains(chunk.address, chunk.bytes, address, bytes)) continue;
    next_chunk_ = at;
    return &chunk;
  }
  return nullptr;
}

bool Staging::read(StagedRegion& region, std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept {
  if (to.empty()) return true;
  const Chunk* const chunk = find_chunk(region, address, to.size());
  if (chunk == nullptr) return read_now(region, address, to, crc);
  if (chunk->ticket == 0) return false;
  if (chunk->ticket > finished_) {
    if (!engine_->finish_read(chunk->ticket)) return false;
    finished_ = chunk->ticket;
  }
  copy(to.data(), read_arena_.subspan(chunk->offset + (address - chunk->address), to.size()), crc);
  return true;
}

bool Staging::read_now(StagedRegion& region, std::uint64_t address, std::span<std::byte> to,
                       std::uint32_t* crc) noexcept {
  settle_if_touched(address, to.size());
  while (!to.empty()) {
    const std::span<std::byte> here = bounce_.first(std::min(to.size(), bounce_.size()));
    if (!region.valid_at(address)) return false;
    const CopyEngine::Ticket ticket = engine_->begin_read(here, address);
    if (ticket == 0) return false;
    last_read_ = ticket;
    ++counters_.copies;
    counters_.bytes_read += here.size();
    if (!engine_->finish_read(ticket)) return false;
    finished_ = ticket;
    copy(to.data(), here, crc);
    address += here.size();
    to = to.subspan(here.size());
  }
  return true;
}

// ---- writing

bool Staging::write(StagedRegion& region, std::uint64_t address, std::span<const std::byte> from,
                    std::uint32_t* crc) noexcept {
  while (!from.empty()) {
    const std::span<const std::byte> here = from.first(std::min(from.size(), kCopyBytes));
    note(region, address, here, crc);
    address += here.size();
    from = from.subspan(here.size());
  }
  if (owner_ != 0) return true;
  lost_ = false;
  settle();
  return !lost_;
}

void Staging::note(StagedRegion& region, std::uint64_t address, std::span<const std::byte> from,
                   std::uint32_t* crc) noexcept {
  Run& run = run_for(region, address, from.size());
  copy(&write_arena_[(run.position + run.bytes) % kWriteArenaBytes], from, crc);
  run.bytes += from.size();
  position_ = run.position + run.bytes;
  if (!late_ && run.bytes == kCopyBytes) issue_all();
}

/// The open run, where the bytes continue it; else a new one. There is room for them behind it.
Staging::Run& Staging::run_for(StagedRegion& region, std::uint64_t address, std::size_t bytes) noexcept {
  const auto occupied_from = [&] { return outstanding() ? run_at(first_run_).position : position_; };
  if (begun_runs_ != end_run_) {
    Run& open = run_at(end_run_ - 1);
    const bool continues = open.region == &region && open.owner == owner_ && open.address + open.bytes == address &&
                           open.bytes + bytes <= kCopyBytes;
    const bool fits = open.position % kWriteArenaBytes + open.bytes + bytes <= kWriteArenaBytes &&
                      position_ + bytes - occupied_from() <= kWriteArenaBytes;
    if (continues && fits) return open;
    if (!late_) issue_all();
  }
  if (!outstanding()) position_ = 0;  // the same few lines of the cache, as long as there is little to do
  const std::uint64_t left = kWriteArenaBytes - position_ % kWriteArenaBytes;
  if (left < bytes) position_ += left;
  while (outstanding() &&
         (end_run_ - first_run_ == kMaxRuns || position_ + bytes - occupied_from() > kWriteArenaBytes)) {
    issue_all();
    retire_first();
  }
  Run& run = run_at(end_run_++);
  run = {&region, owner_, address, position_, 0, 0, false};
  return run;
}

void Staging::begin_run(Run& run) noexcept {
  run.issued = true;
  if (!run.region->valid_at(run.address)) return;
  run.ticket = engine_->begin_write(run.address, write_arena_.subspan(run.position % kWriteArenaBytes, run.bytes));
  if (run.ticket == 0) return;
  ++counters_.copies;
  counters_.bytes_written += run.bytes;
}

void Staging::issue_all() noexcept {
  while (begun_runs_ != end_run_) begin_run(run_at(begun_runs_++));
}

void Staging::issue() noexcept {
  if (late_) return;
  issue_all();
  while (first_run_ != begun_runs_ && engine_->write_done(run_at(first_run_).ticket)) retire_first();
}

/// Waits for the oldest run, which has begun.
void Staging::retire_first() noexcept {
  const Run& run = run_at(first_run_++);
  if (run.ticket != 0 && engine_->finish_write(run.ticket)) return;
  if (run.owner == 0) {
    lost_ = true;
  } else {
    losses_[next_loss_++ % kMaxLosses] = run.owner;
  }
}

void Staging::settle() noexcept {
  if (!outstanding()) return;
  ++counters_.settles;
  issue_all();
  while (outstanding()) retire_first();
}

void Staging::settle_if_touched(std::uint64_t address, std::size_t bytes) noexcept {
  for (std::uint64_t i = first_run_; i != end_run_; ++i) {
    if (overlap(run_at(i).address, run_at(i).bytes, address, bytes)) return settle();
  }
}

bool Staging::whole(std::uint64_t owner) const noexcept {
  return std::find(losses_.begin(), losses_.end(), owner) == losses_.end();
}

bool Staging::atomic(StagedRegion& region, std::uint64_t address, const transport::AtomicOperation& operation,
                     std::uint64_t& original) noexcept {
  settle();
  std::uint64_t word = 0;
  if (!read_now(region, address, std::as_writable_bytes(std::span{&word, 1}), nullptr)) return false;
  original = transport::apply_atomic(word, operation);
  return write(region, address, std::as_bytes(std::span{&word, 1}), nullptr);
}

}  // namespace tensorwire::softhca
