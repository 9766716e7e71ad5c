#include "cli/prove/evidence.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;
using Counts = host::PriorityActivity;

/// In the order in which they are sent.
constexpr std::array kCounts = {&Counts::sent_bytes,      &Counts::received_bytes, &Counts::pauses_sent,
                                &Counts::pauses_received, &Counts::paused_us,      &Counts::discards};

Json json_of(const host::CounterWindow& window) {
  Json rows = Json::array();
  for (const Counts& priority : window.priorities) {
    Json row = Json::array();
    for (const auto count : kCounts) row.push_back(priority.*count ? Json(*(priority.*count)) : Json(nullptr));
    rows.push_back(std::move(row));
  }
  return {{"elapsed", window.elapsed}, {"priorities", std::move(rows)}};
}

host::CounterWindow window_in(const Json& value) {
  host::CounterWindow window;
  window.elapsed = value.at("elapsed").get<Ps>();
  for (std::size_t p = 0; p < window.priorities.size(); ++p) {
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      const Json& count = value.at("priorities").at(p).at(i);
      if (!count.is_null()) window.priorities[p].*kCounts[i] = count.get<std::uint64_t>();
    }
  }
  return window;
}

}  // namespace

std::string to_text(const Evidence& evidence) {
  Json bursts = Json::array();
  for (const host::CounterWindow& window : evidence.bursts) bursts.push_back(json_of(window));
  return Json{{"name", evidence.name},
              {"path", evidence.path},
              {"mtu", evidence.path_mtu},
              {"ipv6", evidence.ipv6},
              {"pfc", evidence.pfc ? Json(evidence.pfc->to_ulong()) : Json(nullptr)},
              {"trusts_dscp", evidence.trust ? Json(*evidence.trust == host::Trust::kDscp) : Json(nullptr)},
              {"idle", json_of(evidence.idle)},
              {"bursts", std::move(bursts)}}
      .dump();
}

Evidence evidence_in(std::span<const std::byte> text) {
  Evidence evidence;
  try {
    const auto* const begin = reinterpret_cast<const char*>(text.data());
    const Json value = Json::parse(begin, begin + text.size());
    evidence.name = value.at("name").get<std::string>();
    evidence.path = value.at("path").get<std::string>();
    evidence.path_mtu = value.at("mtu").get<unsigned>();
    evidence.ipv6 = value.at("ipv6").get<bool>();
    if (const Json& pfc = value.at("pfc"); !pfc.is_null()) evidence.pfc = host::PrioritySet{pfc.get<unsigned long>()};
    if (const Json& trust = value.at("trusts_dscp"); !trust.is_null()) {
      evidence.trust = trust.get<bool>() ? host::Trust::kDscp : host::Trust::kPcp;
    }
    evidence.idle = window_in(value.at("idle"));
    for (const Json& window : value.at("bursts")) evidence.bursts.push_back(window_in(window));
  } catch (const Json::exception& why) {
    throw Error{"read the other end's evidence", why.what(), "Run the same version at both ends"};
  }
  return evidence;
}

}  // namespace tensorwire::cli
