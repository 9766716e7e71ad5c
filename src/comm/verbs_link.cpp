// The data path of a VerbsLink: posting and completions.
#include "comm/verbs_link.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/log.hpp"
#include "verbs/rdma_write.hpp"

namespace tensorwire::comm {

namespace {

// Work-request ids. Receives carry their lane. Sends carry the runner's token, or this mark where nobody waits for
// them: a completion was asked for only to free the send queue.
constexpr std::uint64_t kReclaim = std::uint64_t{1} << 63;

/// What is in flight needs a round trip; where the path is gone it never ends, and one looks again later.
constexpr Ps kFlushBound = 5 * kMillisecond;

}  // namespace

std::uint32_t VerbsLink::key_of(const void* address, std::size_t bytes) { return user_memory_.key_of(address, bytes); }

// What a peer needs to write there is the memory's rkey and address. Its own HCA vouches for nothing: ours checks both.
UserOutput VerbsLink::output_of(void* address, std::size_t bytes) {
  const verbs::MemoryRegion& region = user_memory_.writable(address, bytes);
  return {region.lkey(), {region.rkey(), reinterpret_cast<std::uint64_t>(address)}};
}

void VerbsLink::forget(const void* address, std::size_t bytes) noexcept { user_memory_.forget(address, bytes); }

bool VerbsLink::post_write(const WriteRequest& request) noexcept {
  if (failure_) return false;
  Peer& peer = peers_[request.peer];
  const std::uint32_t sequence_and_message = collective::Immediate::unpack(request.immediate).sequence +
                                             collective::Immediate::unpack(request.immediate).message;
  const std::uint32_t index = peer.first_lane + sequence_and_message % lanes_per_peer_;
  Lane& lane = lanes_[index];

  const bool told = request.token != collective::kNoToken;
  const bool signaled = told || ++lane.unsignaled >= setup_.send_depth / 4;
  if (signaled) lane.unsignaled = 0;
  if (const int error = post(lane, request, told ? request.token : kReclaim, signaled); error != 0) {
    fail(index, verbs::explain_post(error, "an RDMA WRITE WITH IMMEDIATE", ends_of(lane)));
    return false;
  }
  peer.tally.messages_sent.add(1);
  for (const Piece& piece : request.pieces) peer.tally.bytes_sent.add(piece.bytes);
  return true;
}

int VerbsLink::post(Lane& lane, const WriteRequest& request, std::uint64_t wr_id, bool signaled) noexcept {
  const Peer& peer = peers_[request.peer];
  const std::uint64_t remote_address = request.remote_offset + (request.to_output ? 0 : peer.scratch_address);
  const std::uint32_t remote_key = request.to_output ? request.window : peer.scratch_rkey;
  if (request.pieces.size() < 2) {
    verbs::WriteRequest write;
    write.wr_id = wr_id;
    if (!request.pieces.empty()) {
      write.local_address = reinterpret_cast<std::uint64_t>(request.pieces[0].address);
      write.local_key = request.pieces[0].key;
      write.length = static_cast<std::uint32_t>(request.pieces[0].bytes);
    }
    write.remote_address = remote_address;
    write.remote_key = remote_key;
    write.immediate = request.immediate;
    write.signaled = signaled;
    write.may_inline = setup_.host_memory;
    return verbs::post_gpudirect_rdma_write(*lane.qp, write);
  }
  // The slot's header and the user's bytes, gathered into one message.
  std::array<ibv_sge, 2> gathered{};
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    const Piece& piece = request.pieces[i];
    gathered[i] = {reinterpret_cast<std::uint64_t>(piece.address), static_cast<std::uint32_t>(piece.bytes), piece.key};
    bytes += piece.bytes;
  }
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = gathered.data();
  wr.num_sge = static_cast<int>(gathered.size());
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htonl(request.immediate);
  wr.wr.rdma.remote_addr = remote_address;
  wr.wr.rdma.rkey = remote_key;
  if (signaled) wr.send_flags |= IBV_SEND_SIGNALED;
  if (bytes <= lane.qp->max_inline() && setup_.host_memory) wr.send_flags |= IBV_SEND_INLINE;  // read by the CPU
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(lane.qp->raw(), &wr, &bad);
}

int VerbsLink::poll(std::span<LinkEvent> events) noexcept {
  if (failure_) return -1;
  if (completion_count_ == 0) {
    const int found = queue_->poll(completions_);
    if (found < 0) {
      failure_ = LinkFailure{
          setup_.rank, fmt::format("poll the completion queue of {}: {}", context_->name(), errno_text(-found)), false};
      return -1;
    }
    first_completion_ = 0;
    completion_count_ = static_cast<std::size_t>(found);
  }
  std::size_t count = 0;
  while (completion_count_ != 0 && count != events.size()) {
    bool is_event = false;
    if (!take(completions_[first_completion_], events[count], is_event)) return -1;
    ++first_completion_;
    --completion_count_;
    if (is_event) ++count;
  }
  // Before the runner can give credit for what arrived.
  if (count != 0 && !repost_receives()) return -1;
  return static_cast<int>(count);
}

bool VerbsLink::take(const ibv_wc& completion, LinkEvent& event, bool& is_event) noexcept {
  if (completion.status != IBV_WC_SUCCESS) {
    const auto found = lane_by_qpn_.find(completion.qp_num);
    const std::uint32_t index = found != lane_by_qpn_.end() ? found->second : 0;
    fail(index, verbs::explain_completion(completion, "RDMA WRITE WITH IMMEDIATE", ends_of(lanes_[index])));
    failure_->unreachable = completion.status == IBV_WC_RETRY_EXC_ERR && context_->problem().empty();
    return false;
  }
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    Lane& lane = lanes_[completion.wr_id];
    Peer& peer = peers_[lane.peer];
    ++lane.receives_to_post;
    peer.tally.messages_received.add(1);
    peer.tally.bytes_received.add(completion.byte_len);
    event = {LinkEventKind::kArrival, lane.peer, verbs::immediate_of(completion), 0};
    is_event = true;
  } else if (completion.wr_id != kReclaim) {
    event = {LinkEventKind::kSent, 0, 0, completion.wr_id};
    is_event = true;
  }
  return true;
}

bool VerbsLink::repost_receives() noexcept {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (lane.receives_to_post == 0) continue;
    const int error = lane.qp->post_empty_receives(index, lane.receives_to_post);
    lane.receives_to_post = 0;
    if (error == 0) continue;
    fail(index, verbs::explain_post(error, "a receive", ends_of(lane)));
    return false;
  }
  return true;
}

/// A write of nothing, without an immediate: it takes no receive of the peer and needs no key, but its HCA must
/// acknowledge.
void VerbsLink::probe(std::uint32_t peer) noexcept {
  for (std::uint32_t i = 0; i < lanes_per_peer_; ++i) {
    ibv_send_wr wr{};
    wr.wr_id = kReclaim;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    // A full queue needs no probe: what is in it asks the same.
    (void)ibv_post_send(lanes_[peers_[peer].first_lane + i].qp->raw(), &wr, &bad);
  }
}

void VerbsLink::wait(Ps bound) noexcept {
  if (failure_ || completion_count_ != 0) return;
  const int found = queue_->wait(completions_, {.bound = bound, .spin = 0, .wake = setup_.wake});
  first_completion_ = 0;
  completion_count_ = static_cast<std::size_t>(std::max(found, 0));  // an error shows again at the next poll
}

void VerbsLink::abandon() noexcept {
  for (Lane& lane : lanes_) {
    if (lane.qp != nullptr) lane.qp->flush();
  }
}

/// The queue pairs in ERR refuse what a peer still has under way, and so would a new one: its rkeys are of memory that
/// is not registered any more.
void VerbsLink::retire() noexcept {
  abandon();
  user_memory_.clear();
  scratch_region_ = {};
}

void VerbsLink::look_at_device() noexcept try {
  const verbs::DeviceNews news = context_->take_news();
  if (news.any && !context_->problem().empty()) log_warn(fmt::format("rank {}: {}", setup_.rank, context_->problem()));
  if (news.gid_moved) {
    log_info(fmt::format("rank {}: {} stands at GID index {} of {} now", setup_.rank, to_string(context_->gid()),
                         context_->gid_index(), context_->name()));
    for (Lane& lane : lanes_) lane.follows = lane.qp == nullptr;
  }
  for (Lane& lane : lanes_) {
    if (lane.follows) continue;
    lane.follows = verbs::reroute_qp(*lane.qp, lane.remote, connect_options(lane), kFlushBound);
    if (lane.follows) log_info(fmt::format("rank {}: the path to rank {} follows", setup_.rank, lane.peer));
  }
} catch (const std::exception& error) {
  log_warn(fmt::format("rank {}: {}", setup_.rank, error.what()));
}

void VerbsLink::fail(std::uint32_t lane, const ErrorParts& parts) noexcept {
  if (failure_) return;
  failure_ = LinkFailure{lanes_[lane].peer, Error{parts}.what(), false};
  // What looks like a peer that does not answer may be this end.
  look_at_device();
  if (!context_->problem().empty()) failure_->line += "; here, " + context_->problem();
}

verbs::Endpoints VerbsLink::ends_of(const Lane& lane) const {
  verbs::Endpoints ends;
  ends.local_gid = context_->gid();
  ends.local_qpn = lane.qp != nullptr ? lane.qp->qpn() : 0;
  ends.remote_gid = lane.remote.gid;
  ends.remote_qpn = lane.remote.qpn;
  ends.peer_rank = static_cast<int>(lane.peer);
  ends.peer_host = hosts_[lane.peer];
  ends.dscp = dscp_;
  return ends;
}

std::string VerbsLink::describe(std::uint32_t peer) const {
  if (peer == setup_.rank) return "this rank";
  const Lane& lane = lanes_[peers_[peer].first_lane];
  const std::string path = lane.qp->link_description();
  return lanes_per_peer_ == 1 ? path : fmt::format("{} x {}", lanes_per_peer_, path);
}

}  // namespace tensorwire::comm
