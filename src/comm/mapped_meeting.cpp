// How the ranks of a host agree to map each other's memory, and hand it over: three exchanges, of which every rank
// takes part in as many as any other, whatever happens to it on the way.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd_passing.hpp"
#include "base/host_identity.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "comm/mapped_peers.hpp"

namespace tensorwire::comm {

constexpr std::uint32_t kMappedVersion = 1;

/// What a rank says of itself; the inbox's path follows. Big-endian.
struct MappedCard {
  static constexpr std::size_t kBytes = 40;
  std::uint32_t version = kMappedVersion;
  bool takes_part = false;
  bool sleeps = false;
  std::uint64_t host = 0;
  std::uint64_t bytes = 0;  ///< of its region
  std::uint64_t token = 0;  ///< what a delivery to it must bear
  std::uint32_t user = 0;
  std::string inbox;
};

namespace {

/// The descriptors are in the inbox already when it is looked into.
constexpr Ps kDeliveryBound = 10 * kSecond;
/// Of one host: each maps the memory of all others, and an inbox takes so many deliveries at once.
constexpr std::size_t kMostRanks = 64;

std::vector<std::byte> encoded(const MappedCard& card) {
  std::vector<std::byte> bytes(MappedCard::kBytes);
  store_be32(bytes.data(), card.version);
  store_be32(bytes.data() + 4, (card.takes_part ? 1U : 0U) | (card.sleeps ? 2U : 0U));
  store_be64(bytes.data() + 8, card.host);
  store_be64(bytes.data() + 16, card.bytes);
  store_be64(bytes.data() + 24, card.token);
  store_be32(bytes.data() + 32, card.user);
  const auto path = std::as_bytes(std::span{card.inbox});
  bytes.insert(bytes.end(), path.begin(), path.end());
  return bytes;
}

MappedCard card_of(std::span<const std::byte> bytes) {
  MappedCard card;
  if (bytes.size() < MappedCard::kBytes) return card;
  card.version = load_be32(bytes.data());
  card.takes_part = (load_be32(bytes.data() + 4) & 1U) != 0;
  card.sleeps = (load_be32(bytes.data() + 4) & 2U) != 0;
  card.host = load_be64(bytes.data() + 8);
  card.bytes = load_be64(bytes.data() + 16);
  card.token = load_be64(bytes.data() + 24);
  card.user = load_be32(bytes.data() + 32);
  const auto path = bytes.subspan(MappedCard::kBytes);
  card.inbox.assign(reinterpret_cast<const char*>(path.data()), path.size());
  return card;
}

/// Whether two ranks may try.
bool suit(const MappedCard& a, const MappedCard& b) {
  return a.takes_part && b.takes_part && a.version == b.version && a.host == b.host && a.user == b.user &&
         a.bytes == b.bytes;
}

}  // namespace

/// One rank's part in it.
class MappedMeeting {
 public:
  MappedMeeting(bootstrap::Group& group, MappedWish wish, const MappedLayout& layout)
      : group_(group),
        self_(static_cast<std::uint32_t>(group.rank())),
        ranks_(static_cast<std::uint32_t>(group.world_size())),
        why_(ranks_) {
    mine_.sleeps = layout.sleeps;
    mine_.bytes = layout.bytes();
    mine_.host = host_identity(group.rank());
    mine_.user = ::geteuid();
    mine_.token = entropy64();
    if (wish == MappedWish::kOff || ranks_ == 1) return;
    try {
      inbox_.emplace();
      mine_.inbox = inbox_->path();
      peers_.reset(new MappedPeers{layout});
      mine_.takes_part = true;
    } catch (const Error& error) {
      trouble_ = error.what();
    }
  }

  std::unique_ptr<MappedPeers> run() {
    for (const auto& bytes : group_.all_gather(encoded(mine_))) cards_.push_back(card_of(bytes));
    limit_ranks();
    if (!anybody_may()) return nullptr;
    const std::vector<std::vector<std::byte>> delivered = group_.all_gather(deliver());
    const std::vector<std::vector<std::byte>> mapped = group_.all_gather(receive(delivered));
    return settle(mapped);
  }

  /// Why this rank does not map the peer, though it wished to; "" where it does.
  [[nodiscard]] std::string why_not(std::uint32_t peer) const {
    if (!trouble_.empty()) return trouble_;
    if (!why_[peer].empty()) return why_[peer];
    if (peer >= cards_.size()) return {};
    const MappedCard& card = cards_[peer];
    if (card.host != mine_.host) return "it is on another host (see TENSORWIRE_HOSTID)";
    if (!card.takes_part) return "it does not take part";
    if (card.user != mine_.user) return fmt::format("it runs as user {}, this rank as {}", card.user, mine_.user);
    return card.version != mine_.version ? "it runs another version" : "its memory has another form";
  }
  /// On this host, and not for want of wishing.
  [[nodiscard]] bool is_disappointed_by(std::uint32_t peer) const {
    return cards_[peer].host == mine_.host && (!trouble_.empty() || (cards_[peer].takes_part && mine_.takes_part));
  }

 private:
  /// Where a host has too many, none of them takes part.
  void limit_ranks() {
    std::vector<MappedCard> limited = cards_;
    for (MappedCard& card : limited) {
      const auto here = std::ranges::count(cards_, card.host, &MappedCard::host);
      if (static_cast<std::size_t>(here) <= kMostRanks) continue;
      card.takes_part = false;
      if (card.host == mine_.host && mine_.takes_part) {
        trouble_ = fmt::format("{} ranks are on this host, {} may be", here, kMostRanks);
      }
    }
    cards_ = std::move(limited);
    mine_.takes_part = mine_.takes_part && trouble_.empty();
  }

  [[nodiscard]] bool anybody_may() const {
    for (std::size_t a = 0; a < ranks_; ++a) {
      for (std::size_t b = a + 1; b < ranks_; ++b) {
        if (suit(cards_[a], cards_[b])) return true;
      }
    }
    return false;
  }

  /// By rank: whether both descriptors are in its inbox. The sender's number says which is which.
  std::vector<std::byte> deliver() {
    std::vector<std::byte> done(ranks_);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer == self_ || !suit(mine_, cards_[peer])) continue;
      try {
        deliver_fd(cards_[peer].inbox, cards_[peer].token, 2 * self_, peers_->region_.descriptor());
        deliver_fd(cards_[peer].inbox, cards_[peer].token, 2 * self_ + 1, peers_->wake_.get());
        done[peer] = std::byte{1};
      } catch (const Error& error) {
        why_[peer] = error.what();
      }
    }
    return done;
  }

  /// By rank: whether it is mapped here.
  std::vector<std::byte> receive(const std::vector<std::vector<std::byte>>& delivered) {
    std::vector<std::byte> mapped(ranks_);
    std::uint32_t expected = 0;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      const bool came = peer != self_ && suit(mine_, cards_[peer]) && delivered[peer].size() == ranks_ &&
                        delivered[peer][self_] == std::byte{1};
      if (came) expected += 2;
      mapped[peer] = came ? std::byte{1} : std::byte{0};
    }
    const Ps deadline = monotonic_now() + kDeliveryBound;
    for (; expected != 0; --expected) {
      std::uint32_t sender = self_;
      try {
        FdInbox::Delivery delivery = inbox_->receive(mine_.token, deadline);
        sender = delivery.sender / 2;
        if (sender < ranks_ && mapped[sender] == std::byte{1}) {
          peers_->take(sender, delivery.sender % 2 == 0, std::move(delivery.fd));
        }
      } catch (const Error& error) {
        why_[sender < ranks_ ? sender : self_] = error.what();
        if (sender == self_) break;  // nothing more comes
        mapped[sender] = std::byte{0};
      }
    }
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      const bool whole = peers_ != nullptr && peers_->maps(peer) && peers_->peers_[peer].wake;
      if (!whole) mapped[peer] = std::byte{0};
    }
    return mapped;
  }

  /// Two ranks map each other, or neither the other.
  std::unique_ptr<MappedPeers> settle(const std::vector<std::vector<std::byte>>& mapped) {
    if (peers_ == nullptr) return nullptr;
    bool any = false;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      MappedPeers::Peer& of = peers_->peers_[peer];
      const bool both =
          mapped[self_][peer] == std::byte{1} && mapped[peer].size() == ranks_ && mapped[peer][self_] == std::byte{1};
      if (!both) {
        if (of.region.bytes().size() != 0 && why_[peer].empty()) why_[peer] = "it could not map this rank's";
        of = MappedPeers::Peer{};
        continue;
      }
      of.sleeps = cards_[peer].sleeps;
      any = true;
    }
    peers_->region_.close_descriptor();
    return any ? std::move(peers_) : nullptr;
  }

  bootstrap::Group& group_;
  std::uint32_t self_, ranks_;
  MappedCard mine_;
  std::optional<FdInbox> inbox_;
  std::unique_ptr<MappedPeers> peers_;
  std::string trouble_;            ///< why this rank can share nothing
  std::vector<std::string> why_;   ///< by rank
  std::vector<MappedCard> cards_;  ///< by rank
};

std::unique_ptr<MappedPeers> MappedPeers::meet(bootstrap::Group& group, MappedWish wish, const MappedLayout& layout) {
  MappedMeeting meeting{group, wish, layout};
  std::unique_ptr<MappedPeers> peers = meeting.run();
  if (wish == MappedWish::kOff) return nullptr;
  const auto self = static_cast<std::uint32_t>(group.rank());
  bool told = false;
  for (std::uint32_t peer = 0; peer < layout.ranks; ++peer) {
    if (peer == self || (peers != nullptr && peers->maps(peer))) continue;
    const std::string what = fmt::format("rank {}: map the memory of {}", self, group.name(static_cast<int>(peer)));
    if (wish == MappedWish::kRequired) {
      throw Error{what, meeting.why_not(peer), "TENSORWIRE_MAPPED=auto goes without where it must"};
    }
    if (told || !meeting.is_disappointed_by(peer)) continue;
    told = true;
    log_warn(fmt::format("{}: {}; the HCA carries its messages", what, meeting.why_not(peer)));
  }
  return peers;
}

}  // namespace tensorwire::comm
