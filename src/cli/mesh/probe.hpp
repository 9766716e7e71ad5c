// One end of a measurement between two ranks: a queue pair over one rail, a ping-pong of 8 bytes, and large writes.
// Rank 0 says what comes next; the bytes go between the two only. Every wait has a bound of its own, below the one that
// rank 0 waits for the answer.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/time.hpp"
#include "cli/mesh/rails.hpp"

namespace tensorwire::cli {

/// What an operation takes at most before it answers, besides the time that it measures for.
inline constexpr Ps kProbeBound = 4 * kSecond;

class Probe {
 public:
  explicit Probe(std::vector<Rail> rails);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  [[nodiscard]] const std::vector<Rail>& rails() const noexcept { return rails_; }

  /// "open" {rail, rank, peer} -> {address, target, key}; "connect" {address, target, key}; "ping" {seconds} ->
  /// {p50_us, p99_us, count}; "echo" {seconds}; "write" {seconds} -> {gb_s}; "close". @throws Error
  nlohmann::json handle(const nlohmann::json& request);

 private:
  class Ends;     // the registered memory of a rail
  class Pairing;  // the queue pair to the present peer

  std::vector<Rail> rails_;
  std::vector<std::unique_ptr<Ends>> ends_;  ///< by rail, made when first used
  std::unique_ptr<Pairing> pairing_;
};

}  // namespace tensorwire::cli
