// Reading a scenario: which keys there are, and what they may be.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "fabric/scenario.hpp"
#include "fabric/scenario_keys.hpp"

namespace tensorwire::fabric {

namespace {

using transport::MtuCode;

constexpr std::uint32_t kMostHosts = 8192;
constexpr std::uint32_t kPerMillion = 1'000'000;

LinkConfig read_link(ScenarioKeys& keys, const char* rate, const char* delay) {
  LinkConfig link;
  link.ps_per_byte = keys.rate(rate, link.ps_per_byte);
  link.delay = keys.duration(delay, 500 * kNanosecond);
  return link;
}

std::uint32_t read_loss(ScenarioKeys& keys) {
  return static_cast<std::uint32_t>(keys.number("loss", 0, 0, 1) * kPerMillion + 0.5);
}

void read_topology(ScenarioKeys keys, Scenario& scenario) {
  enum Shape : std::size_t { kSingleSwitch, kDumbbell, kLeafSpine, kRailOptimised, kFatTree };
  const std::size_t shape =
      keys.choice("shape", {"single-switch", "dumbbell", "leaf-spine", "rail-optimised", "fat-tree"}, kSingleSwitch);
  LinkConfig link = read_link(keys, "link", "delay");
  LinkConfig uplink = link;
  if (shape != kSingleSwitch && shape != kFatTree) {
    uplink.ps_per_byte = keys.rate("uplink", link.ps_per_byte);
    uplink.delay = keys.duration("uplink_delay", link.delay);
  }
  link.loss_per_million = uplink.loss_per_million = read_loss(keys);
  const auto count = [&](const char* key, std::uint64_t otherwise, std::uint64_t most) {
    return static_cast<std::uint32_t>(keys.integer(key, otherwise, 1, most));
  };
  if (shape == kSingleSwitch) {
    scenario.topology = single_switch(count("hosts", 8, 1024), link);
  } else if (shape == kDumbbell) {
    const std::uint32_t left = count("left", 4, 512);
    scenario.topology = dumbbell(left, count("right", 4, 512), link, uplink);
  } else if (shape == kLeafSpine) {
    const std::uint32_t leaves = count("leaves", 4, 256);
    const std::uint32_t spines = count("spines", 2, 256);
    const std::uint32_t hosts = count("hosts_per_leaf", 8, 256);
    if (leaves * hosts > kMostHosts) keys.refuse("leaves", "more than 8192 hosts", "Take fewer leaves");
    scenario.topology = leaf_spine(leaves, spines, hosts, link, uplink);
  } else if (shape == kRailOptimised) {
    const std::uint32_t nodes = count("nodes", 8, 1024);
    const std::uint32_t rails = count("rails", 8, 16);
    const std::uint32_t nodes_per_leaf = count("nodes_per_leaf", nodes, 1024);
    const std::uint32_t spines = count("spines", 2, 256);
    if (nodes * rails > kMostHosts) keys.refuse("nodes", "more than 8192 hosts", "Take fewer nodes");
    scenario.topology = rail_optimised(nodes, rails, nodes_per_leaf, spines, link, uplink);
  } else {
    const std::uint32_t ports = count("ports", 8, 32);
    if (ports % 2 != 0) keys.refuse("ports", "it is odd", "Allowed: even numbers from 2 to 32");
    scenario.topology = fat_tree(ports, link);
  }
  keys.done();
}

/// "1/64" or 1/64 as 0.015625: a power of two.
int read_alpha(ScenarioKeys& keys) {
  constexpr const char* kAllowed = "Allowed: powers of two from \"1/128\" to 64";
  const double alpha = keys.number("alpha", 1, 1.0 / 128, 64);
  int exponent = 0;
  if (std::frexp(alpha, &exponent) != 0.5) keys.refuse("alpha", "it is no power of two", kAllowed);
  return exponent - 1;
}

void read_buffer(ScenarioKeys& keys, BufferConfig& buffer) {
  buffer.bytes = keys.bytes("buffer", buffer.bytes);
  if (buffer.bytes >= SharedBuffer::kMostBytes) keys.refuse("buffer", "it is 4 GiB or more", "Take a smaller buffer");
  buffer.alpha_log2 = read_alpha(keys);
  buffer.reserve_bytes = keys.bytes("reserve", buffer.reserve_bytes);
  buffer.headroom_bytes = keys.bytes("headroom", buffer.headroom_bytes);
  buffer.xon_offset_bytes = keys.bytes("xon_offset", buffer.xon_offset_bytes);
  const bool pfc = keys.flag("pfc", true);
  buffer.lossless = 0;
  for (const std::uint32_t priority : keys.list("lossless", kPriorities, {3}))
    if (pfc) buffer.lossless = static_cast<std::uint8_t>(buffer.lossless | 1U << priority);
}

void read_ecn(ScenarioKeys keys, EcnConfig& ecn) {
  ecn.enabled = keys.flag("enabled", ecn.enabled);
  ecn.min_bytes = keys.bytes("min", ecn.min_bytes);
  ecn.max_bytes = keys.bytes("max", ecn.max_bytes);
  ecn.max_per_million = static_cast<std::uint32_t>(keys.number("probability", 1, 0, 1) * kPerMillion + 0.5);
  if (ecn.min_bytes >= ecn.max_bytes) {
    keys.refuse("min", fmt::format("{} is not below max, {}", ecn.min_bytes, ecn.max_bytes), "Raise max, or lower min");
  }
  keys.done();
}

void read_watchdog(ScenarioKeys keys, WatchdogConfig& watchdog) {
  watchdog.enabled = keys.flag("enabled", watchdog.enabled);
  watchdog.detect = keys.duration("detect", watchdog.detect);
  watchdog.restore = keys.duration("restore", watchdog.restore);
  keys.done();
}

void read_switch(ScenarioKeys keys, Scenario& scenario) {
  SwitchConfig& config = scenario.fabric.switches;
  read_buffer(keys, config.buffer);
  config.pause_quanta = static_cast<std::uint16_t>(keys.integer("pause_quanta", kLongestPause, 1, kLongestPause));
  const auto weights = keys.list("weights", 256, std::vector<std::uint32_t>(kPriorities));
  if (weights.size() != kPriorities) keys.refuse("weights", "there are not eight", "Allowed: one for each priority");
  for (std::size_t i = 0; i < kPriorities; ++i) config.scheduler.weights[i] = static_cast<std::uint8_t>(weights[i]);
  read_ecn(keys.table("ecn"), config.ecn);
  read_watchdog(keys.table("watchdog"), config.watchdog);
  const Routes routes = find_routes(scenario.topology);
  for (std::size_t at = 0; at < scenario.topology.switches.size(); ++at) {
    const std::uint32_t ports = routes.first_port[at + 1] - routes.first_port[at];
    if (SharedBuffer::pool_bytes(config.buffer, ports) != 0) continue;
    keys.refuse("headroom",
                fmt::format("with the reserves, that of the {} ports of {} is more than the buffer of {} bytes", ports,
                            scenario.topology.switches[at], config.buffer.bytes),
                "Take a larger buffer or less headroom");
  }
  keys.done();
}

void read_dcqcn(ScenarioKeys keys, Scenario& scenario, std::uint64_t line_rate) {
  const std::size_t manner = keys.choice("manner", {"off", "nic", "paper"}, 0);
  transport::DcqcnConfig& config = scenario.fabric.engine.dcqcn;
  if (manner != 0) config = manner == 1 ? transport::dcqcn_nic(line_rate) : transport::dcqcn_paper(line_rate);
  config.cnp_interval = keys.duration("cnp_interval", config.cnp_interval);
  config.trailing_cnp = keys.flag("trailing_cnp", config.trailing_cnp);
  config.min_rate = keys.integer("min_rate_mbps", config.min_rate / 1'000'000, 1, 800'000) * 1'000'000;
  config.additive_increase =
      keys.integer("additive_increase_mbps", config.additive_increase / 1'000'000, 1, 800'000) * 1'000'000;
  config.hyper_increase =
      keys.integer("hyper_increase_mbps", config.hyper_increase / 1'000'000, 1, 800'000) * 1'000'000;
  config.increase_period = keys.duration("increase_period", config.increase_period);
  keys.done();
}

void read_host(ScenarioKeys keys, Scenario& scenario, std::uint64_t line_rate) {
  HostConfig& host = scenario.fabric.hosts;
  host.post_delay = host.completion_delay = keys.duration("pcie", 500 * kNanosecond);
  host.completion_delay += keys.duration("software", 0);
  host.post_cost = keys.duration("post", 0);
  transport::EngineConfig& engine = scenario.fabric.engine;
  engine.qp_window_bytes = keys.bytes("window", 1U << 20);
  engine.ack_request_every = engine.ack_coalesce = static_cast<std::uint32_t>(keys.integer("ack_every", 1, 1, 64));
  constexpr std::array kCodes{MtuCode::k256, MtuCode::k512, MtuCode::k1024, MtuCode::k2048, MtuCode::k4096};
  scenario.mtu = kCodes[keys.choice("mtu", {"256", "512", "1024", "2048", "4096"}, 4)];
  scenario.timeout = static_cast<std::uint8_t>(keys.integer("timeout", 14, 1, 31));
  read_dcqcn(keys.table("dcqcn"), scenario, line_rate);
  keys.done();
}

std::vector<HostId> read_hosts(ScenarioKeys& keys, const char* key, const Scenario& scenario) {
  std::vector<HostId> hosts = keys.list(key, scenario.topology.hosts);
  if (std::set<HostId>(hosts.begin(), hosts.end()).size() != hosts.size())
    keys.refuse(key, "a host is named twice", "Name each once");
  return hosts;
}

std::uint8_t read_dscp(ScenarioKeys& keys) { return static_cast<std::uint8_t>(keys.integer("dscp", 26, 0, 63)); }

AllReduceTraffic read_allreduce(ScenarioKeys& keys, const Scenario& scenario) {
  AllReduceTraffic traffic;
  traffic.hosts = read_hosts(keys, "hosts", scenario);
  if (traffic.hosts.size() < 2) keys.refuse("hosts", "one host alone has nothing to reduce", "Name two or more");
  traffic.bytes = keys.bytes("bytes", traffic.bytes);
  if (traffic.bytes == 0 || traffic.bytes % 2 != 0)
    keys.refuse("bytes", "it is not made of bf16 elements", "Take an even size");
  constexpr std::array kPlans{collective::Algorithm::kTwoShot, collective::Algorithm::kOneShot,
                              collective::Algorithm::kRing, collective::Algorithm::kTwoShotWindow};
  traffic.algorithm = kPlans[keys.choice("plan", {"two-shot", "one-shot", "ring", "two-shot-windows"}, 0)];
  traffic.operations = static_cast<std::uint32_t>(keys.integer("simulated", traffic.operations, 1, 1'000'000));
  traffic.warm_up = static_cast<std::uint32_t>(keys.integer("warm_up", 0, 0, 1'000'000));
  traffic.per_token = static_cast<std::uint32_t>(keys.integer("per_token", traffic.per_token, 1, 100'000));
  traffic.compute = static_cast<Ps>(keys.number("compute_ms", 12, 0, 10'000) * kMillisecond);
  traffic.start = keys.duration("start", 0);
  traffic.dscp = read_dscp(keys);
  return traffic;
}

BulkTraffic read_bulk(ScenarioKeys& keys, const Scenario& scenario) {
  BulkTraffic traffic;
  traffic.from = read_hosts(keys, "from", scenario);
  traffic.to = read_hosts(keys, "to", scenario);
  traffic.pairs = keys.flag("pairs", false);
  if (traffic.pairs && traffic.from.size() != traffic.to.size())
    keys.refuse("pairs", "from and to are not equally many", "Name as many receivers as senders");
  traffic.message_bytes = static_cast<std::uint32_t>(keys.bytes("message", traffic.message_bytes));
  if (traffic.message_bytes == 0 || traffic.message_bytes > 1U << 30)
    keys.refuse("message", "it is out of range", "Allowed: up to \"1GiB\"");
  traffic.messages = static_cast<std::uint32_t>(keys.integer("messages", 0, 0, 1'000'000'000));
  traffic.queue_pairs = static_cast<std::uint32_t>(keys.integer("queue_pairs", 1, 1, 64));
  traffic.start = keys.duration("start", 0);
  traffic.dscp = read_dscp(keys);
  return traffic;
}

SlowReceiver read_slow(ScenarioKeys& keys, const Scenario& scenario) {
  SlowReceiver slow;
  const std::vector<HostId> hosts = read_hosts(keys, "host", scenario);
  if (hosts.size() != 1) keys.refuse("host", "it is more than one", "Write a table for each");
  slow.host = hosts[0];
  slow.receive_ps_per_byte = keys.rate("receives", 80);
  slow.buffer_bytes = keys.bytes("buffer", slow.buffer_bytes);
  slow.xoff_bytes = keys.bytes("xoff", slow.xoff_bytes);
  slow.xon_bytes = keys.bytes("xon", slow.xon_bytes);
  if (slow.xoff_bytes >= slow.buffer_bytes)
    keys.refuse("xoff", "it is not below the buffer", "Leave room for what is on its way");
  if (slow.xon_bytes > slow.xoff_bytes) keys.refuse("xon", "it is above xoff", "Take xoff, or less");
  return slow;
}

/// "leaf 3", "host 12".
NodeRef read_node(ScenarioKeys& keys, const char* key, const Topology& topology) {
  const std::string name = keys.text(key, "");
  for (HostId host = 0; host < topology.hosts; ++host)
    if (name == fmt::format("host {}", host)) return {true, host};
  for (SwitchId at = 0; at < topology.switches.size(); ++at)
    if (name == topology.switches[at]) return {false, at};
  keys.refuse(key, fmt::format("\"{}\" is not in the topology", name),
              fmt::format("Allowed: \"host 0\" to \"host {}\", or a switch, as \"{}\" or \"{}\"", topology.hosts - 1,
                          topology.switches.front(), topology.switches.back()));
}

/// Links that are down from the beginning to the end must leave a way between all hosts.
void refuse_islands(ScenarioKeys& keys, const Scenario& scenario, std::uint32_t link) {
  const Topology& topology = scenario.topology;
  std::vector<bool> down(topology.links.size());
  down[link] = true;
  for (const LinkFailureConfig& other : scenario.link_failures)
    if (other.at == 0 && other.until == kNever) down[other.link] = true;
  const auto refuse = [&](const std::string& whom) {
    keys.refuse("from", "without this link no way leads to " + whom, "Let it come back (until), or fail later (at)");
  };
  if (topology.links[link].a.host) refuse(fmt::format("host {}", topology.links[link].a.index));
  Routes routes = find_routes(topology);
  find_ways_around(topology, down, routes);
  const SwitchId first = routes.leaf_of[0];
  for (const SwitchId leaf : routes.leaf_of)
    if (leaf != first && routes.towards(first, leaf).count == 0) refuse(topology.switches[leaf]);
}

LinkFailureConfig read_failure(ScenarioKeys& keys, const Scenario& scenario) {
  LinkFailureConfig failure;
  const NodeRef from = read_node(keys, "from", scenario.topology);
  const NodeRef to = read_node(keys, "to", scenario.topology);
  const auto& links = scenario.topology.links;
  const auto joins = [&](const Link& link) {
    return (link.a == from && link.b == to) || (link.a == to && link.b == from);
  };
  const auto found = std::ranges::find_if(links, joins);
  if (found == links.end()) keys.refuse("to", "no link leads there from the other end", "Name both ends of a link");
  failure.link = static_cast<std::uint32_t>(found - links.begin());
  failure.at = keys.duration("at", 0);
  failure.until = keys.duration("until", kNever);
  failure.reroute_after = keys.duration("reroute_after", failure.reroute_after);
  if (failure.at == 0 && failure.until == kNever) refuse_islands(keys, scenario, failure.link);
  if (failure.until <= failure.at)
    keys.refuse("until", "it is not after at", "Leave it out for a link that stays down");
  return failure;
}

/// "pfc_storm" of "scenarios/pfc_storm.toml".
std::string stem(const std::string& file) {
  const std::size_t slash = file.find_last_of('/');
  const std::string name = file.substr(slash == std::string::npos ? 0 : slash + 1);
  return name.substr(0, name.find_last_of('.'));
}

Scenario read(const std::string& file, const toml::table& table) {
  ScenarioKeys keys{file, table, ""};
  Scenario scenario;
  scenario.name = keys.text("name", stem(file));
  scenario.about = keys.text("about", "");
  scenario.fabric.seed = keys.integer("seed", 1, 0, ~std::uint64_t{0} >> 1);
  scenario.limit = keys.duration("limit", scenario.limit);
  scenario.sample_every = keys.duration("sample_every", scenario.sample_every);
  if (scenario.sample_every < 100 * kNanosecond)
    keys.refuse("sample_every", "that is too often", "Allowed: 100ns and longer");
  read_topology(keys.table("topology"), scenario);
  read_switch(keys.table("switch"), scenario);
  const auto line_rate = static_cast<std::uint64_t>(8 * kSecond / scenario.topology.links[0].config.ps_per_byte);
  read_host(keys.table("host"), scenario, line_rate);
  keys.each("allreduce", [&](ScenarioKeys& each) { scenario.allreduces.push_back(read_allreduce(each, scenario)); });
  keys.each("bulk", [&](ScenarioKeys& each) { scenario.bulk.push_back(read_bulk(each, scenario)); });
  keys.each("slow_receiver", [&](ScenarioKeys& each) { scenario.slow_receivers.push_back(read_slow(each, scenario)); });
  keys.each("link_failure",
            [&](ScenarioKeys& each) { scenario.link_failures.push_back(read_failure(each, scenario)); });
  keys.done();
  return scenario;
}

toml::node* step_into(toml::node* node, const std::string& word) {
  if (toml::array* const array = node->as_array()) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
    return error == std::errc{} && index < array->size() ? array->get(index) : nullptr;
  }
  toml::table* const table = node->as_table();
  if (table == nullptr) return nullptr;
  if (!table->contains(word)) table->insert(word, toml::table{});
  return table->get(word);
}

void apply(const Setting& setting, const std::string& file, toml::table& root) {
  toml::node* node = &root;
  std::size_t at = 0;
  for (std::size_t dot; node != nullptr && (dot = setting.key.find('.', at)) != std::string::npos; at = dot + 1)
    node = step_into(node, setting.key.substr(at, dot - at));
  toml::table* const table = node != nullptr ? node->as_table() : nullptr;
  if (table == nullptr) throw Error{"set " + setting.key, "there is no such table in " + file};
  const std::string word = setting.key.substr(at);
  try {
    table->insert_or_assign(word, *toml::parse("value = " + setting.value).get("value"));
  } catch (const toml::parse_error&) {  // 128KiB
    table->insert_or_assign(word, setting.value);
  }
}

}  // namespace

Scenario parse_scenario(std::string_view text, const std::string& file, const std::vector<Setting>& settings) {
  toml::table table;
  try {
    table = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw Error{"read " + file, fmt::format("line {}: {}", error.source().begin.line, error.description())};
  }
  for (const Setting& setting : settings) apply(setting, file, table);
  return read(file, table);
}

Scenario read_scenario(const std::string& file, const std::vector<Setting>& settings) {
  std::ifstream stream{file};
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw system_error("read " + file, errno, "Name a scenario file, as scenarios/pfc_storm.toml");
  return parse_scenario(text.str(), file, settings);
}

}  // namespace tensorwire::fabric
