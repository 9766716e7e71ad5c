#include "host/parse/switch_counters.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "host/parse/text.hpp"

namespace tensorwire::host {
namespace {

using Words = std::vector<std::string_view>;

/// "1,234,567"; "N/A" is no number.
std::optional<std::uint64_t> number_of(std::string_view word) {
  std::string digits;
  for (const char c : word) {
    if (c != ',') digits.push_back(c);
  }
  return number_in<std::uint64_t>(digits);
}

/// Where a queue table has what; set by its head.
struct QueueColumns {
  std::size_t count = 0, queue = 0, packets = 0, bytes = 0, dropped = 0;

  /// Of a line like "Port TxQ Counter/pkts Counter/bytes Drop/pkts Drop/bytes".
  static std::optional<QueueColumns> of(const Words& head) {
    const auto at = [&](std::string_view name) {
      return static_cast<std::size_t>(std::ranges::find(head, name) - head.begin());
    };
    QueueColumns columns{head.size(), std::min(at("TxQ"), at("Queue")), at("Counter/pkts"), at("Counter/bytes"),
                         at("Drop/pkts")};
    const bool whole = !head.empty() && head[0] == "Port" && columns.queue < head.size() &&
                       columns.packets < head.size() && columns.bytes < head.size();
    return whole ? std::optional{columns} : std::nullopt;
  }
};

enum class Table : std::uint8_t { kNone, kQueues, kPfcReceived, kPfcSent };

class Reader {
 public:
  void take(const Words& words) {
    if (words.empty()) return;
    if (words[0] == "Port") {
      begin_table(words);
    } else if (table_ == Table::kQueues) {
      take_queue(words);
    } else if (table_ != Table::kNone) {
      take_pfc(words, table_ == Table::kPfcSent ? counters_.pfc_sent : counters_.pfc_received);
    }
  }
  [[nodiscard]] SwitchCounters done() { return std::move(counters_); }

 private:
  void begin_table(const Words& head) {
    table_ = Table::kNone;
    if (head.size() == kPriorities + 2 && head[2] == "PFC0") {  // "Port Rx PFC0 PFC1 ..."
      table_ = head[1] == "Tx" ? Table::kPfcSent : head[1] == "Rx" ? Table::kPfcReceived : Table::kNone;
    } else if (const auto columns = QueueColumns::of(head)) {
      table_ = Table::kQueues;
      columns_ = *columns;
    }
  }

  void take_queue(const Words& words) {
    if (words.size() != columns_.count) return;
    const auto packets = number_of(words[columns_.packets]);
    const auto bytes = number_of(words[columns_.bytes]);
    if (!packets || !bytes) return;
    const auto dropped = columns_.dropped < words.size() ? number_of(words[columns_.dropped]) : std::nullopt;
    counters_.queues[{std::string{words[0]}, std::string{words[columns_.queue]}}] = {*packets, *bytes,
                                                                                     dropped.value_or(0)};
  }

  static void take_pfc(const Words& words, PfcFrames& frames) {
    if (words.size() != kPriorities + 1) return;
    std::array<std::uint64_t, kPriorities> row{};
    for (unsigned p = 0; p < kPriorities; ++p) {
      const auto number = number_of(words[p + 1]);
      if (!number) return;
      row[p] = *number;
    }
    frames[std::string{words[0]}] = row;
  }

  Table table_ = Table::kNone;
  QueueColumns columns_;
  SwitchCounters counters_;
};

}  // namespace

SwitchCounters parse_switch_counters(std::string_view text) {
  Reader reader;
  for (const std::string_view line : lines_of(text)) reader.take(words_of(line));
  return reader.done();
}

}  // namespace tensorwire::host
