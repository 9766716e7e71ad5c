// The network that means harm: it holds the packets under way and decides, from the seed, which are lost, doubled,
// overtaken, replayed, corrupted or cut. Links can be down, in both directions or in one.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "hits.hpp"
#include "packet.hpp"
#include "scenario.hpp"

namespace tensorwire::transport::faults {

class Adversary {
 public:
  static constexpr std::size_t kMaxHosts = 4;

  Adversary(const Scenario& scenario, Random& random, Hits& hits) : scenario_(scenario), random_(random), hits_(hits) {}

  /// A packet leaves host `from` at `departure`.
  void send(std::size_t from, Packet packet, Ps departure);
  /// A packet arrives at `arrival`, whatever the network is like.
  void inject(Packet packet, Ps arrival);
  [[nodiscard]] Ps next_arrival() const noexcept { return heap_.empty() ? kNever : heap_.front().arrival; }
  Packet take();

  void cut_link(std::size_t from, std::size_t to, Ps until) noexcept { down_until_[from][to] = until; }
  /// From now on nothing is harmed any more.
  void calm() noexcept;

  [[nodiscard]] std::vector<std::byte> take_buffer();
  void give_buffer(std::vector<std::byte> buffer) { spare_.push_back(std::move(buffer)); }

 private:
  void corrupt(Packet& packet);
  [[nodiscard]] Packet copy(const Packet& packet);
  static bool later(const Packet& a, const Packet& b) noexcept {
    return a.arrival != b.arrival ? a.arrival > b.arrival : a.order > b.order;
  }

  const Scenario& scenario_;
  Random& random_;
  Hits& hits_;
  bool calm_ = false;
  std::array<std::array<Ps, kMaxHosts>, kMaxHosts> down_until_{};
  std::vector<Packet> heap_;
  std::uint64_t order_ = 0;
  std::vector<std::vector<std::byte>> spare_;
};

}  // namespace tensorwire::transport::faults
