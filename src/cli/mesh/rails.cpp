#include "cli/mesh/rails.hpp"

#include <algorithm>
#include <utility>

#include "base/env.hpp"
#include "base/error.hpp"
#include "verbs/device_probe.hpp"
#include "verbs/library.hpp"

namespace tensorwire::cli {
namespace {

/// A first device of the user-space HCA is the loopback interface, which leads to no other host.
std::vector<std::string> without_loopback(std::vector<std::string> names) {
  if (names.size() > 1) names.erase(names.begin());
  return names;
}

std::vector<std::string> soft_devices() {
  return without_loopback(verbs::DeviceList{*verbs::Library::open_soft()}.names());
}

std::vector<std::string> devices_here() {
  if (const auto asked = env::get("TENSORWIRE_DEVICE")) return {*asked};
  const auto system = verbs::Library::open_system();
  const bool soft = system != nullptr && system->is_soft();
  auto names = system != nullptr ? verbs::DeviceList{*system}.names() : std::vector<std::string>{};
  if (!names.empty()) return soft ? without_loopback(std::move(names)) : names;
  return soft_devices();
}

/// "soft" is the user-space HCA, whatever devices it has.
std::vector<std::string> expanded(const std::vector<std::string>& devices) {
  std::vector<std::string> all;
  for (const std::string& device : devices) {
    const auto names = device == "soft" ? soft_devices() : std::vector{device};
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

/// The user-space HCA, the kernel's soft-RoCE and its iWARP sibling.
bool is_software(const verbs::Context& context) {
  return context.is_soft() || context.name().starts_with("rxe") || context.name().starts_with("siw");
}

/// What a port can carry, in GB/s each way; 0: not known.
double line_of(const verbs::Context& context) {
  if (is_software(context)) return 0;
  ibv_port_attr port{};
  const verbs_context* const extended = verbs_get_ctx(context.raw());
  if (extended == nullptr || extended->query_port == nullptr ||
      extended->query_port(context.raw(), context.port(), &port, sizeof port) != 0) {
    return 0;
  }
  static constexpr std::pair<unsigned, double> kLanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  static constexpr std::pair<unsigned, double> kGigabits[] = {{1, 2.5}, {2, 5},   {4, 10},  {8, 10},
                                                              {16, 14}, {32, 25}, {64, 50}, {128, 100}};
  const auto value_of = [](const auto& table, unsigned code) {
    const auto* const row = std::ranges::find(table, code, [](const auto& entry) { return entry.first; });
    return row == std::end(table) ? 0.0 : row->second;
  };
  constexpr double kBitsPerByte = 8;
  return value_of(kLanes, port.active_width) * value_of(kGigabits, port.active_speed) / kBitsPerByte;
}

Rail open_rail(const std::string& device, const std::optional<int>& gid_index) {
  Rail rail;
  rail.end.device = device;
  try {
    verbs::DeviceWish wish;
    wish.device = device;
    wish.gid_index = gid_index;
    rail.context = verbs::Context::open(wish);
    rail.end.device = rail.context->name();
    rail.end.netdev = rail.context->netdev();
    rail.end.gid = verbs::to_string(rail.context->gid());
    rail.end.path = rail.context->describe();
    rail.end.software = is_software(*rail.context);
    rail.end.line_gb_s = line_of(*rail.context);
  } catch (const Error& error) {
    rail.end.problem = error.parts().why;
  }
  return rail;
}

}  // namespace

std::vector<Rail> open_rails(const RailWish& wish) {
  const std::vector<std::string> devices = expanded(wish.devices.empty() ? devices_here() : wish.devices);
  std::vector<Rail> rails;
  for (const std::string& device : devices) rails.push_back(open_rail(device, wish.gid_index));
  if (rails.empty()) {
    throw Error{"choose RDMA devices", "there is none, and the user-space HCA lists none",
                "Give this host a network interface with an IP address that is up"};
  }
  return rails;
}

}  // namespace tensorwire::cli
