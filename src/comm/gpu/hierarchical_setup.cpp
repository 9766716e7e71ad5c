// How a hierarchical all-reduce comes to be and how it ends: who is on which host, the groups of a host and between
// hosts, and failures of either in the numbers of all ranks.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/unique_id.hpp"
#include "comm/gpu/bound.hpp"
#include "comm/gpu/hierarchical.hpp"
#include "cuda/identity.hpp"

namespace tensorwire::comm {

namespace {

/// Ranks of a host that miss each other find out before those who wait for that host.
constexpr Ps kLongerBetween = 2 * kSecond;
constexpr std::size_t kFirstBetween = 4096;

/// What a rank tells the others, as big-endian words.
struct Place {
  std::uint64_t host = 0;
  std::uint64_t gpu = 0;
  std::uint64_t processors = 1;
};

std::vector<Place> places_of(bootstrap::Group& group, int device) {
  int processors = 1;
  static_cast<void>(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  std::array<std::byte, 24> mine{};
  store_be64(mine.data(), cuda::host_identity(group.rank()));
  store_be64(mine.data() + 8, cuda::gpu_identity(device));
  store_be64(mine.data() + 16, static_cast<std::uint64_t>(processors));
  std::vector<Place> places;
  for (const auto& theirs : group.all_gather(mine)) {
    if (theirs.size() != mine.size()) throw Error{"join the GPUs", "a rank runs another version of Tensorwire"};
    places.push_back({load_be64(theirs.data()), load_be64(theirs.data() + 8), load_be64(theirs.data() + 16)});
  }
  return places;
}

/// All blocks of a kernel must run at once, also beside those of ranks that share the GPU and count as another host's.
std::uint32_t most_lanes_of(const std::vector<Place>& places) {
  std::uint64_t lanes = cuda::CommunicatorOptions{}.most_lanes;
  for (const Place& place : places) {
    const auto sharers = static_cast<std::uint64_t>(std::ranges::count(places, place.gpu, &Place::gpu));
    lanes = std::max<std::uint64_t>(std::min(lanes, place.processors / sharers), 1);
  }
  return static_cast<std::uint32_t>(lanes);
}

/// Ends a step on all ranks: what went wrong on the first of them where something did; empty: nothing.
template <class Step>
std::string all_through(bootstrap::Group& group, const Step& step) {
  std::string trouble;
  try {
    step();
  } catch (const Error& error) {
    trouble = error.what();
  }
  const auto all = group.all_gather(std::as_bytes(std::span(trouble)));
  const auto in_trouble = std::ranges::find_if(all, [](const auto& line) { return !line.empty(); });
  if (in_trouble == all.end()) return {};
  return fmt::format("{}: {}", group.name(static_cast<int>(in_trouble - all.begin())),
                     std::string_view(reinterpret_cast<const char*>(in_trouble->data()), in_trouble->size()));
}

}  // namespace

std::unique_ptr<Hierarchical> Hierarchical::create(bootstrap::Group& group, int device, const CommOptions& options,
                                                   std::string& why_not) {
  const std::vector<Place> places = places_of(group, device);
  std::vector<std::uint64_t> identities;
  for (const Place& place : places) identities.push_back(place.host);
  Hosts hosts = hosts_of(identities);
  why_not = why_not_hierarchical(hosts);
  if (!why_not.empty()) return nullptr;
  std::unique_ptr<Hierarchical> made{new Hierarchical(group, std::move(hosts))};
  why_not = all_through(group, [&] { made->join_inside(device, options, most_lanes_of(places)); });
  if (why_not.empty()) why_not = all_through(group, [&] { made->join_between(device, options); });
  if (!why_not.empty()) return nullptr;
  return made;
}

Hierarchical::Hierarchical(bootstrap::Group& group, Hosts hosts)
    : group_(group), hosts_(std::move(hosts)), seat_(seat_of(hosts_, group.rank())) {}

Hierarchical::~Hierarchical() = default;

void Hierarchical::join_inside(int device, const CommOptions& options, std::uint32_t most_lanes) {
  const auto joins = bootstrap::split(group_, static_cast<int>(seat_.host), group_.rank());
  const auto inside = bootstrap::Group::join(*joins);
  cuda::CommunicatorOptions made;
  made.rank = inside->rank();
  made.ranks = inside->world_size();
  made.device = device;
  made.host = 1;  // that they are of one is known
  made.exchange = [&](std::span<const std::byte> mine) { return inside->all_gather(mine); };
  made.operation_bound = bound_on_gpu(options);
  made.most_lanes = most_lanes;
  try {
    inner_ = std::make_unique<cuda::Communicator>(made);
  } catch (const Error& error) {  // on all ranks of the host
    inside->throw_if_failed("join the GPUs of a host");
    log_warn(fmt::format("inside the host operations on GPU memory go through its memory: {}", error.what()));
    made.scratch = cuda::Home::kHost;
    inner_ = std::make_unique<cuda::Communicator>(made);
  }
}

void Hierarchical::join_between(int device, const CommOptions& options) {
  const auto joins = bootstrap::split(group_, static_cast<int>(seat_.local), static_cast<int>(seat_.host));
  outer_group_ = bootstrap::Group::join(*joins);
  CommOptions made = options;
  if (made.operation_timeout != 0) made.operation_timeout += kLongerBetween;
  // Other numbers than those of whole communicators, and of each local number another: files are named by them.
  made.communicator_number = static_cast<std::uint16_t>(
      kFirstBetween + (options.communicator_number * cuda::kMaxRanks + seat_.local) % kFirstBetween);
  outer_ = std::make_unique<Proxied>(*outer_group_, device, made, static_cast<std::uint32_t>(group_.world_size()));
}

int Hierarchical::rank_inside(int local) const {
  const std::vector<int>& here = hosts_[seat_.host];
  return local >= 0 && static_cast<std::size_t>(local) < here.size() ? here[static_cast<std::size_t>(local)] : -1;
}

int Hierarchical::rank_between(int host) const {
  if (host < 0 || static_cast<std::size_t>(host) >= hosts_.size()) return -1;
  return hosts_[static_cast<std::size_t>(host)][seat_.local];
}

void Hierarchical::abort(int peer) noexcept {
  const std::vector<int>& here = hosts_[seat_.host];
  const auto at = std::ranges::find(here, peer);
  inner_->abort(at != here.end() ? static_cast<int>(at - here.begin()) : static_cast<int>(seat_.local));
  outer_->abort(outer_group_->rank());
}

std::optional<CommError> Hierarchical::failure() const {
  const std::scoped_lock lock{mutex_};
  if (!failure_) failure_ = find_failure();
  return failure_;
}

/// What all ranks heard of is the cause; else what this rank saw itself.
std::optional<CommError> Hierarchical::find_failure() const {
  const auto inside = inner_->failure();
  const auto between = outer_->failure();
  if (!inside && !between) return std::nullopt;
  const int me = group_.rank();
  const auto failed = group_.failed_rank();
  if (failed && failed->rank == me && failed->told_by >= 0 && failed->told_by != me) {
    return CommError{CommErrorKind::kPeerFailed, failed->told_by,
                     fmt::format("{} gave this rank up: {}", group_.name(failed->told_by), failed->reason)};
  }
  if (failed && failed->rank != me && failed->told_by != me) {
    return CommError{CommErrorKind::kPeerFailed, failed->rank,
                     fmt::format("{} failed: {}", group_.name(failed->rank), failed->reason)};
  }
  if (inside && inside->kind == cuda::FailureKind::kTimeout) {
    const int peer = rank_inside(inside->peer);
    return CommError{CommErrorKind::kTimeout, peer,
                     fmt::format("inside the host, {} waited for {}. In the numbers of the host's ranks, {}: {}",
                                 group_.name(rank_inside(inside->reporter)), group_.name(peer),
                                 fmt::join(hosts_[seat_.host], ", "), inner_->failure_text())};
  }
  if (between) {
    const int peer = rank_between(between->peer);
    const std::string who = peer < 0 ? "an operation" : group_.name(peer);
    return CommError{between->kind, peer,
                     fmt::format("between hosts, {}. There {} is rank {} of {}: {}", who, group_.name(me), seat_.host,
                                 hosts_.size(), between->line)};
  }
  const int peer = rank_inside(inside->peer);
  return CommError{
      peer == me ? CommErrorKind::kAborted : CommErrorKind::kPeerFailed, peer,
      fmt::format("{} ended it because of {}", group_.name(rank_inside(inside->reporter)), group_.name(peer))};
}

}  // namespace tensorwire::comm
