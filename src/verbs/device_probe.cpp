#include "verbs/device_probe.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>

#include "base/error.hpp"
#include "verbs/context.hpp"
#include "verbs/gid.hpp"

namespace tensorwire::verbs {

namespace {

const char* state_text(ibv_port_state state) noexcept {
  switch (state) {
    case IBV_PORT_DOWN:
      return "DOWN (no link, or the interface is down)";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    default:
      return "in an unknown state";
  }
}

std::string problem_of_open_port(const Library& library, ibv_context* context, std::uint8_t port) {
  ibv_port_attr attributes{};
  if (const int error = query_port(library, context, port, attributes); error != 0) {
    return fmt::format("port {} cannot be queried: {}", port, errno_text(error));
  }
  std::string problem = port_problem(port, attributes);
  if (!problem.empty()) return problem;
  try {
    (void)choose_gid("the device", read_gid_table(library, context, port, attributes.gid_tbl_len), {});
  } catch (const Error& error) {
    return fmt::format("port {}: {}", port, error.parts().why);
  }
  return {};
}

std::string problem_of(const Library& library, ibv_device* device, std::optional<std::uint8_t> port) {
  errno = 0;
  ibv_context* context = library.call().open_device(device);
  if (context == nullptr) return "open failed: " + errno_text(errno);
  std::string problem;
  if (port) {
    problem = problem_of_open_port(library, context, *port);
  } else {
    (void)first_usable_port(library, context, problem);
  }
  library.call().close_device(context);
  return problem;
}

}  // namespace

DeviceList::DeviceList(const Library& library) : library_(library) {
  errno = 0;
  list_ = library.call().get_device_list(&count_);
  // A kernel without RDMA modules has no uverbs at all: ENOSYS, which is "no devices" and not a failure.
  if (list_ == nullptr && errno != 0 && errno != ENOSYS && errno != ENOENT) {
    throw system_error("list the RDMA devices with " + library.path(), errno);
  }
}

DeviceList::~DeviceList() {
  if (list_ != nullptr) library_.call().free_device_list(list_);
}

std::vector<std::string> DeviceList::names() const {
  std::vector<std::string> names;
  for (int i = 0; list_ != nullptr && i < count_; ++i) names.emplace_back(library_.call().get_device_name(list_[i]));
  return names;
}

ibv_device* DeviceList::find(const std::string& name) const {
  for (int i = 0; list_ != nullptr && i < count_; ++i) {
    if (name == library_.call().get_device_name(list_[i])) return list_[i];
  }
  return nullptr;
}

int query_port(const Library& library, ibv_context* context, std::uint8_t port, ibv_port_attr& attributes) noexcept {
  attributes = {};
  // As verbs.h does inline; spelled out because that inline would also refer to the exported symbol, which is not
  // linked. A provider older than the extended call has a shorter struct.
  const verbs_context* extended = verbs_get_ctx(context);
  constexpr std::size_t kSizeWithQueryPort = sizeof(verbs_context) - offsetof(verbs_context, query_port);
  if (extended != nullptr && extended->sz >= kSizeWithQueryPort && extended->query_port != nullptr) {
    const int error = extended->query_port(context, port, &attributes, sizeof attributes);
    return error >= 0 ? error : errno;
  }
  errno = 0;
  const int error = library.call().query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  return error >= 0 ? error : errno;
}

std::string port_problem(std::uint8_t port, const ibv_port_attr& attributes) {
  if (attributes.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    return fmt::format("port {} is InfiniBand, not Ethernet: it cannot carry RoCEv2", port);
  }
  if (attributes.state != IBV_PORT_ACTIVE) return fmt::format("port {} is {}", port, state_text(attributes.state));
  return {};
}

std::vector<DeviceFacts> probe_devices(const Library& library, std::optional<std::uint8_t> port) {
  const DeviceList list{library};
  std::vector<DeviceFacts> facts;
  for (const std::string& name : list.names()) facts.push_back({name, problem_of(library, list.find(name), port)});
  return facts;
}

std::uint8_t first_usable_port(const Library& library, ibv_context* context, std::string& problem) {
  ibv_device_attr device{};
  if (const int error = library.call().query_device(context, &device); error != 0) {
    problem = "cannot be queried: " + errno_text(error);
    return 0;
  }
  problem.clear();
  for (std::uint8_t port = 1; port <= device.phys_port_cnt; ++port) {
    const std::string this_port = problem_of_open_port(library, context, port);
    if (this_port.empty()) {
      problem.clear();
      return port;
    }
    problem += (problem.empty() ? "" : ", ") + this_port;
  }
  if (problem.empty()) problem = "it has no ports";
  return 0;
}

}  // namespace tensorwire::verbs
