// Congestion control (DCQCN): CNPs are counted out exactly; of the rates only the limits are known, so that those are
// what is held.
#include <algorithm>

#include "run.hpp"
#include "transport/qp.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

/// Around a payload on Ethernet, and the most that one packet is charged for.
constexpr std::uint64_t kFramingBytes = 82;
constexpr std::uint64_t kLongestPaced = 1U << 20;

const Congestion* congestion_of(const QueuePair& qp) { return static_cast<const Qp&>(qp).congestion.get(); }

bool is_data(wire::Opcode opcode) { return opcode != wire::Opcode::kRcAck && opcode != wire::Opcode::kCnp; }

}  // namespace

bool Run::paced(const QueuePair& qp) noexcept {
  const Congestion* congestion = congestion_of(qp);
  return congestion != nullptr && congestion->waiting;
}

template <typename Visit>
void Run::visit_paced(std::size_t number, Visit&& visit) const {
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    const End& end = owners_[number][i].connection->ends[owners_[number][i].side];
    visit(*end.qp, end.ref.congestion);
  }
  for (const UnreliableEnd& end : unreliable_ends_)
    if (end.host_number == number) visit(*end.qp, end.ref.congestion);
}

void Run::note_pace(std::size_t number) {
  if (!scenario_.engine.dcqcn.enabled) return;
  auto before = paced_before_.begin();
  visit_paced(number, [&](const QueuePair& qp, const ReferenceCongestion&) { *before++ = paced(qp); });
}

/// Who was held back sent nothing; who is held back now sent no more than a burst before its last packet.
void Run::expect_pace(std::size_t number, std::span<const TxDesc> sent) const {
  const DcqcnConfig& config = scenario_.engine.dcqcn;
  if (!config.enabled) return;
  auto before = paced_before_.begin();
  visit_paced(number, [&](const QueuePair& qp, const ReferenceCongestion&) {
    const bool was_paced = *before++;
    std::uint64_t bytes = 0;
    std::uint64_t last = 0;
    for (const TxDesc& desc : sent) {
      if (desc.src_qpn != qp.qpn() || !is_data(desc.headers.opcode)) continue;
      require(!was_paced, "a queue pair that its rate holds back sends no data");
      last = std::min<std::uint64_t>(desc.payload_bytes, kLongestPaced) + kFramingBytes;
      bytes += last;
    }
    // A byte counter that steps with every packet raises the rate, and so the burst, in the middle of it.
    const bool steady = config.variant == DcqcnVariant::kNic || config.increase_bytes > 1'000'000;
    if (steady && congestion_of(qp)->limiter().active())
      require(bytes - last <= config.burst_bytes, "no more than a burst leaves at once");
  });
}

/// After a commit: marks are answered as the reference says, CNPs counted.
void Run::expect_congestion(const PacketSource& source, const wire::Headers& headers, const EngineCounters& before,
                            const SimHost& host, ReferenceCongestion& congestion) {
  const bool on = scenario_.engine.dcqcn.enabled;
  const EngineCounters& after = host.engine.counters();
  const bool marked = on && source.congestion_experienced;
  const bool cnp = headers.opcode == wire::Opcode::kCnp;
  require(after.np_ecn_marked_roce_packets - before.np_ecn_marked_roce_packets == (marked ? 1 : 0),
          "marked packets are counted");
  require(after.rp_cnp_handled - before.rp_cnp_handled == (cnp && on ? 1 : 0) &&
              after.rp_cnp_ignored - before.rp_cnp_ignored == (cnp && !on ? 1 : 0),
          "CNPs are counted");
  if (marked) congestion.on_marked(now_);
}

/// `deadline` is that of acknowledgements; the engine may have an earlier one, when a rate holds somebody back.
void Run::settle_rates(std::size_t number, Ps deadline) {
  const DcqcnConfig& config = scenario_.engine.dcqcn;
  const Ps next = hosts_[number].engine.next_deadline();
  bool held = false;
  const auto settle_one = [&](const QueuePair& qp, const ReferenceCongestion& reference) {
    held = held || paced(qp);
    if (paced(qp) && qp.init().type == QpType::kUc) hits_(Point::kUcPaced);
    deadline = std::min(deadline, reference.deadline());
    const RateLimiter& limiter = congestion_of(qp)->limiter();
    if (!limiter.active()) return;
    require(limiter.rate() >= config.min_rate && limiter.rate() <= config.line_rate, "a rate stays between its limits");
    require(limiter.target() <= config.line_rate && limiter.alpha() <= RateLimiter::kAlphaOne,
            "target and estimate stay between their limits");
    if (limiter.rate() == config.min_rate) hits_(Point::kSlowest);
  };
  if (config.enabled) visit_paced(number, settle_one);
  if (!held) return require(next == deadline, "the timer fires when the rules say");
  hits_(Point::kPaced);
  const auto longest = static_cast<Ps>((kLongestPaced + kFramingBytes + config.burst_bytes) * 8 *
                                       static_cast<std::uint64_t>(kSecond / 1'000) / (config.min_rate / 1'000));
  require(next <= deadline && next <= now_ + longest, "whoever is held back goes on, in bounded time");
}

}  // namespace tensorwire::transport::faults
