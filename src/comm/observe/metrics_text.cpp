#include "comm/observe/metrics_text.hpp"

#include <fmt/format.h>

#include <functional>

#include "comm/observe/device_counters.hpp"

namespace tensorwire::comm {

namespace {

std::string seconds(Ps duration) {
  return fmt::format("{:.9g}", static_cast<double>(duration) / static_cast<double>(kSecond));
}

/// A label's value: backslash, quote and newline are escaped.
std::string label_text(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

class Text {
 public:
  explicit Text(const Identity& who)
      : labels_(fmt::format(R"(rank="{}",communicator="{}")", who.rank, who.communicator)) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  void sample(std::string_view name, const std::string& more_labels, const std::string& value) {
    text_ += fmt::format("{}{{{}{}{}}} {}\n", name, labels_, more_labels.empty() ? "" : ",", more_labels, value);
  }
  void sample(std::string_view name, const std::string& more_labels, std::uint64_t value) {
    sample(name, more_labels, std::to_string(value));
  }
  [[nodiscard]] std::string take() && { return std::move(text_); }

 private:
  std::string labels_, text_;
};

void write_sizes(Text& text, const std::vector<SizeStats>& sizes) {
  const auto labels = [](const SizeStats& size) {
    return fmt::format(R"(collective="{}",size="{}")", name_of(size.collective), size.up_to_bytes);
  };
  text.family("tensorwire_operations_total", "counter",
              "Operations that ended well, by collective and size (bytes, the upper end of a power of two).");
  for (const SizeStats& size : sizes) text.sample("tensorwire_operations_total", labels(size), size.operations);
  text.family("tensorwire_operation_bytes_total", "counter", "Bytes of user tensors in these operations.");
  for (const SizeStats& size : sizes) text.sample("tensorwire_operation_bytes_total", labels(size), size.bytes);
  text.family("tensorwire_operation_seconds", "summary", "How long an operation took, from the call to its return.");
  for (const SizeStats& size : sizes) {
    text.sample("tensorwire_operation_seconds", labels(size) + R"(,quantile="0.5")", seconds(size.p50));
    text.sample("tensorwire_operation_seconds", labels(size) + R"(,quantile="0.99")", seconds(size.p99));
    text.sample("tensorwire_operation_seconds_sum", labels(size), seconds(size.total));
    text.sample("tensorwire_operation_seconds_count", labels(size), size.operations);
  }
  text.family("tensorwire_operation_longest_seconds", "gauge", "The longest operation so far.");
  for (const SizeStats& size : sizes) {
    text.sample("tensorwire_operation_longest_seconds", labels(size), seconds(size.max));
  }
}

void write_peers(Text& text, const std::vector<PeerReport>& peers) {
  struct Family {
    const char* name;
    const char* help;
    std::function<std::string(const PeerReport&)> value;
  };
  const auto whole = [](std::uint64_t PeerStats::*member) {
    return [member](const PeerReport& peer) { return std::to_string(peer.traffic.*member); };
  };
  const Family families[] = {
      {"tensorwire_peer_waited_seconds_total", "Time that operations waited with this peer as the last to come.",
       [](const PeerReport& peer) { return seconds(peer.waited); }},
      {"tensorwire_peer_messages_sent_total", "Messages written to the peer.", whole(&PeerStats::messages_sent)},
      {"tensorwire_peer_bytes_sent_total", "Bytes written to the peer.", whole(&PeerStats::bytes_sent)},
      {"tensorwire_peer_messages_received_total", "Messages that came from the peer.",
       whole(&PeerStats::messages_received)},
      {"tensorwire_peer_bytes_received_total", "Bytes that came from the peer.", whole(&PeerStats::bytes_received)},
  };
  for (const Family& family : families) {
    text.family(family.name, "counter", family.help);
    for (const PeerReport& peer : peers) {
      text.sample(family.name, fmt::format(R"(peer="{}",path="{}")", peer.rank, label_text(peer.path)),
                  family.value(peer));
    }
  }
}

}  // namespace

std::string metrics_text(const Identity& who, const MetricsSnapshot& snapshot) {
  Text text{who};
  write_sizes(text, snapshot.sizes);
  write_peers(text, snapshot.peers);

  text.family("tensorwire_retransmissions_total", "counter",
              "Packets that the device sent again or, where it does not count them, the events that made it.");
  text.sample("tensorwire_retransmissions_total", "", retransmissions(snapshot.device));
  text.family("tensorwire_device_events_total", "counter",
              "Counters of the device, by their mlx5 names, since the communicator was made.");
  for (const DeviceCount& count : snapshot.device) {
    text.sample("tensorwire_device_events_total", fmt::format(R"(counter="{}")", label_text(count.name)), count.count);
  }
  text.family("tensorwire_operation_running_seconds", "gauge", "Age of the operation under way; 0 when there is none.");
  text.sample("tensorwire_operation_running_seconds", "", seconds(snapshot.running_since_ago));
  text.family("tensorwire_waiting_for_peer", "gauge", "1 for a peer that the operation under way has long waited for.");
  if (snapshot.straggler) {
    text.sample("tensorwire_waiting_for_peer", fmt::format(R"(peer="{}")", *snapshot.straggler), 1);
  }
  text.family("tensorwire_failed", "gauge", "1 once the communicator has failed.");
  text.sample("tensorwire_failed", "", snapshot.failed ? 1 : 0);
  return std::move(text).take();
}

}  // namespace tensorwire::comm
