// One seed over rings: the same work, reference and invariants as over packets (transport/faults/run.hpp), but what a
// host sends goes through the real OutgoingChannel into real shared memory, and the real IncomingChannel takes it from
// there and pulls. One record at a time, so that the reference judges each one before the engine does.
#pragma once

#include <array>
#include <deque>
#include <optional>

#include "channel.hpp"
#include "ring_hits.hpp"
#include "softhca/local_counters.hpp"
#include "transport/faults/run.hpp"

namespace tensorwire::softhca::faults {

using transport::faults::Connection;
using transport::faults::Judgement;
using transport::faults::Label;
using transport::faults::Run;
using transport::faults::SimHost;

class RingRun final : public Run {
 public:
  RingRun(std::uint64_t seed, RingWorkspace& workspace);

 private:
  /// What `Next::side` says of an arrival, beside 0: a packet. `Next::index` is a channel, or a host.
  enum What : std::size_t { kPacket, kVisit, kLook, kInDies, kOutDies, kWake };

  struct Sleeper {
    bool asleep = false;
    Ps wake_at = kNever;
  };

  // ---- events (ring_run.cpp)
  Route route(const Connection& connection, std::size_t side) override;
  [[nodiscard]] Next next_arrival() const noexcept override;
  void arrive(const Next& next) override;
  void step(Connection& connection, std::size_t side) override;
  void disturb() override;
  void calm() override;
  void harm(Channel& channel);
  [[nodiscard]] bool blocked(std::size_t host, transport::PathId path) const noexcept override;
  [[nodiscard]] Channel* channel_of(std::size_t host, transport::PathId path) noexcept;

  // ---- who sleeps, who is woken (ring_run_sleep.cpp)
  void fall_asleep(std::size_t host);
  void wake_up(std::size_t host);
  void ring_the_bell(std::size_t host);
  void block(Channel& channel);
  void look_for_room(Channel& channel);
  void consumer_dies(Channel& channel);
  void producer_dies(Channel& channel);

  // ---- records (ring_run_records.cpp)
  void launch(std::size_t host, std::span<const transport::TxDesc> descs, std::span<Leaving> leaving) override;
  void send(Channel& channel, std::span<const transport::TxDesc> descs, std::span<Leaving> leaving);
  [[nodiscard]] Record record_of(const transport::TxDesc& desc, const Label& label) const;
  void written(Channel& channel, std::uint64_t wakeups_before);
  void visit(Channel& channel);
  void take(Channel& channel);
  void take_malformed(Channel& channel);
  void take_unreliable(Channel& channel, Record& record, transport::faults::UnreliableEnd& end);
  void take_record(Channel& channel, Record& record, const Judgement& judgement, Connection* connection,
                   std::size_t side);
  void place_inline(Channel& channel, const Record& record, const Judgement& judgement, Connection& connection,
                    std::size_t side);
  void abandon(Channel& channel);
  std::size_t receive(Channel& channel, std::uint64_t pull_bytes);
  void popped(Channel& channel);

  // ---- payloads that are pulled (ring_run_pulls.cpp)
  void place_pulled(Channel& channel, const Record& record, const Judgement& judgement, Connection& connection,
                    std::size_t side);
  [[nodiscard]] std::optional<std::uint64_t> page_to_break(Channel& channel, const Record& record,
                                                           const Judgement& judgement, std::uint64_t bytes);
  void refuse_pull(Channel& channel, const Record& record, const Judgement& judgement, Connection& connection,
                   std::size_t side);
  void pull_withdrawn(Channel& channel, const Record& record, const Judgement& judgement, std::uint64_t bytes);
  void pull_from_stranger(Channel& channel, const Record& record, const Judgement& judgement, std::uint64_t bytes);

  // ---- what no engine wrote (ring_run_hostile.cpp)
  void inject(transport::faults::Packet packet, const wire::Headers& headers, std::uint32_t bytes) override;
  Channel& hostile_channel(std::size_t victim, const wire::Gid& sender);
  void put(Channel& channel, const Label& label, const wire::Headers& headers, std::uint32_t bytes, bool pulled);
  [[nodiscard]] transport::TxDesc nowhere(const wire::Headers& headers, std::uint32_t bytes);
  void publish_by_hand(Channel& channel, Record record);
  void damage(RingSlot slot);
  void garble_words(Channel& channel);
  void rewrite_what_is_pulled();
  void forge_nowhere();

  RingWorkspace& points_;
  bool mixed_ = false;              ///< what goes to a host with a higher number goes in packets
  bool stalls_ = false;             ///< hosts stop taking records for so long that rings are full to the last slot
  std::uint32_t inline_bytes_ = 0;  ///< payloads up to this size travel inside records
  std::uint32_t reserve_ = 0;       ///< slots that must be free, or the path is blocked
  std::uint32_t pull_bytes_ = 0;    ///< of one step
  std::deque<Channel> channels_;
  /// What the hosts took back.
  std::array<transport::Withdrawals, transport::faults::Adversary::kMaxHosts> withdrawals_{};
  std::array<Sleeper, transport::faults::Adversary::kMaxHosts> sleepers_{};
  std::array<LocalLinkCounters, transport::faults::Adversary::kMaxHosts> counters_{};
};

}  // namespace tensorwire::softhca::faults
