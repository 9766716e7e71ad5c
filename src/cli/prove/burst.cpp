#include "cli/prove/burst.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "host/read/read.hpp"
#include "host/read/stacked.hpp"
#include "host/tree/live_tree.hpp"

namespace tensorwire::cli {
namespace {

constexpr std::uint64_t kBurstBufferBytes = 4 << 20;  ///< sent again and again
constexpr Ps kLongestBurstNap = 500 * kMillisecond;

void sleep_for(Ps duration) {
  const Ps end = monotonic_now() + duration;
  for (Ps now = monotonic_now(); now < end; now = monotonic_now()) nap(std::min(end - now, kLongestBurstNap));
}

/// The counters of the ports that this rank's packets go through, from one look to the next.
class Counting {
 public:
  explicit Counting(std::string netdev) : netdev_(std::move(netdev)), ports_(host::ports_below(tree_, netdev_)) {}

  void begin() {
    before_ = statistics();
    then_ = monotonic_now();
  }
  [[nodiscard]] host::CounterWindow end() {
    const auto after = statistics();
    return {monotonic_now() - then_, host::priorities_between(before_, after)};
  }

  /// What holds on each of them.
  void describe(Evidence& evidence) {
    for (const std::string& port : ports_) {
      const host::Qos qos = host::read_qos(tree_, port);
      const bool first = &port == &ports_.front();
      if (first || !evidence.pfc || !qos.pfc) {
        evidence.pfc = qos.pfc ? std::optional{*qos.pfc} : std::nullopt;
      } else {
        *evidence.pfc &= *qos.pfc;
      }
      if (first || qos.trust.is(host::Trust::kPcp)) {
        evidence.trust = qos.trust ? std::optional{*qos.trust} : std::nullopt;
      }
    }
  }

 private:
  host::Fact<host::Counters> statistics() { return host::statistics_of(tree_, ports_); }

  host::LiveTree tree_;
  std::string netdev_;
  std::vector<std::string> ports_;
  host::Fact<host::Counters> before_;
  Ps then_ = 0;
};

void transfer(comm::Communicator& comm, bool sends, int peer, std::uint64_t bytes) {
  std::vector<std::byte> buffer(std::min(bytes, kBurstBufferBytes));
  for (std::uint64_t left = bytes; left != 0;) {
    const std::uint64_t now = std::min<std::uint64_t>(left, buffer.size());
    const comm::Transfer part{sends, peer, buffer.data(), now / 4, collective::DType::kFloat32};
    if (!comm.run({&part, 1})) throw Error{"burst", comm.error()->line};
    left -= now;
  }
}

}  // namespace

Evidence send_bursts(bootstrap::Group& group, const verbs::Context& device, const BurstPlan& plan) {
  comm::CommOptions options;
  options.device = fmt::format("{}:{}", device.name(), device.port());
  options.gid_index = device.gid_index();
  options.path = comm::PathChoice::kPackets;
  options.dscp = static_cast<std::uint8_t>(plan.dscp);
  const auto comm = comm::Communicator::create(group, options);

  Evidence evidence;
  evidence.name = fmt::format("{} {}", group.host(group.rank()), device.netdev());
  evidence.path = device.describe();
  evidence.path_mtu = verbs::mtu_bytes(device.mtu());
  evidence.ipv6 = !device.gid().is_ipv4();
  Counting counting{device.netdev()};
  counting.describe(evidence);

  group.barrier();
  counting.begin();
  sleep_for(plan.idle);
  evidence.idle = counting.end();
  const int ranks = group.world_size();
  for (int sender = 0; sender < ranks; ++sender) {
    const int receiver = (sender + 1) % ranks;
    counting.begin();
    group.barrier();
    if (group.rank() == sender) transfer(*comm, true, receiver, plan.bytes);
    if (group.rank() == receiver) transfer(*comm, false, sender, plan.bytes);
    group.barrier();
    sleep_for(plan.idle / 2);  // drivers fetch their counters from the NIC now and then
    evidence.bursts.push_back(counting.end());
  }
  return evidence;
}

}  // namespace tensorwire::cli
