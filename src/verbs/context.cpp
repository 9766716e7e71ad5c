#include "verbs/context.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "base/env.hpp"
#include "base/error.hpp"
#include "verbs/device_choice.hpp"
#include "verbs/device_probe.hpp"
#include "verbs/route.hpp"
#include "verbs/sysfs.hpp"

namespace tensorwire::verbs {

namespace {

struct DeviceAndPort {
  std::string device;
  std::optional<std::uint8_t> port;
};

/// "mlx5_0:2" names device and port, as NCCL_IB_HCA does.
DeviceAndPort parse_device(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {text, std::nullopt};
  unsigned port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data() + colon + 1, end, port);
  if (code != std::errc{} || stop != end || port < 1 || port > UINT8_MAX) {
    throw Error{"read the device name " + text, "what follows the colon is not a port number",
                "Write DEVICE or DEVICE:PORT, for example mlx5_0:1"};
  }
  return {text.substr(0, colon), static_cast<std::uint8_t>(port)};
}

DeviceWish with_environment(DeviceWish wish) {
  if (wish.device.empty()) wish.device = env::get("TENSORWIRE_DEVICE").value_or("");
  if (!wish.gid_index) {
    const auto index = env::get_int("TENSORWIRE_GID_INDEX", -1, 0, UINT8_MAX);
    if (index >= 0) wish.gid_index = static_cast<int>(index);
  }
  return wish;
}

struct ContextCloser {
  const Library* library;
  void operator()(ibv_context* context) const noexcept { library->call().close_device(context); }
};
using OpenedContext = std::unique_ptr<ibv_context, ContextCloser>;

OpenedContext open_named(const Library& library, const std::string& name) {
  const DeviceList list{library};
  const std::string what = "open device " + name;
  ibv_device* device = list.find(name);
  if (device == nullptr) {
    std::string names;
    for (const std::string& other : list.names()) names += (names.empty() ? "" : ", ") + other;
    throw Error{what, "no such device", names.empty() ? "There is none" : "Devices here: " + names};
  }
  errno = 0;
  OpenedContext context{library.call().open_device(device), ContextCloser{&library}};
  if (context == nullptr)
    throw system_error(what, errno,
                       library.is_soft() ? "The warning above says what it lacks" : "Look at dmesg and ibv_devinfo -v");
  return context;
}

SoftDeviceFacts soft_device(const Library& library, const std::string& name) {
  const OpenedContext context = open_named(library, name);
  SoftDeviceFacts device;
  ibv_port_attr port{};
  if (query_port(library, context.get(), 1, port) != 0) return device;
  for (const GidFacts& entry : read_gid_table(library, context.get(), 1, port.gid_tbl_len)) {
    device.addresses.push_back({entry.gid, entry.netdev});
  }
  return device;
}

/// The name of the device to use when only the library is chosen.
std::string default_device(const Library& library, const std::optional<Route>& route, bool has_peers_elsewhere) {
  const std::vector<std::string> names = DeviceList{library}.names();
  if (names.empty()) {
    throw Error{"choose a device of " + library.path(), "it lists none",
                "Give this host a network interface with an IP address that is up"};
  }
  if (!library.is_soft() || (!route && !has_peers_elsewhere)) return names.front();
  const auto look_at = [&](const std::string& name) { return soft_device(library, name); };
  return choose_soft_device(names, look_at, route ? &*route : nullptr, has_peers_elsewhere);
}

std::shared_ptr<const Library> library_for(const DeviceAndPort& asked, std::string& device, std::string& reason) {
  // Whoever asks for the user-space HCA by name gets it without a look at the NICs, which may be what is broken.
  if (is_soft_name(asked.device)) {
    device = choose_device({}, asked.device).device;
    reason = "asked for";
    return Library::open_soft();
  }
  const std::shared_ptr<const Library> system = Library::open_system();
  if (system != nullptr && system->is_soft()) {
    device = asked.device;
    reason = "the libibverbs that the loader finds is the user-space HCA";
    return system;
  }
  const std::vector<DeviceFacts> facts =
      system != nullptr ? probe_devices(*system, asked.port) : std::vector<DeviceFacts>{};
  DeviceChoice choice = choose_device(facts, asked.device);
  device = std::move(choice.device);
  reason = std::move(choice.reason);
  return choice.provider == Provider::kSystem ? system : Library::open_soft();
}

}  // namespace

std::shared_ptr<Context> Context::open(const DeviceWish& wish) {
  DeviceWish chosen = with_environment(wish);
  std::string reason;
  const std::optional<std::uint8_t> port = parse_device(chosen.device).port;
  std::shared_ptr<const Library> library = library_for(parse_device(chosen.device), chosen.device, reason);
  if (port && !chosen.device.empty()) chosen.device += fmt::format(":{}", *port);
  return open_on(std::move(library), chosen, std::move(reason));
}

std::shared_ptr<Context> Context::open_on(std::shared_ptr<const Library> library, const DeviceWish& wish,
                                          std::string reason) {
  const DeviceAndPort asked = parse_device(wish.device);
  const std::optional<Route> route = wish.route_to ? route_to(*wish.route_to) : std::nullopt;
  const bool first_of_soft = asked.device.empty() || asked.device == "soft";
  const std::optional<Route> way = !route && wish.peer_elsewhere ? route_to(*wish.peer_elsewhere) : route;
  const std::string name = first_of_soft ? default_device(*library, way, wish.has_peers_elsewhere) : asked.device;

  OpenedContext opened = open_named(*library, name);
  std::shared_ptr<Context> context{new Context{library, opened.release()}};
  context->name_ = name;
  context->reason_ = std::move(reason);
  context->choose_port(asked.port);
  context->choose_gid_entry(wish.gid_index, route ? route->netdev : std::string{});
  return context;
}

Context::Context(std::shared_ptr<const Library> library, ibv_context* context) noexcept
    : library_(std::move(library)), context_(context) {}

Context::~Context() { call().close_device(context_); }

void Context::choose_port(std::optional<std::uint8_t> asked) {
  const std::string what = "use device " + name_;
  if (const int error = call().query_device(context_, &limits_); error != 0) throw system_error(what, error);
  std::string problem;
  if (asked && *asked > limits_.phys_port_cnt) {
    throw Error{what, fmt::format("it has no port {}", *asked), fmt::format("It has {}", limits_.phys_port_cnt)};
  }
  port_ = asked ? *asked : first_usable_port(*library_, context_, problem);
  if (port_ == 0) throw Error{what, problem, "Bring the interface up and give it an IP address"};
}

void Context::choose_gid_entry(std::optional<int> asked, const std::string& route_netdev) {
  ibv_port_attr attributes{};
  const std::string what = fmt::format("use port {} of {}", port_, name_);
  if (const int error = query_port(*library_, context_, port_, attributes); error != 0) throw system_error(what, error);
  const std::string problem = port_problem(port_, attributes);
  if (!problem.empty()) throw Error{what, problem, "Bring the interface up, or use another device"};
  mtu_ = attributes.active_mtu;
  gid_ = choose_gid(name_, read_gid_table(*library_, context_, port_, attributes.gid_tbl_len), {asked, route_netdev});
}

std::string Context::describe() const {
  return fmt::format("device {} port {} ({}; {}), GID index {} = {}{} ({}; {}), MTU {}", name_, port_,
                     is_soft() ? "user-space HCA" : "hardware", reason_, gid_index(), to_string(gid()),
                     gid_.entry.netdev.empty() ? "" : " on " + gid_.entry.netdev, to_string(gid_.entry.type),
                     gid_.reason, mtu_bytes(mtu_));
}

std::optional<std::uint64_t> Context::counter(std::string_view name) const {
  if (direct().counter == nullptr) return read_port_counter(name_, port_, name);
  std::uint64_t value = 0;
  if (direct().counter(context_, std::string{name}.c_str(), &value) != 0) return std::nullopt;
  return value;
}

}  // namespace tensorwire::verbs
