#include "collective/cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/error.hpp"

namespace tensorwire::collective {

namespace {

constexpr std::uint64_t kAroundPacket = 82;
constexpr std::uint64_t kReth = 16;
constexpr std::uint64_t kImmediate = 4;

/// Plays the steps of all ranks through. A rank's processor does its steps one after another, in the order in which
/// they can be done; its link sends and receives at the same time, messages one after another each way.
class Playback {
 public:
  Playback(const Plan& plan, const FabricCost& cost) : plan_(plan), cost_(cost), ranks_(plan.programs.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].waits = plan.programs[r].pending;
  }

  Price run() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < ranks_[r].waits.size(); ++i) {
        if (ranks_[r].waits[i] == 0) events_.emplace(0, kStep, r, static_cast<std::uint16_t>(i));
      }
    }
    while (!events_.empty()) {
      const auto [at, kind, rank, step] = events_.top();
      events_.pop();
      if (kind == kStep) {
        execute(at, rank, step);
      } else {
        receive(at, rank, step);
      }
    }
    for (const Rank& rank : ranks_) {
      price_.busy_us = std::max({price_.busy_us, rank.worked_us, rank.sent_us, rank.received_us});
      price_.wire_bytes = std::max(price_.wire_bytes, rank.wire_bytes);
    }
    return price_;
  }

 private:
  struct Rank {
    std::vector<std::uint16_t> waits;
    double processor_free = 0, egress_free = 0, ingress_free = 0;
    double worked_us = 0, sent_us = 0, received_us = 0;
    std::uint64_t wire_bytes = 0;
  };
  enum Kind : std::uint8_t {
    kMessage,  ///< the write of a rank reaches its peer's link
    kStep,     ///< a step of a rank can be done
  };
  using Event = std::tuple<double, Kind, std::uint32_t, std::uint16_t>;

  void satisfy(double at, std::uint32_t rank, std::uint16_t step) {
    if (--ranks_[rank].waits[step] == 0) events_.emplace(at, kStep, rank, step);
  }

  void execute(double at, std::uint32_t rank, std::uint16_t index) {
    const Program& program = plan_.programs[rank];
    const Step& step = program.steps[index];
    const double work = work_of(step);
    Rank& own = ranks_[rank];
    const double done = std::max(at, work == 0 ? 0 : own.processor_free) + work;
    if (work != 0) own.processor_free = done;
    own.worked_us += work;
    if (step.kind == StepKind::kWrite) send(done, rank, index);
    price_.us = std::max(price_.us, done);
    for (const std::uint16_t dependent : program.dependents_of(step)) satisfy(done, rank, dependent);
  }

  [[nodiscard]] double work_of(const Step& step) const {
    const auto bytes = static_cast<double>(step.bytes);
    switch (step.kind) {
      case StepKind::kCopy:
        return bytes / cost_.copy_bytes_per_us;
      case StepKind::kReduce:
        return bytes * step.operand_count / cost_.reduce_bytes_per_us;
      case StepKind::kWrite:
        return cost_.message_us;
      case StepKind::kArrival:
        return cost_.arrival_us;
      default:
        return 0;
    }
  }

  [[nodiscard]] std::uint64_t bytes_of(const Step& write) const noexcept {
    return wire_bytes(write.bytes + (write.with_signature ? kSlotHeaderBytes : 0), cost_.mtu);
  }

  void send(double posted, std::uint32_t rank, std::uint16_t index) {
    const std::uint64_t bytes = bytes_of(plan_.programs[rank].steps[index]);
    const double lasts = static_cast<double>(bytes) / cost_.wire_bytes_per_us;
    Rank& sender = ranks_[rank];
    const double begins = std::max(posted, sender.egress_free);
    sender.egress_free = begins + lasts;
    sender.sent_us += lasts;
    sender.wire_bytes += bytes;
    ++price_.messages;
    events_.emplace(begins + cost_.hop_us, kMessage, rank, index);
  }

  void receive(double at, std::uint32_t from, std::uint16_t index) {
    const Program& sender = plan_.programs[from];
    const Step& step = sender.steps[index];
    const Program& program = plan_.programs[step.peer];
    Rank& receiver = ranks_[step.peer];
    const double lasts = static_cast<double>(bytes_of(step)) / cost_.wire_bytes_per_us;
    receiver.ingress_free = std::max(at, receiver.ingress_free) + lasts;
    receiver.received_us += lasts;
    satisfy(receiver.ingress_free, step.peer, program.arrival_step(from, step.message));
    const std::uint16_t sent = sender.sent_steps[index];
    if (sent != kNoStep) satisfy(receiver.ingress_free + cost_.hop_us, from, sent);
  }

  const Plan& plan_;
  const FabricCost& cost_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Price price_;
};

/// Where rows of ranks are on a host each, it is the user who says so; without groups there is nothing hierarchical.
bool makes_sense(Algorithm algorithm, const Shape& shape, const BuildOptions& build) {
  return algorithm != Algorithm::kHierarchical || (build.group_ranks > 1 && build.group_ranks < shape.ranks);
}

}  // namespace

std::uint64_t wire_bytes(std::uint64_t payload, std::uint32_t mtu) noexcept {
  if (mtu == 0) return payload;
  const std::uint64_t packets = std::max<std::uint64_t>(1, (payload + mtu - 1) / mtu);
  return payload + packets * kAroundPacket + kReth + kImmediate;
}

Price price(const Plan& plan, const FabricCost& cost) {
  Price price = Playback{plan, cost}.run();
  if (price.messages != 0) price.us += cost.start_us;
  return price;
}

std::optional<Candidate> price_candidate(const Shape& shape, Algorithm algorithm, const FabricCost& cost,
                                         std::uint64_t slot_payload_bytes, std::uint32_t depth,
                                         const BuildOptions& build) {
  Candidate candidate{algorithm, build, {}, {}};
  Plan first;
  try {
    candidate.cut = split(algorithm, shape, slot_payload_bytes, build);
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      first.programs.push_back(build_segment(shape, algorithm, rank, build, candidate.cut, 0));
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  candidate.price = price(first, cost);
  candidate.price.segments = candidate.cut.segments;
  const auto more = static_cast<double>(candidate.cut.segments - 1);
  const double once = candidate.price.messages != 0 ? cost.start_us : 0;
  candidate.price.us += more * std::max(candidate.price.busy_us, (candidate.price.us - once) / depth);
  candidate.price.wire_bytes *= candidate.cut.segments;
  candidate.price.messages *= candidate.cut.segments;
  return candidate;
}

std::vector<Candidate> price_candidates(const Shape& shape, const FabricCost& cost, std::uint64_t slot_payload_bytes,
                                        std::uint32_t depth, const BuildOptions& build) {
  std::vector<Candidate> all;
  for (const Algorithm algorithm : kAlgorithms) {
    if (shape.ranks == 0) break;
    if (!makes_sense(algorithm, shape, build)) continue;
    if (auto candidate = price_candidate(shape, algorithm, cost, slot_payload_bytes, depth, build)) {
      all.push_back(*candidate);
    }
  }
  if (all.empty()) {
    throw Error{fmt::format("plan a {} of {} ranks", name_of(shape.collective), shape.ranks),
                "no algorithm can do that", "Look at ranks, root, dtype and op"};
  }
  std::ranges::stable_sort(all, {}, [](const Candidate& candidate) { return candidate.price.us; });
  return all;
}

}  // namespace tensorwire::collective
