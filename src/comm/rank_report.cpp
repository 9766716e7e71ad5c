#include "comm/rank_report.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace tensorwire::comm {

namespace {

// Little endian, as signatures are: [0] state  [1] what was heard: 0 nothing, else its collective
// [4,8) subject + 1  [8,12) number of what was heard  [12,16) operations that follow  [16,24) bytes  [24,32) ago in ns
// [32,40) life
constexpr std::size_t kStateAt = 0;
constexpr std::size_t kHeardAt = 1;
constexpr std::size_t kSubjectAt = 4;
constexpr std::size_t kHeardNumberAt = 8;
constexpr std::size_t kRecentAt = 12;
constexpr std::size_t kBytesAt = 16;
constexpr std::size_t kAgoAt = 24;
constexpr std::size_t kLifeAt = 32;
constexpr std::size_t kHeaderBytes = 40;

}  // namespace

std::vector<std::byte> to_bytes(const RankReport& report) {
  const std::size_t count = std::min(report.recent.size(), RankReport::kMostRecent);
  std::vector<std::byte> bytes(kHeaderBytes + count * collective::kSignatureBytes);
  bytes[kStateAt] = static_cast<std::byte>(report.state);
  bytes[kHeardAt] = report.heard.any ? static_cast<std::byte>(report.heard.collective) : std::byte{0};
  store_le32(bytes.data() + kSubjectAt, static_cast<std::uint32_t>(report.subject + 1));
  store_le32(bytes.data() + kHeardNumberAt, report.heard.number);
  store_le32(bytes.data() + kRecentAt, static_cast<std::uint32_t>(count));
  store_le64(bytes.data() + kBytesAt, report.bytes);
  store_le64(bytes.data() + kLifeAt, report.life);
  store_le64(bytes.data() + kAgoAt, static_cast<std::uint64_t>(report.ago / kNanosecond));
  for (std::size_t i = 0; i < count; ++i) {
    store(report.recent[report.recent.size() - count + i],
          bytes.data() + kHeaderBytes + i * collective::kSignatureBytes);
  }
  return bytes;
}

std::optional<RankReport> report_from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  RankReport report;
  const auto state = std::to_integer<unsigned>(bytes[kStateAt]);
  const auto heard = std::to_integer<unsigned>(bytes[kHeardAt]);
  const std::uint32_t subject = load_le32(bytes.data() + kSubjectAt);
  const std::uint32_t count = load_le32(bytes.data() + kRecentAt);
  const std::uint64_t ago = load_le64(bytes.data() + kAgoAt);
  const bool sound = state <= static_cast<unsigned>(RankReport::State::kFailed) &&
                     heard <= static_cast<unsigned>(collective::Collective::kBarrier) &&
                     subject <= collective::kMaxRanks && count <= RankReport::kMostRecent &&
                     ago <= static_cast<std::uint64_t>(kNever / kNanosecond) &&
                     bytes.size() == kHeaderBytes + count * collective::kSignatureBytes;
  if (!sound) return std::nullopt;
  report.state = static_cast<RankReport::State>(state);
  report.heard = {heard != 0, static_cast<collective::Collective>(heard == 0 ? 1 : heard),
                  load_le32(bytes.data() + kHeardNumberAt)};
  report.subject = static_cast<int>(subject) - 1;
  report.bytes = load_le64(bytes.data() + kBytesAt);
  report.life = load_le64(bytes.data() + kLifeAt);
  report.ago = static_cast<Ps>(ago) * kNanosecond;
  for (std::uint32_t i = 0; i < count; ++i) {
    report.recent.push_back(collective::load_signature(bytes.data() + kHeaderBytes + i * collective::kSignatureBytes));
  }
  return report;
}

}  // namespace tensorwire::comm
