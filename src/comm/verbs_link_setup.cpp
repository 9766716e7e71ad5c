// How a VerbsLink comes up: device, scratch registration, queue pairs, exchange, connection.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/host_identity.hpp"
#include "base/log.hpp"
#include "bootstrap/group.hpp"
#include "comm/verbs_link.hpp"

namespace tensorwire::comm {

namespace {

// What each rank tells all others: scratch address, rkey, queue pairs per peer, then a QpAddress for every lane.
constexpr std::size_t kAddressAt = 0;
constexpr std::size_t kRkeyAt = 8;
constexpr std::size_t kLanesAt = 12;
constexpr std::size_t kLaneAddressesAt = 16;

constexpr std::uint32_t kInlineBytes = 256;
constexpr std::uint32_t kMostPieces = 2;

/// Who is on other hosts, and where, as far as a device is chosen by that. A collective call.
verbs::DeviceWish with_peers(bootstrap::Group& group, verbs::DeviceWish wish) {
  std::array<std::byte, 8> mine{};
  store_be64(mine.data(), host_identity());
  const auto all = group.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size() && !wish.peer_elsewhere; ++rank) {
    if (std::ranges::equal(all[rank], mine)) continue;
    wish.has_peers_elsewhere = true;
    wish.peer_elsewhere = verbs::parse_gid(group.address(static_cast<int>(rank)));
  }
  return wish;
}

}  // namespace

VerbsLink::VerbsLink(bootstrap::Group& group, const LinkSetup& setup, const VerbsLinkOptions& options)
    : setup_(setup),
      lanes_per_peer_(options.queue_pairs_per_peer),
      dscp_(options.dscp),
      context_(verbs::Context::open(with_peers(group, options.device))),
      domain_(verbs::ProtectionDomain::create(context_)),
      user_memory_(domain_) {
  verbs::MemorySpan scratch;
  scratch.address = setup.scratch.data();
  scratch.length = setup.scratch.size();
  verbs::MemoryAccess access;
  access.remote_write = true;
  scratch_region_ = verbs::register_gpu_memory_with_hca(domain_, scratch, access);
  for (std::uint32_t r = 0; r < setup.ranks; ++r) hosts_.push_back(group.host(static_cast<int>(r)));
  create_queue_pairs(options);
  exchange_and_connect(group);
}

void VerbsLink::create_queue_pairs(const VerbsLinkOptions& options) {
  const std::uint32_t lanes = (setup_.ranks - 1) * lanes_per_peer_;
  const std::uint32_t entries = std::max(1U, lanes * (setup_.send_depth + setup_.receive_depth));
  queue_ = verbs::CompletionQueue::create(context_, entries, setup_.may_block);

  verbs::QpOptions qp_options;
  qp_options.send_depth = setup_.send_depth;
  qp_options.receive_depth = setup_.receive_depth;
  qp_options.max_inline = kInlineBytes;
  qp_options.max_send_pieces = kMostPieces;
  qp_options.link = options.path;
  lanes_.resize(std::size_t{setup_.ranks} * lanes_per_peer_);
  peers_.resize(setup_.ranks);
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer) {
    peers_[peer].first_lane = peer * lanes_per_peer_;
    if (peer == setup_.rank) continue;
    for (std::uint32_t i = 0; i < lanes_per_peer_; ++i) {
      const std::uint32_t index = peers_[peer].first_lane + i;
      Lane& lane = lanes_[index];
      lane.peer = peer;
      lane.qp = verbs::QueuePair::create(domain_, queue_, queue_, qp_options);
      lane_by_qpn_[lane.qp->qpn()] = index;
    }
  }
}

void VerbsLink::exchange_and_connect(bootstrap::Group& group) {
  const auto hellos = group.all_gather(hello());
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer) {
    if (peer != setup_.rank) take_hello(peer, hellos[peer], group.name(static_cast<int>(peer)));
  }
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (lane.qp == nullptr) continue;
    const verbs::ConnectOptions connect = connect_options(lane);
    verbs::transition_qp_to_rts(*lane.qp, lane.remote, connect);
    if (const int error = lane.qp->post_empty_receives(index, setup_.receive_depth); error != 0) {
      throw system_error(fmt::format("post {} receives for {}", setup_.receive_depth, connect.peer), error);
    }
  }
  // Nobody may write before every receive is posted.
  group.barrier();
  for (std::uint32_t peer = 0; peer < setup_.ranks && log_enabled(LogLevel::info); ++peer) {
    if (peer != setup_.rank) {
      log_info(fmt::format("{}: {}, {}", group.name(static_cast<int>(peer)), context_->describe(), describe(peer)));
    }
  }
}

verbs::ConnectOptions VerbsLink::connect_options(const Lane& lane) const {
  verbs::ConnectOptions connect;
  connect.dscp = dscp_;
  connect.peer = fmt::format("rank {} on {}", lane.peer, hosts_[lane.peer]);
  return connect;
}

std::vector<std::byte> VerbsLink::hello() const {
  std::vector<std::byte> bytes(kLaneAddressesAt + lanes_.size() * verbs::QpAddress::kBytes);
  store_be64(bytes.data() + kAddressAt, reinterpret_cast<std::uint64_t>(setup_.scratch.data()));
  store_be32(bytes.data() + kRkeyAt, scratch_region_.rkey());
  store_be32(bytes.data() + kLanesAt, lanes_per_peer_);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].qp == nullptr) continue;
    const auto address = verbs::to_bytes(lanes_[i].qp->address());
    std::memcpy(bytes.data() + kLaneAddressesAt + i * address.size(), address.data(), address.size());
  }
  return bytes;
}

void VerbsLink::take_hello(std::uint32_t peer, std::span<const std::byte> bytes, const std::string& name) {
  const std::size_t expected = kLaneAddressesAt + lanes_.size() * verbs::QpAddress::kBytes;
  const bool whole = bytes.size() >= kLaneAddressesAt;
  if (whole && load_be32(bytes.data() + kLanesAt) != lanes_per_peer_) {
    throw Error{"connect to " + name, fmt::format("it uses {} queue pairs per peer, this rank {}",
                                                  load_be32(bytes.data() + kLanesAt), lanes_per_peer_)};
  }
  if (bytes.size() != expected) {
    throw Error{"connect to " + name, "its addresses have an unknown form", "Run the same version on all ranks"};
  }
  peers_[peer].scratch_address = load_be64(bytes.data() + kAddressAt);
  peers_[peer].scratch_rkey = load_be32(bytes.data() + kRkeyAt);
  for (std::uint32_t i = 0; i < lanes_per_peer_; ++i) {
    // Its lanes to us stand at our rank in its table.
    const std::size_t at =
        kLaneAddressesAt + (std::size_t{setup_.rank} * lanes_per_peer_ + i) * verbs::QpAddress::kBytes;
    const auto address = verbs::qp_address_from_bytes(
        std::span<const std::byte, verbs::QpAddress::kBytes>{bytes.data() + at, verbs::QpAddress::kBytes});
    if (!address) throw Error{"connect to " + name, "its queue-pair address is out of range"};
    lanes_[peers_[peer].first_lane + i].remote = *address;
  }
}

}  // namespace tensorwire::comm
