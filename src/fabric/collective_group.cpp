#include "fabric/collective_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "collective/runner.hpp"

namespace tensorwire::fabric {

using namespace transport;

namespace {

constexpr std::uint64_t kUntold = ~std::uint64_t{0} - 1;  ///< wr_id of a write that nobody waits for
constexpr std::uint32_t kLeastSendDepth = 128;
constexpr std::uint64_t kSlotPayload = 1U << 20;
constexpr std::uint32_t kAccess = kAccessLocalWrite | kAccessRemoteWrite;

/// Where the tensors of a rank would lie.
std::byte* tensor(std::uint64_t offset) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(kUserMemory + offset));
}

}  // namespace

/// One rank: the runner, and what it acts through.
class CollectiveGroup::Rank final : public collective::Actions, public QpUser, public Actor {
 public:
  Rank(CollectiveGroup& group, const collective::RunnerConfig& config, const collective::Shape& shape,
       const collective::Segmentation& cut);

  [[nodiscard]] HostId host() const noexcept { return group_.config_.hosts[rank_]; }
  [[nodiscard]] std::uint64_t scratch_address() const noexcept { return scratch_.address(); }
  [[nodiscard]] std::uint32_t scratch_key() const noexcept { return key_; }
  /// Of all programs: messages that a sequence carries.
  [[nodiscard]] std::uint32_t messages() const noexcept;
  void take_lane(std::uint32_t peer, QueuePair& qp, const ConnectionConfig& connection);
  void meet(std::uint32_t peer, const Rank& other) noexcept;

  // The runner's way out. Bytes are not there, so memory work is nothing.
  bool write(const collective::WriteRequest& request) noexcept override;
  void copy(const std::byte*, std::byte*, std::size_t) noexcept override {}
  void reduce(const collective::Reduction&, std::span<const std::byte* const>, std::byte*, std::byte*,
              std::size_t) noexcept override {}

  void on_completion(const Completion& completion, Ps now) override;
  /// The time of an operation has come.
  void act(Ps now) override;

 private:
  struct Lane {
    QueuePair* qp = nullptr;
    std::uint64_t scratch = 0;
    std::uint32_t scratch_key = 0;
    std::uint32_t unsignaled = 0;
    std::uint32_t signal_every = 1;
  };

  /// Messages go to that peer, or come from it; in the one case credit comes from it, too.
  [[nodiscard]] bool meets(std::uint16_t peer) const noexcept;
  void begin_segments();
  void look_after(Ps now);

  CollectiveGroup& group_;
  std::uint32_t rank_;
  SlotMemory scratch_;
  std::uint32_t key_;
  collective::Runner runner_;
  collective::Segmentation cut_;
  std::vector<collective::Program> programs_;  ///< of all segments but the last, and of that
  std::vector<Lane> lanes_;                    ///< by peer
  std::uint32_t operation_ = 0;
  std::uint64_t segments_begun_ = 0;  ///< of the operation under way
  std::uint64_t last_segment_ = 0;    ///< the runner's count when all of its segments are complete
  bool under_way_ = false;
  Ps begun_at_ = 0;
};

CollectiveGroup::Rank::Rank(CollectiveGroup& group, const collective::RunnerConfig& config,
                            const collective::Shape& shape, const collective::Segmentation& cut)
    : group_(group),
      rank_(config.rank),
      scratch_(config.scratch_bytes(), config.slot_bytes),
      key_(group.fabric_.host(host())
               .engine.memory()
               .add({scratch_.address(), config.scratch_bytes(), scratch_.address(), kAccess, 0,
                     group.fabric_.host(host()).domain, &scratch_})
               .key),
      runner_(config, scratch_.data(), key_, *this),
      cut_(cut),
      lanes_(config.ranks) {
  for (const std::uint64_t segment : {std::uint64_t{0}, cut.segments - 1})
    programs_.push_back(build_segment(shape, group.config_.algorithm, rank_, {}, cut, segment));
  for (const collective::Program& program : programs_) runner_.reserve(program);
}

std::uint32_t CollectiveGroup::Rank::messages() const noexcept {
  return std::max(programs_[0].messages, programs_[1].messages);
}

bool CollectiveGroup::Rank::meets(std::uint16_t peer) const noexcept {
  const collective::Program& program = programs_[0];
  return std::ranges::binary_search(program.send_peers, peer) ||
         std::ranges::binary_search(program.receive_peers, peer);
}

void CollectiveGroup::Rank::take_lane(std::uint32_t peer, QueuePair& qp, const ConnectionConfig& connection) {
  lanes_[peer].qp = &qp;
  lanes_[peer].signal_every = connection.send_depth / 4;
  if (!meets(static_cast<std::uint16_t>(peer))) return;  // what never comes needs no receive
  RecvWr receive;
  receive.wr_id = peer;
  for (std::uint32_t n = 0; n < connection.receive_depth; ++n) (void)qp.post_recv(receive);
}

void CollectiveGroup::Rank::meet(std::uint32_t peer, const Rank& other) noexcept {
  lanes_[peer].scratch = other.scratch_address();
  lanes_[peer].scratch_key = other.scratch_key();
}

bool CollectiveGroup::Rank::write(const collective::WriteRequest& request) noexcept {
  Lane& lane = lanes_[request.peer];
  std::array<Sge, 2> sges;
  for (std::size_t n = 0; n < request.pieces.size(); ++n) {
    const collective::Piece& piece = request.pieces[n];
    sges[n] = {reinterpret_cast<std::uintptr_t>(piece.address), static_cast<std::uint32_t>(piece.bytes), piece.key};
  }
  const bool told = request.token != collective::kNoToken;
  SendWr wr;
  wr.wr_id = told ? request.token : kUntold;
  wr.opcode = WrOpcode::kWriteImm;
  wr.signaled = told || ++lane.unsignaled >= lane.signal_every;
  if (wr.signaled) lane.unsignaled = 0;
  wr.immediate = request.immediate;
  wr.remote_address = request.remote_offset + (request.to_output ? 0 : lane.scratch);
  wr.rkey = request.to_output ? request.window : lane.scratch_key;
  wr.sges = std::span{sges}.first(request.pieces.size());
  group_.fabric_.post(host(), *lane.qp, wr);
  return true;
}

void CollectiveGroup::Rank::act(Ps now) {
  begun_at_ = now;
  under_way_ = true;
  segments_begun_ = 0;
  last_segment_ = runner_.begun() + cut_.segments;
  look_after(now);
}

void CollectiveGroup::Rank::begin_segments() {
  const collective::Shape& shape = programs_[0].shape;
  while (segments_begun_ < cut_.segments && runner_.can_begin()) {
    const std::uint64_t offset = segments_begun_ * cut_.segment_count * element_bytes(shape.dtype);
    collective::Segment segment;
    segment.program = &programs_[++segments_begun_ == cut_.segments ? 1 : 0];
    segment.input = tensor(offset);
    segment.output = tensor(kUserMemoryBytes / 2 + offset);
    segment.input_key = segment.output_key = group_.fabric_.host(host()).key;
    segment.operation_sequence = operation_;
    segment.operation_count = group_.config_.bytes / element_bytes(shape.dtype);
    segment.output_window = {segment.output_key, reinterpret_cast<std::uintptr_t>(segment.output)};
    runner_.begin(segment);
  }
}

void CollectiveGroup::Rank::on_completion(const Completion& completion, Ps now) {
  if (completion.status != WcStatus::kSuccess) {
    const bool retries = completion.status == WcStatus::kRetryExceeded;
    const std::string why =
        retries ? "its retries are used up" : fmt::format("status {}", static_cast<unsigned>(completion.status));
    return group_.fail(fmt::format("rank {} on host {}: a work request failed, {}", rank_, host(), why));
  }
  if (completion.opcode == WcOpcode::kRecvWithImm) {
    // Before the runner can give credit for what arrived.
    RecvWr receive;
    receive.wr_id = completion.wr_id;
    const auto peer = static_cast<std::uint32_t>(completion.wr_id);
    (void)lanes_[peer].qp->post_recv(receive);
    runner_.on_arrival(peer, completion.immediate);
  } else if (completion.wr_id != kUntold) {
    runner_.on_sent(completion.wr_id);
  }
  look_after(now);
}

void CollectiveGroup::Rank::look_after(Ps now) {
  if (under_way_) begin_segments();
  runner_.flush_credit();
  if (runner_.error()) return group_.fail(fmt::format("rank {}: {}", rank_, to_string(runner_.error())));
  if (!under_way_ || segments_begun_ != cut_.segments || runner_.completed() < last_segment_) return;
  under_way_ = false;
  group_.on_operation(operation_, now - begun_at_);
  if (++operation_ < group_.config_.operations) group_.fabric_.call_at(now + group_.config_.compute, *this);
}

// ---- the group

CollectiveGroup::CollectiveGroup(Fabric& fabric, const GroupConfig& config)
    : fabric_(fabric), config_(config), operations_(config.operations) {
  collective::Shape shape;
  shape.ranks = static_cast<std::uint32_t>(config.hosts.size());
  shape.dtype = collective::DType::kBfloat16;
  shape.count = config.bytes / element_bytes(shape.dtype);
  const collective::Segmentation cut = collective::split(config.algorithm, shape, kSlotPayload);
  collective::RunnerConfig runner;
  runner.ranks = shape.ranks;
  runner.slot_bytes = kSlotPayload + collective::kSlotHeaderBytes;
  for (runner.rank = 0; runner.rank < shape.ranks; ++runner.rank)
    ranks_.push_back(std::make_unique<Rank>(*this, runner, shape, cut));
  connect(fabric);
  for (auto& rank : ranks_) fabric.call_at(config.start, *rank);
}

CollectiveGroup::~CollectiveGroup() = default;

void CollectiveGroup::connect(Fabric& fabric) {
  collective::RunnerConfig runner;
  ConnectionConfig connection = config_.connection;
  connection.receive_depth = runner.receive_depth(ranks_[0]->messages());
  connection.send_depth = std::max(kLeastSendDepth, 4 * connection.receive_depth);
  for (std::uint32_t a = 0; a < ranks_.size(); ++a) {
    for (std::uint32_t b = a + 1; b < ranks_.size(); ++b) {
      Rank& rank_a = *ranks_[a];
      Rank& rank_b = *ranks_[b];
      const Fabric::Pair pair = fabric.connect(rank_a.host(), rank_b.host(), connection, &rank_a, &rank_b);
      rank_a.take_lane(b, *pair.a, connection);
      rank_b.take_lane(a, *pair.b, connection);
      rank_a.meet(b, rank_b);
      rank_b.meet(a, rank_a);
    }
  }
}

void CollectiveGroup::on_operation(std::uint32_t number, Ps took) {
  Operation& operation = operations_[number];
  operation.longest = std::max(operation.longest, took);
  if (++operation.ended == ranks_.size() && number + 1 == config_.operations) {
    finished_ = true;
    if (config_.on_finished) config_.on_finished();
  }
}

void CollectiveGroup::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
  fabric_.stop();
}

std::vector<Ps> CollectiveGroup::latencies() const {
  std::vector<Ps> all;
  for (std::size_t n = config_.warm_up; n < operations_.size(); ++n)
    if (operations_[n].ended == ranks_.size()) all.push_back(operations_[n].longest);
  return all;
}

}  // namespace tensorwire::fabric
