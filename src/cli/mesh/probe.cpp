#include "cli/mesh/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/mapped_memory.hpp"
#include "cli/bench/statistics.hpp"
#include "comm/wait_policy.hpp"
#include "verbs/failure.hpp"
#include "verbs/gpudirect_mr.hpp"
#include "verbs/rdma_write.hpp"
#include "verbs/roce_qp.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kPingBytes = 8;
constexpr std::uint32_t kWriteBytes = 1 << 20;
constexpr std::uint32_t kMostInFlight = 8;
/// Of a slow link less is in flight, or writes that only wait behind others look lost.
constexpr Ps kMostQueued = 30 * kMillisecond;
constexpr std::uint32_t kProbeDepth = 64;
constexpr int kWarmUpPings = 20;
constexpr int kFewestPings = 100;
constexpr int kMostPings = 5000;
constexpr std::uint32_t kPing = 1;
constexpr std::uint32_t kLastPing = 2;
constexpr std::size_t kProbeMemory = std::size_t{kMostInFlight} * kWriteBytes;

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

verbs::QpAddress qp_address_of(const std::string& text) {
  std::array<std::byte, verbs::QpAddress::kBytes> bytes{};
  bool whole = text.size() == 2 * bytes.size() && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  for (std::size_t i = 0; whole && i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  const auto address = whole ? verbs::qp_address_from_bytes(bytes) : std::nullopt;
  if (!address) throw Error{"connect", "the peer's queue-pair address is out of range"};
  return *address;
}

Ps duration_in(const Json& request) {
  return static_cast<Ps>(request.at("seconds").get<double>() * static_cast<double>(kSecond));
}

}  // namespace

/// A rail's memory: the first half is read from, the second written to by the peer.
class Probe::Ends {
 public:
  explicit Ends(const std::shared_ptr<verbs::Context>& context)
      : domain(verbs::ProtectionDomain::create(context)), memory(2 * kProbeMemory, "memory to write to and from") {
    verbs::MemorySpan span;
    span.address = memory.bytes().data();
    span.length = 2 * kProbeMemory;
    verbs::MemoryAccess access;
    access.remote_write = true;
    region = verbs::register_gpu_memory_with_hca(domain, span, access);
  }

  std::shared_ptr<verbs::ProtectionDomain> domain;
  MappedMemory memory;
  verbs::MemoryRegion region;
};

class Probe::Pairing {
 public:
  Pairing(Ends& ends, std::string peer, int rank)
      : ends_(ends),
        peer_(std::move(peer)),
        rank_(rank),
        queue_(verbs::CompletionQueue::create(ends.domain->context(), 2 * kProbeDepth)) {
    verbs::QpOptions options;
    options.send_depth = kProbeDepth;
    options.receive_depth = kProbeDepth;
    options.max_inline = kPingBytes;
    options.link = verbs::SameHostLink::kPackets;
    qp_ = verbs::QueuePair::create(ends.domain, queue_, queue_, options);
    policy_.bound = 100 * kMillisecond;
    // Sleeping costs a wake-up, spinning the core that would serve the others where there are few.
    constexpr unsigned kCoresToSpin = 4;
    if (comm::usable_cores() > kCoresToSpin) policy_.spin = 100 * kMillisecond;
  }

  [[nodiscard]] Json introduce() const {
    return {{"address", hex_of(verbs::to_bytes(qp_->address()))},
            {"target", ends_.region.address() + kProbeMemory},
            {"key", ends_.region.rkey()}};
  }

  void connect(const Json& peer) {
    remote_ = qp_address_of(peer.at("address").get<std::string>());
    target_ = peer.at("target").get<std::uint64_t>();
    key_ = peer.at("key").get<std::uint32_t>();
    verbs::ConnectOptions options;
    options.peer = peer_;
    verbs::transition_qp_to_rts(*qp_, remote_, options);
    if (const int error = qp_->post_empty_receives(0, kProbeDepth); error != 0) {
      throw system_error("post receives for " + peer_, error);
    }
  }

  /// Half of what a ping and its answer take.
  Json ping(Ps duration) {
    std::vector<Ps> samples;
    const Ps deadline = monotonic_now() + duration + kProbeBound / 2;
    const Ps enough = monotonic_now() + duration;
    for (int i = 0;; ++i) {
      const int timed = i - kWarmUpPings;
      const bool last = timed >= kMostPings || (timed >= kFewestPings && monotonic_now() >= enough);
      const Ps started = monotonic_now();
      send_ping(last ? kLastPing : kPing);
      static_cast<void>(receive_ping(deadline));
      if (timed >= 0) samples.push_back((monotonic_now() - started) / 2);
      if (last) break;
    }
    finish_sends(deadline);
    const std::size_t count = samples.size();
    const LatencySummary summary = summarise(std::move(samples));
    return {{"p50_us", microseconds(summary.p50)}, {"p99_us", microseconds(summary.p99)}, {"count", count}};
  }

  Json echo(Ps duration) {
    const Ps deadline = monotonic_now() + duration + kProbeBound / 2 + kProbeBound / 4;
    for (bool last = false; !last;) {
      last = receive_ping(deadline) == kLastPing;
      send_ping(kPing);
    }
    finish_sends(deadline);
    return Json::object();
  }

  /// Writes of 1 MiB with several under way: what of them was acknowledged, over the time from the first post to the
  /// last acknowledgement.
  Json write(Ps duration) {
    const Ps started = monotonic_now();
    const Ps enough = started + duration;
    const Ps deadline = enough + kProbeBound / 2;
    std::uint64_t bytes = 0;
    std::uint32_t window = 1;
    for (std::uint64_t posted = 0; monotonic_now() < enough || posted == 0;) {
      if (in_flight_ < window) {
        post(kWriteBytes, posted++ % kMostInFlight * kWriteBytes, std::nullopt);
        continue;
      }
      const std::uint32_t before = in_flight_;
      take_completions(deadline, what(kWriteBytes));
      bytes += std::uint64_t{before - in_flight_} * kWriteBytes;
      const Ps each = std::max<Ps>(
          (monotonic_now() - started) * kWriteBytes / static_cast<Ps>(std::max<std::uint64_t>(bytes, kWriteBytes)), 1);
      window = static_cast<std::uint32_t>(std::clamp<Ps>(kMostQueued / each, 1, kMostInFlight));
    }
    bytes += std::uint64_t{in_flight_} * kWriteBytes;
    finish_sends(deadline);
    const double seconds = static_cast<double>(monotonic_now() - started) / static_cast<double>(kSecond);
    return {{"gb_s", static_cast<double>(bytes) / seconds / 1e9}};
  }

 private:
  void post(std::uint32_t length, std::uint64_t offset, std::optional<std::uint32_t> immediate) {
    verbs::WriteRequest request;
    request.local_address = ends_.region.address() + offset;
    request.local_key = ends_.region.lkey();
    request.length = length;
    request.remote_address = target_ + offset;
    request.remote_key = key_;
    request.immediate = immediate.value_or(0);
    const int error =
        immediate ? verbs::post_gpudirect_rdma_write(*qp_, request) : verbs::post_rdma_write_silent(*qp_, request);
    if (error != 0) throw Error{verbs::explain_post(error, what(length), endpoints())};
    ++in_flight_;
  }

  void send_ping(std::uint32_t immediate) { post(kPingBytes, 0, immediate); }

  /// The immediate of the peer's next ping.
  std::uint32_t receive_ping(Ps deadline) {
    while (pings_ == 0) take_completions(deadline, "ping-pong of 8 bytes");
    --pings_;
    return last_immediate_;
  }

  void finish_sends(Ps deadline) {
    while (in_flight_ > 0) take_completions(deadline, "wait for acknowledgements");
  }

  void take_completions(Ps deadline, const std::string& during) {
    std::array<ibv_wc, 16> completions;
    const int count = queue_->wait(completions, policy_);
    if (count < 0) throw system_error("poll for completions of " + peer_, -count);
    for (int i = 0; i < count; ++i) take(completions[static_cast<std::size_t>(i)], during);
    if (count == 0 && monotonic_now() >= deadline) {
      throw Error{fmt::format("{} with {}", during, peer_), "no answer came in time",
                  "Look at whether its process is stopped, and at loss on the way"};
    }
  }

  void take(const ibv_wc& completion, const std::string& during) {
    if (completion.status != IBV_WC_SUCCESS) throw Error{verbs::explain_completion(completion, during, endpoints())};
    if ((completion.opcode & IBV_WC_RECV) == 0) {
      --in_flight_;
      return;
    }
    last_immediate_ = verbs::immediate_of(completion);
    ++pings_;
    if (const int error = qp_->post_empty_receive(0); error != 0) throw system_error("post a receive", error);
  }

  static std::string what(std::uint32_t length) { return fmt::format("RDMA WRITE of {} bytes", length); }

  [[nodiscard]] verbs::Endpoints endpoints() const {
    verbs::Endpoints ends;
    ends.local_gid = qp_->address().gid;
    ends.local_qpn = qp_->qpn();
    ends.remote_gid = remote_.gid;
    ends.remote_qpn = remote_.qpn;
    ends.peer_rank = rank_;
    ends.peer_host = peer_;
    return ends;
  }

  Ends& ends_;
  std::string peer_;
  int rank_;
  std::shared_ptr<verbs::CompletionQueue> queue_;
  std::unique_ptr<verbs::QueuePair> qp_;
  verbs::WaitPolicy policy_;
  verbs::QpAddress remote_;
  std::uint64_t target_ = 0;
  std::uint32_t key_ = 0;
  std::uint32_t in_flight_ = 0;
  std::uint32_t pings_ = 0;
  std::uint32_t last_immediate_ = 0;
};

Probe::Probe(std::vector<Rail> rails) : rails_(std::move(rails)), ends_(rails_.size()) {}

Probe::~Probe() = default;

Json Probe::handle(const Json& request) {
  const auto op = request.at("op").get<std::string>();
  if (op == "close") {
    pairing_.reset();
    return Json::object();
  }
  if (op == "open") {
    const auto rail = request.at("rail").get<std::size_t>();
    if (rail >= rails_.size()) throw Error{"use rail " + std::to_string(rail), "this rank has no such device"};
    const Rail& chosen = rails_[rail];
    if (chosen.context == nullptr) throw Error{"use " + chosen.end.device, chosen.end.problem};
    pairing_.reset();
    if (ends_[rail] == nullptr) ends_[rail] = std::make_unique<Ends>(chosen.context);
    pairing_ =
        std::make_unique<Pairing>(*ends_[rail], request.at("peer").get<std::string>(), request.at("rank").get<int>());
    return pairing_->introduce();
  }
  if (pairing_ == nullptr) throw Error{op, "nothing is open"};
  if (op == "connect") {
    pairing_->connect(request);
    return Json::object();
  }
  if (op == "ping") return pairing_->ping(duration_in(request));
  if (op == "echo") return pairing_->echo(duration_in(request));
  if (op == "write") return pairing_->write(duration_in(request));
  throw Error{op, "there is no such request"};
}

}  // namespace tensorwire::cli
