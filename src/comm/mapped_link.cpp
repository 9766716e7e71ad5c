#include "comm/mapped_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "base/stream_copy.hpp"

namespace tensorwire::comm {

namespace {

/// A look at the link below costs as much as ten at the rings. It is taken once in so many polls, and always for a
/// while after something was posted or found there.
constexpr std::uint32_t kPollsPerLookBelow = 16;
constexpr std::uint32_t kBusyPolls = 1000;

bool lies_in(const std::byte* address, std::span<const std::byte> memory) noexcept {
  return address >= memory.data() && address < memory.data() + memory.size();
}

}  // namespace

MappedLink::MappedLink(const LinkSetup& setup, std::unique_ptr<MappedPeers> peers, std::unique_ptr<Link> below,
                       bool streams)
    : setup_(setup),
      pair_bytes_(setup.depth * setup.slot_bytes),
      memory_(std::move(peers)),
      below_(std::move(below)),
      streams_(streams),
      peers_(setup.ranks) {
  for (std::uint32_t k = 1; k < setup.ranks; ++k) {
    const std::uint32_t rank = (setup.rank + k) % setup.ranks;
    if (!memory_->maps(rank)) {
      all_mapped_ = false;
      continue;
    }
    Peer& peer = peers_[rank];
    peer.mapped = true;
    peer.sleeps = memory_->sleeps(rank);
    peer.writer = memory_->writer_to(rank);
    peer.reader = memory_->reader_from(rank, setup.rank);
    peer.scratch = memory_->scratch_of(rank);
    mapped_peers_.push_back(rank);
  }
  // What came from a peer of this host may be passed on to another host from where it lies.
  for (const std::uint32_t rank : mapped_peers_) {
    if (!all_mapped_) peers_[rank].key_below = below_->key_of(peers_[rank].scratch.data(), peers_[rank].scratch.size());
  }
  sent_.reserve(std::size_t{setup.ranks} * setup.send_depth);
}

bool MappedLink::post_write(const WriteRequest& request) noexcept {
  if (failure_) return false;
  Peer& peer = peers_[request.peer];
  const std::uint64_t at = request.remote_offset - setup_.rank * pair_bytes_;
  // What is for no slot, an invitation, is written into the peer's memory.
  const bool for_slot = !request.to_output && (at < pair_bytes_ || request.pieces.empty());
  if (!peer.mapped || !for_slot) return post_below(request);
  MappedNote note;
  note.immediate = request.immediate;
  for (const Piece& piece : request.pieces) note.bytes += piece.bytes;
  if (note.bytes != 0) {
    if (note.bytes > setup_.slot_bytes - at % setup_.slot_bytes) {
      return fail(setup_.rank, "a write of this rank does not fit the slot that it is for");
    }
    note.offset = at;
    note.source = placed(request, note.bytes);
  }
  peer.writer.push(note);
  if (peer.sleeps) memory_->wake(request.peer);
  peer.tally.messages_sent.add(1);
  peer.tally.bytes_sent.add(note.bytes);
  if (request.token != collective::kNoToken) sent_.push_back(request.token);
  return true;
}

/// What a step sources from a slot that a mapped peer filled lies in that peer's memory.
bool MappedLink::post_below(const WriteRequest& request) noexcept {
  busy_below_ = kBusyPolls;
  std::array<Piece, 2> pieces;
  std::ranges::copy(request.pieces, pieces.begin());
  for (Piece& piece : pieces) {
    for (const std::uint32_t rank : mapped_peers_) {
      if (piece.bytes != 0 && lies_in(piece.address, peers_[rank].scratch)) piece.key = peers_[rank].key_below;
    }
  }
  WriteRequest changed = request;
  changed.pieces = std::span{pieces}.first(request.pieces.size());
  return below_->post_write(changed);
}

bool MappedLink::may_stay(const Piece& piece, std::uint64_t slot_offset) const noexcept {
  const std::span<const std::byte> send_slots =
      setup_.scratch.subspan(static_cast<std::size_t>(setup_.ranks * pair_bytes_));
  // A tensor is aligned in the sender's memory as it would be in the slot: reading it is as fast.
  return lies_in(piece.address, send_slots) &&
         (reinterpret_cast<std::uintptr_t>(piece.address) - slot_offset) % collective::kSlotHeaderBytes == 0;
}

std::uint64_t MappedLink::placed(const WriteRequest& request, std::uint64_t bytes) noexcept {
  const std::uint64_t at = request.remote_offset - setup_.rank * pair_bytes_;
  if (request.pieces.size() == 1 && request.token == collective::kNoToken && may_stay(request.pieces[0], at)) {
    return static_cast<std::uint64_t>(request.pieces[0].address - setup_.scratch.data());
  }
  const std::uint64_t source = request.peer * pair_bytes_ + at;
  std::byte* to = setup_.scratch.data() + source;
  const bool stream = streams_ && bytes >= kWorthStreaming;
  for (const Piece& piece : request.pieces) {
    if (piece.bytes == 0) continue;
    if (stream) {
      stream_copy(to, piece.address, piece.bytes);
    } else {
      std::memcpy(to, piece.address, piece.bytes);
    }
    to += piece.bytes;
  }
  return source;
}

bool MappedLink::take_note(std::uint32_t rank, LinkEvent& event) noexcept {
  Peer& peer = peers_[rank];
  MappedNote note;
  const MappedRingReader::Look look = peer.reader.take(note);
  if (look == MappedRingReader::Look::kNothing) return false;
  if (look == MappedRingReader::Look::kNonsense) return fail(rank, "its ring of messages makes no sense");
  event = {LinkEventKind::kArrival, rank, note.immediate, 0};
  if (note.bytes != 0) {
    // The peer's word: where it says that the bytes are, there must be memory of its own.
    const std::uint64_t size = peer.scratch.size();
    const bool inside = note.source <= size && note.bytes <= size - note.source && note.offset <= pair_bytes_ &&
                        note.bytes <= pair_bytes_ - note.offset;
    const bool aligned = (note.source - note.offset) % collective::kSlotHeaderBytes == 0;
    if (!inside || !aligned) return fail(rank, "its message is not inside of its memory");
    event.in_place = {peer.scratch.data() + note.source, note.offset, note.bytes};
  }
  peer.tally.messages_received.add(1);
  peer.tally.bytes_received.add(note.bytes);
  return true;
}

bool MappedLink::looks_below() noexcept {
  if (busy_below_ != 0) {
    --busy_below_;
    return true;
  }
  return !all_mapped_ || ++polls_ % kPollsPerLookBelow == 0;
}

int MappedLink::poll(std::span<LinkEvent> events) noexcept {
  if (failure_) return -1;
  std::size_t count = 0;
  for (; !sent_.empty() && count != events.size(); sent_.pop_back()) {
    events[count++] = {LinkEventKind::kSent, 0, 0, sent_.back()};
  }
  for (const std::uint32_t rank : mapped_peers_) {
    while (count != events.size() && take_note(rank, events[count])) ++count;
  }
  if (failure_) return -1;
  if (count == events.size() || !looks_below()) return static_cast<int>(count);
  const int below = below_->poll(events.subspan(count));
  if (below < 0) return -1;
  if (below != 0) busy_below_ = kBusyPolls;
  return static_cast<int>(count) + below;
}

void MappedLink::wait(Ps bound) noexcept {
  if (failure_ || !sent_.empty()) return;
  memory_->say_asleep(true);
  const bool news =
      std::ranges::any_of(mapped_peers_, [&](std::uint32_t rank) { return peers_[rank].reader.has_news(); });
  if (!news) below_->wait(bound);  // it ends when we are woken, too: LinkSetup::wake
  memory_->say_asleep(false);
  busy_below_ = std::max(busy_below_, 1U);
}

bool MappedLink::streams(const std::byte* to) const noexcept { return streams_ && lies_in(to, setup_.scratch); }

bool MappedLink::fail(std::uint32_t peer, const char* why) noexcept {
  if (!failure_) failure_ = LinkFailure{peer, fmt::format("rank {} broke the protocol: {}", peer, why), false};
  return false;
}

const LinkFailure* MappedLink::failure() const noexcept { return failure_ ? &*failure_ : below_->failure(); }

PeerStats MappedLink::stats(std::uint32_t peer) const noexcept {
  PeerStats sum = below_->stats(peer);
  const PeerStats here = peers_[peer].tally.read();
  sum.messages_sent += here.messages_sent;
  sum.bytes_sent += here.bytes_sent;
  sum.messages_received += here.messages_received;
  sum.bytes_received += here.bytes_received;
  return sum;
}

std::string MappedLink::describe(std::uint32_t peer) const {
  const std::string below = below_->describe(peer);
  return peers_[peer].mapped ? fmt::format("mapped memory (into outputs: {})", below) : below;
}

}  // namespace tensorwire::comm
