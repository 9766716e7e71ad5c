// What a communicator is made of. Internal to communicator*.cpp, one job each: set-up, operations, exchange, failure;
// communicator.cpp has the rest.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "base/mapped_memory.hpp"
#include "base/stream_copy.hpp"
#include "bootstrap/group.hpp"
#include "bootstrap/meeting_places.hpp"
#include "comm/activity_board.hpp"
#include "comm/communicator.hpp"
#include "comm/mapped_peers.hpp"
#include "comm/observe/observer.hpp"
#include "comm/observe/traced_actions.hpp"
#include "comm/program_cache.hpp"
#include "comm/staging.hpp"
#include "comm/testimony.hpp"

namespace tensorwire::comm {

class Communicator::State final : public TracedActions {
 public:
  /// Collective over the group. @throws Error.
  State(bootstrap::Group& group, const CommOptions& options);
  ~State() override;

  // The runner's way out.
  bool write(const WriteRequest& request) noexcept override;
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) noexcept override {
    if (options_.moves_only) return;
    if (bytes >= kWorthStreaming && link_->streams(to)) return TracedActions::copy_past_caches(from, to, bytes);
    TracedActions::copy(from, to, bytes);
  }
  void reduce(const collective::Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
              std::byte* second_output, std::size_t bytes) noexcept override {
    collective::Reduction how = what;
    how.stream_second = bytes >= kWorthStreaming && link_->streams(second_output);
    TracedActions::reduce(how, operands, output, second_output, bytes);
  }

  bool begin(const Call& call) noexcept;
  bool begin(std::span<const Transfer> transfers) noexcept;
  [[nodiscard]] Progress advance() noexcept;
  /// Waits for the operation under way.
  bool finish() noexcept;
  [[nodiscard]] std::optional<std::string> argument_problem(const Call& call) const;
  [[nodiscard]] collective::Extent extent_of(const Call& call) const;
  [[nodiscard]] std::optional<std::string> argument_problem(const Transfer& transfer) const;
  bool register_output(void* address, std::size_t bytes) noexcept;
  bool register_buffer(const void* address, std::size_t bytes) noexcept;
  void abort(const std::string& reason) noexcept;
  void retire(const std::string& why) noexcept;
  [[nodiscard]] CommStats stats() const;
  [[nodiscard]] collective::RunnerCounters counters() const noexcept;
  [[nodiscard]] std::string describe() const;

  [[nodiscard]] const CommError* error() const noexcept { return error_ ? &*error_ : nullptr; }
  [[nodiscard]] bootstrap::Group& group() const noexcept { return *group_; }
  [[nodiscard]] Observer& observer() noexcept { return *observer_; }
  [[nodiscard]] Link& link() const noexcept { return *link_; }
  [[nodiscard]] const collective::RunnerConfig& config() const noexcept { return config_; }
  [[nodiscard]] const CommOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::uint64_t life() const noexcept { return meeting_places_ ? meeting_places_->life() : 0; }
  [[nodiscard]] const std::shared_ptr<const bootstrap::MeetingPlaces>& meeting_places() const noexcept {
    return meeting_places_;
  }

 private:
  /// The operation under way, or the last one.
  struct Operation {
    collective::Collective collective = collective::Collective::kAllReduce;
    bool under_way = false;
    const CachedPrograms* programs = nullptr;  ///< null for an exchange, which is made of streams_
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::uint32_t input_key = 0;
    std::uint32_t output_key = 0;
    collective::OutputWindow output_window = {};
    std::byte* staged_for = nullptr;  ///< where the staged output belongs; null: it is not staged
    std::uint64_t staged_bytes = 0;
    std::uint64_t segments_begun = 0;
    std::uint64_t last_segment = 0;  ///< the runner's count when all are complete
    std::uint64_t bytes = 0;         ///< of the user's tensor
    std::uint64_t observed = 0;
    std::uint32_t idle_polls = 0;
    bool credit_told = false;
    Ps idle_since = 0;  ///< when the wait began; 0: not waiting
    Ps deadline = kNever;
    Ps warn_at = kNever;
    Ps probe_at = kNever;  ///< when the transport of the peer that is waited for is asked for a sign of life
    Ps look_at = kNever;   ///< when it is told anew, to those who ask, who is waited for
    Ps ask_at = kNever;    ///< when all ranks are asked what they are doing
    Ps judge_at = kNever;  ///< when their answers should be here
    bool judged = false;   ///< they were once: who had not been in the operation then has had time to come
  };

  /// Whom the other ranks hear of when this one fails.
  enum class Tell : std::uint8_t {
    kNobody,       ///< they know
    kSelf,         ///< this rank gives up
    kAccused,      ///< the rank that is to blame
    kSelfAccused,  ///< this rank is to blame
  };

  // communicator_setup.cpp
  void agree_on_options() const;
  /// Thresholds that were not asked for come from rank 0's tune file, if it knows this topology.
  void apply_tuning();
  void note_failed_group() noexcept;
  /// But for the scratch memory.
  [[nodiscard]] LinkSetup link_setup() const;
  /// That one sequence may have from a peer.
  [[nodiscard]] std::uint32_t most_messages() const noexcept;
  void set_up_link();
  [[nodiscard]] MappedWish mapped_wish() const;
  [[nodiscard]] std::unique_ptr<Link> make_verbs_link(const LinkSetup& setup);
  [[nodiscard]] unsigned count_local_ranks() const;

  /// One message of an exchange.
  struct Stream {
    bool sends = false;
    std::uint32_t peer = 0;
    const CachedPrograms* programs = nullptr;
    std::byte* buffer = nullptr;
    std::uint32_t key = 0;                 ///< of a sender's buffer
    collective::OutputWindow window = {};  ///< of a receiver's, where the sender writes into it
    std::byte* staged_for = nullptr;       ///< where what was received belongs; null: it is not staged
    std::uint64_t staged_at = 0;
    std::uint32_t sequence = 0;  ///< among the messages from the one rank to the other
    std::uint64_t segments_begun = 0;
    std::uint64_t segments_opened = 0;  ///< where programs open: these, of which some have begun
    std::uint64_t first_opening = 0;    ///< of segment 0; the others' follow

    [[nodiscard]] bool opens() const noexcept { return programs->programs.front().opens(); }
    [[nodiscard]] bool all_begun() const noexcept { return segments_begun == programs->cut.segments; }
    [[nodiscard]] bool all_opened() const noexcept { return segments_opened == programs->cut.segments; }
  };

  /// Where those of an exchange go that cannot be registered.
  struct Staged {
    std::uint64_t used = 0, room = 0;  ///< bytes
  };

  // communicator_operations.cpp
  /// False: refused or failed.
  bool may_begin(collective::Collective collective) noexcept;
  /// Bytes of the user's tensors on this rank.
  void register_memory(std::uint64_t input_bytes, std::uint64_t output_bytes);
  /// @param number and @param count as its signature has them
  void observe(const collective::Shape& shape, collective::Algorithm algorithm, std::uint64_t number,
               std::uint64_t count) noexcept;
  [[nodiscard]] bool is_over() const noexcept;
  void end_operation() noexcept;

  // communicator_exchange.cpp
  [[nodiscard]] std::optional<std::string> problem_of_exchange(std::span<const Transfer> transfers) const;
  void add_stream(const Transfer& transfer);
  void find_source(Stream& stream, std::uint64_t bytes);
  void find_target(Stream& stream, std::uint64_t bytes);
  static void copy_to_self(std::span<const Transfer> transfers, std::uint32_t self) noexcept;
  [[nodiscard]] collective::Segment segment_of(const Stream& stream, std::uint64_t number) const noexcept;
  void begin_stream_segments() noexcept;
  void open_segments(Stream& stream) noexcept;
  void begin_opened_segments(Stream& stream) noexcept;
  void begin_segments_through_slots(Stream& stream) noexcept;
  /// All messages are through.
  void end_streams() noexcept;
  /// The exchange failed, and peers that know nothing of it may still write: they can no more.
  void close_windows() noexcept;
  [[nodiscard]] const Stream* unfinished_stream() const noexcept;

  /// Begins what can be, and gives back credit.
  void begin_segments() noexcept;
  void take_events(int count) noexcept;
  void look_once_more() noexcept;

  // communicator.cpp
  bool post(const WriteRequest& request) noexcept;

  // communicator_watch.cpp
  /// Looks at what polls do not show: abort, dead ranks, the clock. False: failed.
  bool watch() noexcept;
  void start_watch(Ps now) noexcept;
  /// Makes known whom this rank waits for.
  void look_around(Ps now) noexcept;
  /// A roll call; the answers are there at judge_at.
  void ask_all_ranks(Ps now) noexcept;
  /// Until somebody says what it heard of a rank, or the bound has passed.
  void hear_of(int rank, Ps bound) noexcept;
  /// The same, awaited: until all have answered and the scales cannot tip any more, the group fails or the bound
  /// has passed.
  void hear_all_ranks(Ps bound) noexcept;
  /// What all ranks said, by rank; of this one, what it would say.
  [[nodiscard]] std::vector<Testimony> testimonies() const;
  [[nodiscard]] std::string last_act_of(int rank) const;
  void warn_of_straggler(Ps now) noexcept;
  [[nodiscard]] bool abort_is_asked() const noexcept {
    return options_.abort_flag != nullptr && options_.abort_flag->load(std::memory_order_relaxed);
  }
  /// As Runner::waiting_for, and for messages that cannot even begin.
  [[nodiscard]] collective::Runner::Waiting waiting_for() const noexcept;
  [[nodiscard]] std::string waiting_text() const;
  /// "all-reduce 17"
  [[nodiscard]] std::string operation_name() const;

  // communicator_failure.cpp
  bool refuse(const std::string& why) noexcept;
  /// @param peer the rank to blame, -1 for none
  bool fail(CommErrorKind kind, int peer, const std::string& why, Tell tell = Tell::kSelf) noexcept;
  bool fail_by_group() noexcept;
  bool fail_by_link() noexcept;
  bool fail_by_runner() noexcept;
  bool fail_by_timeout() noexcept;
  /// Whether the ranks' own words show a disagreement; then this rank has failed by it.
  /// @param once_settled not while ranks that have yet to come may tip the scales
  bool fail_by_testimony(Tell tell, bool once_settled = false) noexcept;
  /// Waits until no write reads user memory any more, a second at most. False: some still do.
  bool drain_user_writes() noexcept;

  bootstrap::Group* group_;
  CommOptions options_;
  int exceptions_at_birth_;
  collective::RunnerConfig config_;
  std::shared_ptr<const bootstrap::MeetingPlaces> meeting_places_;
  std::optional<MappedMemory> scratch_;  ///< unless the link has it, in memory that peers map
  std::unique_ptr<Link> link_;
  std::optional<Observer> observer_;
  ActivityBoard board_;
  Ps asked_ = 0;  ///< the last roll call of this rank
  std::optional<collective::Runner> runner_;
  std::optional<ProgramCache> programs_;
  std::array<LinkEvent, 32> events_;
  Staging staging_;
  Operation operation_;
  std::vector<Stream> streams_;  ///< of the exchange under way, in the order of the call
  Staged staged_sources_, staged_targets_;
  std::vector<std::uint32_t> sent_to_, got_from_;  ///< messages of exchanges, by peer
  /// [2 * peer + sends], while streams are gone through: what later ones must not overtake.
  struct Turn {
    bool to_open = true;   ///< no earlier stream has still to take sequences, or invitations, in order
    bool to_begin = true;  ///< no earlier stream has still to begin what must be begun in order
  };
  std::vector<Turn> turns_;
  std::uint32_t operation_sequence_ = 0;  ///< collectives: the same on all ranks
  std::uint64_t exchanges_ = 0;
  std::uint64_t bytes_moved_ = 0;
  std::uint32_t last_arrival_peer_ = 0;
  std::uint32_t user_writes_ = 0;  ///< writes sourced from user memory that are not done
  std::optional<CommError> error_;
  bool broken_ = false;  ///< the error is sticky
  std::atomic<bool> abort_requested_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
};

}  // namespace tensorwire::comm
