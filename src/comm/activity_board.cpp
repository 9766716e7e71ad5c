#include "comm/activity_board.hpp"

#include <sched.h>

#include <algorithm>

#include "base/bytes.hpp"

namespace tensorwire::comm {

namespace {

constexpr int kTries = 1000;  // the writer is at work for nanoseconds, unless it was descheduled there

using SignatureBytes = std::array<std::byte, collective::kSignatureBytes>;

}  // namespace

void ActivityBoard::begin(const collective::Signature& signature, std::uint64_t bytes, Ps now) noexcept {
  SignatureBytes packed;
  store(signature, packed.data());
  const Change change{*this};
  const std::uint64_t number = begun_.load(std::memory_order_relaxed);
  Entry& entry = recent_[number % recent_.size()];
  put(entry.low, load_le64(packed.data()));
  put(entry.high, load_le64(packed.data() + sizeof(std::uint64_t)));
  put(begun_, number + 1);
  put(state_, RankReport::State::kInOperation);
  put(bytes_, bytes);
  put(since_, now);
  put(subject_, -1);
}

void ActivityBoard::change(RankReport::State state, Ps now) noexcept {
  const Change change{*this};
  put(state_, state);
  put(since_, now);
}

void ActivityBoard::set_subject(int rank, const collective::Heard& heard) noexcept {
  const Change change{*this};
  put(subject_, rank);
  put(heard_, heard.any ? std::uint64_t{static_cast<unsigned>(heard.collective)} << 32 | heard.number : 0);
}

RankReport ActivityBoard::read(Ps now) const {
  for (int tries = 0;; ++tries) {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    RankReport report = read_once(now);
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) return report;
    if (tries != kTries) {
      sched_yield();
      continue;
    }
    // Rather no signatures than mixed ones, which would look like a disagreement.
    report.recent.clear();
    return report;
  }
}

RankReport ActivityBoard::read_once(Ps now) const {
  RankReport report;
  report.state = get(state_);
  report.bytes = get(bytes_);
  report.ago = std::max<Ps>(now - get(since_), 0);
  report.subject = get(subject_);
  const std::uint64_t heard = get(heard_);
  report.heard = {heard != 0, static_cast<collective::Collective>(heard >> 32), static_cast<std::uint32_t>(heard)};
  const std::uint64_t begun = get(begun_);
  for (std::uint64_t number = begun - std::min<std::uint64_t>(begun, recent_.size()); number != begun; ++number) {
    const Entry& entry = recent_[number % recent_.size()];
    SignatureBytes packed;
    store_le64(packed.data(), get(entry.low));
    store_le64(packed.data() + sizeof(std::uint64_t), get(entry.high));
    report.recent.push_back(collective::load_signature(packed.data()));
  }
  return report;
}

}  // namespace tensorwire::comm
