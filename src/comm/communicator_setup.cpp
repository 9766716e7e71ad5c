// How a communicator comes up and goes away.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "comm/communicator_state.hpp"
#include "comm/mapped_link.hpp"
#include "comm/tuning.hpp"
#include "comm/verbs_link.hpp"

namespace tensorwire::comm {

namespace {

/// Writes that may wait for their acknowledgement. The protocol has no more than receive_depth under way that the peer
/// has not seen, but credit may overtake acknowledgements.
constexpr std::uint32_t kLeastSendDepth = 128;
/// How long the end of a communicator waits for the peers to have got everything.
constexpr Ps kFarewellBound = 5 * kSecond;
/// Larger all-reduces write their results straight into the peers' outputs: no CPU copies but the reduction's.
constexpr std::uint64_t kLargestThroughSlots = 1 << 20;
constexpr Ps kDisagreementBound = 1 * kSecond;

/// An option that must be the same on all ranks, as it goes through the exchange.
struct SharedOption {
  const char* name;
  std::uint64_t value;
};

std::vector<SharedOption> shared_options(const CommOptions& options) {
  return {
      {"protocol version", 2},
      {"depth", options.depth},
      {"slot size", options.slot_payload_bytes},
      {"one-shot threshold", options.thresholds.one_shot_bytes},
      {"one-shot threshold of two ranks", options.thresholds.one_shot_bytes_pair},
      {"threshold of slots", options.thresholds.slot_bytes},
      {"moving only", options.moves_only ? 1U : 0U},
      {"order of summation", static_cast<std::uint64_t>(options.order)},
      {"communicator number", options.communicator_number},
      {"list of excluded ranks (as a number)", options.lineage},
  };
}

}  // namespace

std::unique_ptr<Communicator> Communicator::create(bootstrap::Group& group, const CommOptions& options) {
  return std::unique_ptr<Communicator>{new Communicator{std::make_unique<State>(group, options)}};
}

std::uint64_t slot_payload_for(std::uint32_t ranks) noexcept {
  constexpr std::uint64_t kLargest = 256 << 10;
  constexpr std::uint64_t kSmallest = 16 << 10;
  std::uint64_t bytes = kLargest;
  for (std::uint32_t most = 16; most < ranks && bytes > kSmallest; most *= 2) bytes /= 2;
  return bytes;
}

Communicator::State::State(bootstrap::Group& group, const CommOptions& asked)
    : group_(&group), options_(asked), exceptions_at_birth_(std::uncaught_exceptions()) {
  if (options_.slot_payload_bytes == 0) {
    options_.slot_payload_bytes = slot_payload_for(static_cast<std::uint32_t>(group.world_size()));
  }
  const CommOptions& options = options_;
  if (options.depth < 2 || options.depth > 64 || options.slot_payload_bytes < 2 * collective::kChunkAlignment ||
      options.slot_payload_bytes % collective::kChunkAlignment != 0 || options.queue_pairs_per_peer == 0) {
    throw Error{
        "create a communicator",
        fmt::format("depth {}, slots of {} bytes, {} queue pairs per peer", options.depth, options.slot_payload_bytes,
                    options.queue_pairs_per_peer),
        "The depth is 2 to 64, slots are a multiple of 64 bytes from 128 on, a peer has at least one queue pair"};
  }
  config_.rank = static_cast<std::uint32_t>(group.rank());
  config_.ranks = static_cast<std::uint32_t>(group.world_size());
  config_.depth = options.depth;
  config_.send_slots = options.depth;
  config_.slot_bytes = options.slot_payload_bytes + collective::kSlotHeaderBytes;
  config_.communicator = options.communicator_number;
  agree_on_options();
  if (config_.ranks > 1) meeting_places_ = std::make_shared<const bootstrap::MeetingPlaces>(group);
  if (options_.wait == WaitPolicy::kAuto) options_.wait = choose_wait_policy(usable_cores(), count_local_ranks());

  set_up_link();
  apply_tuning();
  std::uint64_t& through_slots = options_.thresholds.slot_bytes;
  if (options_.moves_only && !link_->has_windows()) {
    throw Error{"create a communicator that only moves", "its link cannot write into outputs"};
  }
  if (options_.moves_only) options_.thresholds.slot_bytes = 0;
  if (!link_->has_windows()) through_slots = collective::Thresholds::kAlways;
  if (link_->has_windows() && through_slots == collective::Thresholds::kAlways) through_slots = kLargestThroughSlots;
  programs_.emplace(config_.rank, options_.slot_payload_bytes, options_.thresholds, options_.order, options_.plan_hook);
  sent_to_.assign(config_.ranks, 0);
  got_from_.assign(config_.ranks, 0);
  turns_.resize(std::size_t{2} * config_.ranks);
  observer_.emplace(Identity{config_.rank, config_.ranks, config_.communicator, group.host(group.rank())}, *link_);
  trace_ = observer_->trace();
  runner_->watch_steps(trace_);
  log_info(describe());
  group_->set_reporter(config_.communicator, [this] {
    RankReport report = board_.read(monotonic_now());
    report.life = life();
    return to_bytes(report);
  });
}

// What we wrote last may still be on its way, and on the same host the peer even fetches it from our memory: the queue
// pairs must live until every peer has it. A peer that is at this point too has got all it waited for. After a
// disagreement it is the same: the others still need our signature to see it themselves.
Communicator::State::~State() {
  group_->set_reporter(config_.communicator, {});
  const bool disagreed = broken_ && error_->kind == CommErrorKind::kDisagreement;
  const bool by_exception = std::uncaught_exceptions() > exceptions_at_birth_;
  note_failed_group();
  if ((broken_ && !disagreed) || by_exception || group_->failed() || config_.ranks == 1) return;
  try {
    group_->barrier(disagreed ? kDisagreementBound : kFarewellBound);
  } catch (const Error& error) {
    log_debug(fmt::format("the end of the communicator was not awaited: {}", error.what()));
  }
}

/// A rank that died between two operations breaks this communicator too, though no call of it has failed yet.
void Communicator::State::note_failed_group() noexcept {
  if (broken_ || !group_->failed()) return;
  const auto failed = group_->failed_rank();
  const std::string why = failed ? fmt::format("rank {} on {} failed: {}", failed->rank, failed->host, failed->reason)
                                 : std::string{"a rank failed"};
  observer_->failed({why, failed ? failed->rank : -1, config_.ranks, "nothing"});
}

void Communicator::State::agree_on_options() const {
  const std::vector<SharedOption> mine = shared_options(options_);
  std::vector<std::byte> bytes(mine.size() * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < mine.size(); ++i) store_be64(bytes.data() + i * sizeof(std::uint64_t), mine[i].value);
  const auto all = group_->all_gather(bytes);
  for (std::uint32_t rank = 0; rank < config_.ranks; ++rank) {
    const std::string what = fmt::format("create a communicator with {}", group_->name(static_cast<int>(rank)));
    if (all[rank].size() != bytes.size()) throw Error{what, "it runs another version", "Run one version on all ranks"};
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const std::uint64_t theirs = load_be64(all[rank].data() + i * sizeof(std::uint64_t));
      if (theirs == mine[i].value) continue;
      throw Error{what, fmt::format("its {} is {}, here it is {}", mine[i].name, theirs, mine[i].value),
                  "Give all ranks the same options"};
    }
  }
}

void Communicator::State::apply_tuning() {
  if (options_.thresholds != collective::Thresholds{}) return;
  std::array<std::byte, 2 * sizeof(std::uint64_t)> bytes{};
  std::string key;
  if (config_.rank == 0) {
    Topology topology;
    for (std::uint32_t rank = 0; rank < config_.ranks; ++rank) {
      topology.hosts.push_back(group_->host(static_cast<int>(rank)));
      if (rank != 0) topology.paths.push_back(link_->describe(rank));
    }
    key = topology.key();
    const auto tuning = load_tuning(tune_file(), key);
    const collective::Thresholds& thresholds = tuning ? tuning->thresholds : options_.thresholds;
    store_be64(bytes.data(), thresholds.one_shot_bytes);
    store_be64(bytes.data() + sizeof(std::uint64_t), thresholds.one_shot_bytes_pair);
    if (tuning) log_info(fmt::format("thresholds of {} from {}", key, tune_file()));
  }
  // All ranks must take the same plans, and files differ between hosts.
  const auto agreed = group_->broadcast(bytes);
  if (agreed.size() != bytes.size()) throw Error{"create a communicator", "rank 0 runs another version"};
  options_.thresholds.one_shot_bytes = load_be64(agreed.data());
  options_.thresholds.one_shot_bytes_pair = load_be64(agreed.data() + sizeof(std::uint64_t));
}

LinkSetup Communicator::State::link_setup() const {
  LinkSetup setup;
  setup.rank = config_.rank;
  setup.ranks = config_.ranks;
  setup.depth = config_.depth;
  setup.slot_bytes = config_.slot_bytes;
  setup.receive_depth = config_.receive_depth(most_messages());
  setup.send_depth = std::max(kLeastSendDepth, 4 * setup.receive_depth);
  setup.may_block = options_.wait == WaitPolicy::kBlock;
  setup.host_memory = !options_.moves_only;
  return setup;
}

/// Only rings send more messages than two to anyone: with many ranks that would be queues of thousands.
std::uint32_t Communicator::State::most_messages() const noexcept {
  const bool rings = options_.thresholds.ring_bytes != collective::Thresholds::kAlways;
  return rings ? collective::most_messages(config_.ranks) : 2;
}

/// The scratch memory belongs to who carries: peers map it, or the HCA reads and writes it.
void Communicator::State::set_up_link() {
  LinkSetup setup = link_setup();
  std::unique_ptr<MappedPeers> mapped;
  if (!options_.link_factory) {
    const MappedLayout layout{config_.ranks, config_.scratch_bytes(), setup.receive_depth, setup.may_block};
    mapped = MappedPeers::meet(*group_, mapped_wish(), layout);
  }
  if (mapped != nullptr) {
    setup.scratch = mapped->scratch();
    setup.wake = mapped->wake_descriptor();
    std::unique_ptr<Link> below = make_verbs_link(setup);
    link_ = std::make_unique<MappedLink>(setup, std::move(mapped), std::move(below), streaming_pays());
    config_.messages_in_place = most_messages();
  } else {
    scratch_.emplace(config_.scratch_bytes(), "scratch memory", "Use smaller slots or a smaller depth");
    setup.scratch = scratch_->bytes();
    link_ = options_.link_factory ? options_.link_factory(*group_, setup) : make_verbs_link(setup);
  }
  runner_.emplace(config_, setup.scratch.data(), link_->scratch_key(), *this);
}

/// Packets that were asked for are packets, and what the HCA is to spoil or to write down must pass through it. Memory
/// that only devices can read is none that a CPU copies.
MappedWish Communicator::State::mapped_wish() const {
  const char* const packets = env::get("TENSORWIRE_FAULTS")              ? "TENSORWIRE_FAULTS"
                              : env::get("TENSORWIRE_PCAP")              ? "TENSORWIRE_PCAP"
                              : env::get("TENSORWIRE_LINK") == "packets" ? "TENSORWIRE_LINK"
                                                                         : nullptr;
  const std::string asked = env::get_choice("TENSORWIRE_MAPPED", "off", {"auto", "off", "on"});
  const bool chosen = options_.path == PathChoice::kMapped;
  if (chosen && packets != nullptr) {
    throw Error{"create a communicator in mapped memory", fmt::format("{} asks for packets", packets), "Unset it"};
  }
  if (chosen) return MappedWish::kRequired;
  const bool free = options_.path == PathChoice::kAuto && !options_.moves_only && packets == nullptr;
  if (!free || asked == "off") return MappedWish::kOff;
  return asked == "on" ? MappedWish::kRequired : MappedWish::kAuto;
}

std::unique_ptr<Link> Communicator::State::make_verbs_link(const LinkSetup& setup) {
  VerbsLinkOptions verbs_options;
  verbs_options.device.device = options_.device;
  if (options_.gid_index >= 0) verbs_options.device.gid_index = options_.gid_index;
  if (options_.path == PathChoice::kPackets) verbs_options.path = verbs::SameHostLink::kPackets;
  verbs_options.queue_pairs_per_peer = options_.queue_pairs_per_peer;
  verbs_options.dscp = options_.dscp;
  return std::make_unique<VerbsLink>(*group_, setup, verbs_options);
}

unsigned Communicator::State::count_local_ranks() const {
  unsigned count = 0;
  const std::string& here = group_->host(group_->rank());
  for (std::uint32_t rank = 0; rank < config_.ranks; ++rank) {
    if (group_->host(static_cast<int>(rank)) == here) ++count;
  }
  return count;
}

std::string Communicator::State::describe() const {
  std::string text = fmt::format("rank {} of {}", config_.rank, config_.ranks);
  if (const std::string device = link_->describe_device(); !device.empty()) text += "; " + device;
  std::vector<std::string> paths;
  for (std::uint32_t peer = 0; peer < config_.ranks; ++peer) {
    if (peer == config_.rank) continue;
    const std::string path = link_->describe(peer);
    if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
  }
  for (const std::string& path : paths) text += "; " + path;
  return text + fmt::format("; wait policy {}; {} of scratch memory in slots of {}; messages of up to {} elements",
                            name_of(options_.wait), format_bytes(config_.scratch_bytes()),
                            format_bytes(options_.slot_payload_bytes), collective::kMostCount / config_.ranks);
}

}  // namespace tensorwire::comm
