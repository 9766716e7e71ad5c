#include <limits>
#include <nlohmann/json.hpp>

#include "host/parse/qos_text.hpp"
#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

using nlohmann::json;

/// An object; nothing where the text is no JSON.
std::optional<json> object_in(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  if (!value.is_object()) return std::nullopt;
  return value;
}

/// `[key, priority]` of a table like [[24,3],[26,3]].
template <class Use>
void for_each_entry(const json& object, const char* name, Use use) {
  const auto table = object.find(name);
  if (table == object.end() || !table->is_array()) return;
  for (const json& entry : *table) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_unsigned() || !entry[1].is_number_unsigned())
      continue;
    const auto priority = entry[1].get<std::uint64_t>();
    if (priority < kPriorities) use(entry[0].get<std::uint64_t>(), static_cast<std::uint8_t>(priority));
  }
}

/// A list of eight numbers up to `most`.
template <class Number>
std::optional<std::array<Number, kPriorities>> eight(const json& object, const char* name, Number most) {
  const auto list = object.find(name);
  if (list == object.end() || !list->is_array() || list->size() != kPriorities) return std::nullopt;
  std::array<Number, kPriorities> numbers{};
  for (std::size_t i = 0; i < kPriorities; ++i) {
    if (!(*list)[i].is_number_unsigned() || (*list)[i].get<std::uint64_t>() > most) return std::nullopt;
    numbers[i] = (*list)[i].get<Number>();
  }
  return numbers;
}

std::optional<std::array<Tsa, kPriorities>> algorithms_in(const json& object) {
  const auto list = object.find("tc_tsa");
  if (list == object.end() || !list->is_array() || list->size() != kPriorities) return std::nullopt;
  std::array<Tsa, kPriorities> algorithms{};
  for (std::size_t i = 0; i < kPriorities; ++i) {
    const auto algorithm = (*list)[i].is_string() ? tsa_named((*list)[i].get<std::string>()) : std::nullopt;
    if (!algorithm) return std::nullopt;
    algorithms[i] = *algorithm;
  }
  return algorithms;
}

/// "prio-pfc 0:off 1:off 2:off 3:on ...".
std::optional<PrioritySet> pfc_in_words(std::string_view text) {
  const auto list = between(text, "prio-pfc ", "\n");
  if (!list) return std::nullopt;
  PrioritySet set;
  for (const std::string_view word : words_of(*list)) {
    if (word.size() > 2 && word[1] == ':' && word[0] >= '0' && word[0] <= '7') {
      set[static_cast<std::size_t>(word[0] - '0')] = word.substr(2) == "on";
    }
  }
  return set;
}

}  // namespace

std::optional<PrioritySet> parse_dcb_pfc(std::string_view text) {
  const auto object = object_in(text);
  if (!object) return pfc_in_words(text);
  const auto flags = object->find("prio_pfc");
  if (flags == object->end() || !flags->is_array() || flags->size() != kPriorities) return std::nullopt;
  PrioritySet set;
  for (std::size_t i = 0; i < kPriorities; ++i) {
    if (!(*flags)[i].is_boolean()) return std::nullopt;
    set[i] = (*flags)[i].get<bool>();
  }
  return set;
}

std::optional<DcbApp> parse_dcb_app(std::string_view text) {
  DcbApp app;
  app.priority_of_dscp.fill(-1);
  if (trimmed(text).empty()) return app;
  const auto object = object_in(text);
  if (!object) return std::nullopt;
  for_each_entry(*object, "dscp_prio", [&app](std::uint64_t dscp, std::uint8_t priority) {
    if (dscp >= kDscps) return;
    app.has_dscp = true;
    app.priority_of_dscp[dscp] = static_cast<std::int8_t>(priority);
  });
  for_each_entry(*object, "dgram_port_prio", [&app](std::uint64_t port, std::uint8_t priority) {
    if (port == 4791) app.priority_of_rocev2 = priority;
  });
  return app;
}

std::optional<DcbEts> parse_dcb_ets(std::string_view text) {
  const auto object = object_in(text);
  if (!object) return std::nullopt;
  const auto classes = eight<std::uint8_t>(*object, "prio_tc", kPriorities - 1);
  if (!classes) return std::nullopt;
  DcbEts all;
  all.traffic_class = *classes;
  const auto count = object->find("ets_cap");
  // In the standard's three bits 0 stands for eight.
  if (count != object->end() && count->is_number_unsigned() && count->get<std::uint64_t>() <= kPriorities)
    all.class_count = count->get<unsigned>() == 0 ? kPriorities : count->get<unsigned>();
  const auto algorithms = algorithms_in(*object);
  const auto shares = eight<std::uint8_t>(*object, "tc_bw", 100);
  if (algorithms && shares) all.ets = Ets{*algorithms, *shares};
  return all;
}

std::optional<DcbBuffer> parse_dcb_buffer(std::string_view text) {
  const auto object = object_in(text);
  if (!object) return std::nullopt;
  const auto buffer = eight<std::uint8_t>(*object, "prio_buffer", kPriorities - 1);
  const auto bytes = eight<std::uint32_t>(*object, "buffer_size", std::numeric_limits<std::uint32_t>::max());
  if (!buffer || !bytes) return std::nullopt;
  return DcbBuffer{*buffer, *bytes};
}

std::optional<bool> parse_dcbx(std::string_view text) {
  const auto object = object_in(text);
  if (!object) return std::nullopt;
  const auto host = object->find("host");
  return host != object->end() && host->is_boolean() && host->get<bool>();
}

}  // namespace tensorwire::host
