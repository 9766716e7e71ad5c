// Roll calls: who asks, who answers, and what came back. Rank 0 passes questions and answers on, so one question makes
// all ranks know what all ranks do. The watcher answers: a rank whose application is busy or hangs answers too, one
// whose process is stopped does not.
#include "base/clock.hpp"
#include "bootstrap/hub.hpp"

namespace tensorwire::bootstrap {

namespace {

/// Many ranks may begin to wonder at the same time: answers that are so fresh serve all of them.
constexpr Ps kFreshEnough = 20 * kMillisecond;

}  // namespace

void Hub::set_reporter(std::uint16_t topic, Reporter reporter) {
  const Lock lock{mutex_};
  topics_[topic].reporter = std::move(reporter);
}

void Hub::roll_call(std::uint16_t topic) noexcept try {
  const Lock lock{mutex_};
  if (leaving_ || !is_due(topic)) return;
  if (serves()) return ask_all(topic);
  const EncodedFrame question = encode_frame(FrameType::kRollCall, encode(RollCall{topic}));
  send_to_all(question);
  if (centre_is_silent_) {
    tell_by_lines(question);
  } else {
    expect_answer(kPatience);
  }
} catch (...) {
  // Out of memory: nobody answers, which callers are prepared for.
}

bool Hub::is_due(std::uint16_t topic) {
  const Ps now = monotonic_now();
  Ps& asked = topics_[topic].asked;
  if (asked != 0 && now - asked < kFreshEnough) return false;
  asked = now;
  return true;
}

std::vector<Report> Hub::reports(std::uint16_t topic) const {
  const Lock lock{mutex_};
  const auto found = topics_.find(topic);
  std::vector<Report> reports = found != topics_.end() ? found->second.reports : std::vector<Report>{};
  reports.resize(hosts_.size());
  return reports;
}

Bytes Hub::own_report(std::uint16_t topic) const {
  const auto found = topics_.find(topic);
  return found != topics_.end() && found->second.reporter ? found->second.reporter() : Bytes{};
}

void Hub::ask_all(std::uint16_t topic) {
  send_to_all(encode_frame(FrameType::kRollCall, encode(RollCall{topic})));
  send_to_all(encode_frame(FrameType::kReport, encode(ReportOf{topic, 0, own_report(topic)})));
}

void Hub::answer(Peer& asker, const RollCall& question) {
  const ReportOf report{question.topic, static_cast<std::uint32_t>(rank_), own_report(question.topic)};
  send(asker, encode_frame(FrameType::kReport, encode(report)));
}

void Hub::take_report(ReportOf report, const Peer* from) {
  if (serves()) send_to_all(encode_frame(FrameType::kReport, encode(report)), from);
  std::vector<Report>& reports = topics_[report.topic].reports;
  reports.resize(hosts_.size());
  reports[report.rank] = {std::move(report.body), monotonic_now()};
}

}  // namespace tensorwire::bootstrap
