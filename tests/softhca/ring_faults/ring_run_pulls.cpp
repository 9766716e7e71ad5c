// A record whose payload is pulled: step by step, judged anew at each, while the memory at both ends, its sender and
// its windows may be gone the next time.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "ring_run.hpp"
#include "transport/faults/violation.hpp"

namespace tensorwire::softhca::faults {

using namespace transport;
using transport::faults::End;
using transport::faults::ReferenceQp;
using transport::faults::require;
using transport::faults::Truth;

namespace {

/// Takes a page of this process away for as long as it lives, as munmap() would.
class PageGone {
 public:
  explicit PageGone(std::uint64_t page) : page_(page) { protect(PROT_NONE); }
  PageGone(const PageGone&) = delete;
  PageGone& operator=(const PageGone&) = delete;
  ~PageGone() { protect(PROT_READ | PROT_WRITE); }

  static std::uint64_t size() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

 private:
  void protect(int rights) const { ::mprotect(reinterpret_cast<void*>(page_), size(), rights); }

  std::uint64_t page_;
};

/// The bytes [offset, offset + count) of what the pieces name.
std::vector<std::byte> gather(const std::vector<RemotePiece>& pieces, std::uint64_t offset, std::uint64_t count) {
  std::vector<std::byte> all;
  for (const RemotePiece& piece : pieces) {
    const auto* const at = reinterpret_cast<const std::byte*>(piece.address);
    all.insert(all.end(), at, at + piece.length);
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(offset), all.begin() + static_cast<std::ptrdiff_t>(offset + count)};
}

/// Whether its sender has taken nothing back since it wrote the record: what is in memory is the message.
bool stands(const Record& record, const End& sender) {
  return record.label.life == sender.life && (sender.ref.state == QpState::kRts || sender.ref.state == QpState::kSqd);
}

/// The target of a pull that fails: every byte of it is afterwards what it was or what was to be pulled.
class Suspects {
 public:
  Suspects(const Channel& channel, const Record& record, const Judgement& judgement, std::uint64_t bytes)
      : address_(judgement.address + channel.done), pulled_(gather(record.pieces, channel.done, bytes)) {
    const auto* const at = reinterpret_cast<const std::byte*>(address_);
    before_.assign(at, at + bytes);
  }

  void settle(transport::faults::Arena& arena) const {
    const std::byte* const now = arena.at(address_);
    for (std::size_t i = 0; i < pulled_.size(); ++i)
      require(now[i] == before_[i] || now[i] == pulled_[i], "a pull that fails writes the record's bytes or none");
    arena.expect(address_, {now, pulled_.size()});
  }

 private:
  std::uint64_t address_;
  std::vector<std::byte> pulled_;
  std::vector<std::byte> before_;
};

}  // namespace

void RingRun::place_pulled(Channel& channel, const Record& record, const Judgement& judgement, Connection& connection,
                           std::size_t side) {
  SimHost& host = hosts_[channel.to];
  LocalLinkCounters& counters = counters_[channel.to];
  const std::uint64_t bytes = std::min<std::uint64_t>(1 + random_.below(pull_bytes_), record.bytes - channel.done);
  if (record.label.truth == Truth::kForged) {
    points_.hit(RingPoint::kHostilePulled);
    receive(channel, bytes);
    return refuse_pull(channel, record, judgement, connection, side);
  }
  if (channel.stranger()) return pull_from_stranger(channel, record, judgement, bytes);
  if (channel.same_process && host.memory.failing_stores != 0) {
    points_.hit(RingPoint::kTargetGoneInProcess);
    receive(channel, bytes);
    return refuse_pull(channel, record, judgement, connection, side);
  }
  if (!stands(record, connection.ends[1 - side])) return pull_withdrawn(channel, record, judgement, bytes);
  if (const auto page = page_to_break(channel, record, judgement, bytes)) {
    const Suspects suspects(channel, record, judgement, bytes);
    {
      const PageGone gone(*page);
      receive(channel, bytes);
    }
    suspects.settle(host.arena);
    return refuse_pull(channel, record, judgement, connection, side);
  }

  const Before before = expect_commit(record.label, record.headers, record.bytes, judgement, connection, side);
  host.arena.expect(judgement.address + channel.done, gather(record.pieces, channel.done, bytes));
  if (channel.interleaved) points_.hit(RingPoint::kInterleaved);
  const bool last = channel.done + bytes == record.bytes;
  const std::uint64_t placed = counters.rx_pulled_bytes;
  require(receive(channel, bytes) == (last ? 1U : 0U), "a record is taken when its last byte is");
  require(counters.rx_pulled_bytes == placed + bytes, "pulled bytes are counted");
  require(host.arena.intact(judgement.address, record.bytes), "only the record's bytes are written");
  if (last) {
    committed(record.label, record.headers, record.bytes, channel.origin(), judgement, before, connection.ends[side]);
    return popped(channel);
  }
  points_.hit(RingPoint::kSteps);
  channel.done += bytes;
  const wire::OpcodeTraits& traits = wire::traits(record.headers.opcode);
  if (traits.invalidate) points_.hit(RingPoint::kInvalidatePulled);
  if (traits.send) {
    ReferenceQp& ref = connection.ends[side].ref;
    ref.hold();
    if (ref.holds()) points_.hit(RingPoint::kBufferKept);
  }
  // Who opened a window closes it now and then while a message is on its way through it.
  if (connection.ends[side].window.has(record.headers.rkey) && windows_.below(4) == 0)
    connection.post_local(side, now_);
  settle(channel.to);
}

/// A page under the bytes of this step, when one is to vanish and nothing but simulated memory is in it.
std::optional<std::uint64_t> RingRun::page_to_break(Channel& channel, const Record& record, const Judgement& judgement,
                                                    std::uint64_t bytes) {
  if (channel.breaks == Channel::Break::kNothing) return std::nullopt;
  const bool source = channel.breaks == Channel::Break::kSource;
  std::uint64_t at = channel.done + random_.below(static_cast<std::uint32_t>(bytes));
  if (source) {
    std::size_t piece = 0;
    for (; at >= record.pieces[piece].length; ++piece) at -= record.pieces[piece].length;
    at += record.pieces[piece].address;
  } else {
    at += judgement.address;
  }
  const std::uint64_t page = at - at % PageGone::size();
  if (!hosts_[source ? channel.from : channel.to].arena.holds(page, PageGone::size())) return std::nullopt;
  channel.breaks = Channel::Break::kNothing;
  points_.hit(source ? RingPoint::kSourceGone : RingPoint::kTargetGone);
  trace_.note(now_, channel.to, source ? "source unmapped" : "target unmapped");
  return page;
}

/// The engine was told that the bytes are not to be had.
void RingRun::refuse_pull(Channel& channel, const Record& record, const Judgement& judgement, Connection& connection,
                          std::size_t side) {
  require(hosts_[channel.to].arena.intact(judgement.address, record.bytes), "only the record's bytes are written");
  connection.ends[side].ref.reject(judgement, record.headers, now_);
  settle(channel.to);
  popped(channel);
}

/// It counts as lost, however much of it was in place.
void RingRun::pull_withdrawn(Channel& channel, const Record& record, const Judgement& judgement, std::uint64_t bytes) {
  points_.hit(RingPoint::kWithdrawn);
  trace_.note(now_, channel.to, "taken back by its sender");
  const Suspects suspects(channel, record, judgement, bytes);
  const std::uint64_t before = counters_[channel.to].rx_withdrawn;
  require(receive(channel, bytes) == 1, "what was taken back is not waited for");
  require(counters_[channel.to].rx_withdrawn == before + 1, "what was taken back does not complete");
  suspects.settle(hosts_[channel.to].arena);
  settle(channel.to);
  popped(channel);
}

/// Whatever was pulled is not believed, and nothing is pulled from there any more.
void RingRun::pull_from_stranger(Channel& channel, const Record& record, const Judgement& judgement,
                                 std::uint64_t bytes) {
  const Suspects suspects(channel, record, judgement, bytes);
  receive(channel, bytes);
  require(channel.in->finished(), "a channel to a stranger is broken");
  suspects.settle(hosts_[channel.to].arena);
  settle(channel.to);
  abandon(channel);
}

}  // namespace tensorwire::softhca::faults
