#include "bootstrap/group.hpp"

#include <fmt/format.h>

#include <exception>

#include "base/error.hpp"
#include "bootstrap/hub.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tensorwire::bootstrap {

namespace {

Joined rendezvous(const GroupOptions& options) {
  if (options.world_size == 1) return {{own_host_name()}, {}, {}, {}};
  return options.rank == 0 ? serve_rendezvous(options) : enter_rendezvous(options);
}

}  // namespace

std::unique_ptr<Group> Group::join(const GroupOptions& options) {
  check_options(options);
  auto hub = std::make_unique<Hub>(options.rank, rendezvous(options), options.timeout);
  return std::unique_ptr<Group>{new Group{options, std::move(hub)}};
}

Group::Group(const GroupOptions& options, std::unique_ptr<Hub> hub) noexcept
    : local_rank_(options.local_rank), exceptions_at_birth_(std::uncaught_exceptions()), hub_(std::move(hub)) {}

Group::~Group() {
  if (std::uncaught_exceptions() > exceptions_at_birth_) abort("it ended by an error; look at its log");
  leave();
}

int Group::rank() const noexcept { return hub_->rank(); }
int Group::world_size() const noexcept { return static_cast<int>(hub_->hosts().size()); }
int Group::local_rank() const noexcept { return local_rank_; }
const std::string& Group::host(int rank) const { return hub_->hosts().at(static_cast<std::size_t>(rank)); }
std::string Group::address(int rank) const { return hub_->address_of(rank); }
std::string Group::name(int rank) const { return fmt::format("rank {} on {}", rank, host(rank)); }

std::vector<Bytes> Group::all_gather(std::span<const std::byte> mine) {
  return hub_->call(CallKind::kAllGather, 0, mine, 0);
}

Bytes Group::broadcast(std::span<const std::byte> mine, int root) {
  if (root < 0 || root >= world_size()) throw Error{"broadcast", fmt::format("there is no rank {}", root)};
  const bool is_root = rank() == root;
  auto parts = hub_->call(CallKind::kBroadcast, root, is_root ? mine : std::span<const std::byte>{}, 0);
  return std::move(parts[static_cast<std::size_t>(root)]);
}

void Group::barrier(Ps bound) { (void)hub_->call(CallKind::kBarrier, 0, {}, bound); }

bool Group::failed() const noexcept { return hub_->failed(); }
std::optional<FailedRank> Group::failed_rank() const { return hub_->failed_rank(); }

void Group::throw_if_failed(std::string_view during) const {
  if (const auto failed = failed_rank()) {
    throw Error{std::string{during},
                fmt::format("rank {} on {} failed: {}", failed->rank, failed->host, failed->reason), "Look at its log"};
  }
}

void Group::abort(std::string_view reason) noexcept { hub_->abort(reason); }
void Group::accuse(int rank, FailureKind kind, std::string_view reason) noexcept { hub_->accuse(rank, kind, reason); }

void Group::set_reporter(std::uint16_t topic, Reporter reporter) { hub_->set_reporter(topic, std::move(reporter)); }
void Group::roll_call(std::uint16_t topic) noexcept { hub_->roll_call(topic); }
std::vector<Report> Group::reports(std::uint16_t topic) const { return hub_->reports(topic); }

void Group::leave() noexcept { hub_->leave(); }

}  // namespace tensorwire::bootstrap
