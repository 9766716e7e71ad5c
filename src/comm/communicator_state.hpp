// What a communicator is made of. Internal to communicator*.cpp: set-up is in communicator_setup.cpp, operations are in
// communicator.cpp.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "base/mapped_memory.hpp"
#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"
#include "comm/observe/observer.hpp"
#include "comm/observe/traced_actions.hpp"
#include "comm/program_cache.hpp"

namespace tensorwire::comm {

class Communicator::State final : public TracedActions {
 public:
  /// Collective over the group. @throws Error.
  State(bootstrap::Group& group, const CommOptions& options);
  ~State();

  // The runner's way out.
  bool write(const WriteRequest& request) noexcept override;

  bool all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op) noexcept;
  bool register_buffer(const void* address, std::size_t bytes) noexcept;
  void abort(const std::string& reason) noexcept;
  [[nodiscard]] CommStats stats() const;
  [[nodiscard]] std::string describe() const;

  [[nodiscard]] const CommError* error() const noexcept { return error_ ? &*error_ : nullptr; }
  [[nodiscard]] bootstrap::Group& group() const noexcept { return *group_; }
  [[nodiscard]] Link& link() const noexcept { return *link_; }
  [[nodiscard]] const collective::RunnerConfig& config() const noexcept { return config_; }
  [[nodiscard]] const CommOptions& options() const noexcept { return options_; }

 private:
  /// One all-reduce under way.
  struct Operation {
    const CachedPrograms* programs = nullptr;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::uint32_t input_key = 0;
    std::uint64_t segments_begun = 0;
    std::uint64_t last_segment = 0;  ///< the runner's count when all are complete
    Ps idle_since = 0;               ///< when the wait began; 0: not waiting
    Ps deadline = kNever;
    Ps warn_at = kNever;
    Ps probe_at = kNever;  ///< when the transport of the peer that is waited for is asked for a sign of life
  };

  // communicator_setup.cpp
  void agree_on_options() const;
  /// Thresholds that were not asked for come from rank 0's tune file, if it knows this topology.
  void apply_tuning();
  void note_failed_group() noexcept;
  [[nodiscard]] std::unique_ptr<Link> make_link();
  [[nodiscard]] unsigned count_local_ranks() const;

  // communicator.cpp
  [[nodiscard]] std::optional<std::string> argument_problem(const void* in, const void* out, std::size_t count,
                                                            collective::DType dtype, collective::Op op) const;
  bool run(Operation& operation) noexcept;
  bool post(const WriteRequest& request) noexcept;
  /// Begins what can be, and gives back credit.
  void begin_segments(Operation& operation) noexcept;
  void take_events(int count) noexcept;
  void look_once_more() noexcept;
  /// Looks at what polls do not show: abort, dead ranks, the clock. False: failed.
  bool watch(Operation& operation) noexcept;
  [[nodiscard]] bool abort_is_asked() const noexcept {
    return options_.abort_flag != nullptr && options_.abort_flag->load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::string waiting_text() const;

  bool refuse(const std::string& why) noexcept;
  bool fail(CommErrorKind kind, int peer, const std::string& why) noexcept;
  bool fail_by_group() noexcept;
  bool fail_by_link() noexcept;
  bool fail_by_runner() noexcept;
  /// Waits until no write reads user memory any more, a second at most. False: some still do.
  bool drain_user_writes() noexcept;

  bootstrap::Group* group_;
  CommOptions options_;
  int exceptions_at_birth_;
  collective::RunnerConfig config_;
  std::optional<MappedMemory> scratch_;
  std::unique_ptr<Link> link_;
  std::optional<Observer> observer_;
  std::optional<collective::Runner> runner_;
  std::optional<ProgramCache> programs_;
  std::array<LinkEvent, 32> events_;
  std::uint32_t operation_sequence_ = 0;
  std::uint64_t bytes_reduced_ = 0;
  std::uint32_t last_arrival_peer_ = 0;
  std::uint32_t user_writes_ = 0;  ///< writes sourced from user memory that are not done
  std::optional<CommError> error_;
  bool broken_ = false;  ///< the error is sticky
  std::atomic<bool> abort_requested_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
};

}  // namespace tensorwire::comm
