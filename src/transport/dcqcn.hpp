// DCQCN, the congestion control of RoCEv2 (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM
// 2015), as two small machines that know nothing of packets: CnpPacer is the notification point of a queue pair (when
// to tell the peer that its packets were marked), RateLimiter its reaction point (how fast to send after being told).
// Owned by a queue pair's Congestion (congestion.hpp). Integer arithmetic only: the same run on every machine.
#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace tensorwire::transport {

enum class DcqcnVariant : std::uint8_t {
  kPaper,  ///< of the paper: cut at each CNP; increase by timer and byte counter
  kNic,    ///< as network cards do: periodic checks whether a CNP came; increase by timer alone
};

/// Rates in bits per second. The defaults are the paper's for 40 Gb/s.
struct DcqcnConfig {
  bool enabled = false;
  DcqcnVariant variant = DcqcnVariant::kPaper;
  std::uint64_t line_rate = 40'000'000'000;
  std::uint64_t min_rate = 10'000'000;
  std::uint64_t additive_increase = 40'000'000;
  std::uint64_t hyper_increase = 400'000'000;
  std::uint32_t gain = 4;  ///< g of the estimate alpha, in 1/1024
  std::uint32_t fast_recovery_steps = 5;
  Ps alpha_period = 55 * kMicrosecond;
  Ps increase_period = 55 * kMicrosecond;
  Ps decrease_period = 4 * kMicrosecond;      ///< kNic only
  std::uint64_t increase_bytes = 10'000'000;  ///< kPaper only
  Ps cnp_interval = 50 * kMicrosecond;        ///< notification point: at most one CNP in this time
  bool trailing_cnp = true;                   ///< notification point: marks within the interval are told at its end
  std::uint8_t cnp_traffic_class = 48U << 2;  ///< IP ToS of a CNP: DSCP 48, as network cards have it
  /// What may leave at once after a pause in sending. One packet paces exactly; an adapter in real time, whose timers
  /// are coarse and whose batches are long, sets more.
  std::uint64_t burst_bytes = 4096;
};

/// The paper's parameters; increases scale with the line rate as its 40 Mb/s do with 40 Gb/s.
[[nodiscard]] DcqcnConfig dcqcn_paper(std::uint64_t line_rate) noexcept;
/// A network card's manner with the settings that Li et al. scale by line rate (HPCC, SIGCOMM 2019, section 5.1).
[[nodiscard]] DcqcnConfig dcqcn_nic(std::uint64_t line_rate) noexcept;

/// Notification point: one CNP at the first marked packet, then at most one an interval. In the paper (section 3.1) the
/// marks within an interval are told at its end, whether or not another marked packet follows; without `trailing_cnp`
/// the first marked packet after the interval tells of them.
class CnpPacer {
 public:
  enum class Verdict : std::uint8_t {
    kNow,     ///< a CNP is due
    kLater,   ///< one will be due at deadline(), which was not set before
    kNothing  ///< it will be told with others, or not at all
  };
  /// A marked packet arrived.
  [[nodiscard]] Verdict on_marked(const DcqcnConfig& config, Ps now) noexcept;
  /// The end of the interval; only after kLater.
  [[nodiscard]] Ps deadline() const noexcept { return next_; }
  /// The deadline has passed. True when a CNP is due; false when a marked packet came first, and had it.
  [[nodiscard]] bool on_deadline(const DcqcnConfig& config, Ps now) noexcept;

 private:
  Ps next_ = -kNever;     ///< none before
  bool pending_ = false;  ///< marks that no CNP has told of yet
};

/// Reaction point. Inactive (no state, no cost) until the first CNP and again once it is back at line rate. Timers are
/// evaluated lazily: a call brings them up to `now`; while nothing is sent they run for at most
/// `fast_recovery_steps` periods, so that silence is not taken for a free path.
class RateLimiter {
 public:
  [[nodiscard]] bool active() const noexcept { return active_; }
  void on_cnp(const DcqcnConfig& config, Ps now) noexcept;
  /// A packet of so many bytes on the wire left. @return when the next one may.
  Ps on_sent(const DcqcnConfig& config, std::uint32_t bytes, Ps now) noexcept;

  /// As of the last call.
  [[nodiscard]] std::uint64_t rate() const noexcept { return rate_; }
  [[nodiscard]] std::uint64_t target() const noexcept { return target_; }
  /// The estimate of congestion, in kAlphaOne-ths.
  [[nodiscard]] std::uint64_t alpha() const noexcept { return alpha_; }
  static constexpr std::uint64_t kAlphaOne = 1ULL << 24;

 private:
  void activate(const DcqcnConfig& config, Ps now) noexcept;
  void run_clock(const DcqcnConfig& config, Ps now) noexcept;
  void fire(const DcqcnConfig& config) noexcept;
  void on_alpha_timer(const DcqcnConfig& config) noexcept;
  void on_decrease_timer(const DcqcnConfig& config) noexcept;
  void cut(const DcqcnConfig& config, Ps at) noexcept;
  void increase(const DcqcnConfig& config) noexcept;
  void raise_target(const DcqcnConfig& config) noexcept;
  void raise_alpha(const DcqcnConfig& config) noexcept;
  void decay_alpha(const DcqcnConfig& config) noexcept;

  bool active_ = false;
  bool cnp_since_alpha_ = false;     ///< kNic
  bool cnp_since_decrease_ = false;  ///< kNic
  std::uint64_t rate_ = 0;
  std::uint64_t target_ = 0;
  std::uint64_t alpha_ = 0;
  std::uint32_t timer_steps_ = 0;
  std::uint32_t byte_steps_ = 0;
  std::uint64_t bytes_ = 0;

  Ps next_allowed_ = 0;
  // The clock of the timers stands still from horizon_ until something is sent.
  Ps horizon_ = 0;
  Ps seen_ = 0;   ///< real time of the last call
  Ps clock_ = 0;  ///< time that the timers have seen
  Ps next_alpha_ = kNever;
  Ps next_decrease_ = kNever;
  Ps next_increase_ = kNever;
};

}  // namespace tensorwire::transport
