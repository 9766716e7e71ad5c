#include "host/tree/verbs_probe.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "host/tree/run_program.hpp"

namespace tensorwire::host {

namespace {

/// The calls, as they are exported: what verbs.h makes inline would refer to symbols that this program is not linked
/// to.
struct VerbsCalls {
  ibv_device** (*get_device_list)(int*);
  const char* (*get_device_name)(ibv_device*);
  ibv_context* (*open_device)(ibv_device*);
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  ssize_t (*query_gid_table)(ibv_context*, ibv_gid_entry*, std::size_t, std::uint32_t, std::size_t);  ///< optional
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int);             ///< optional
};

template <class Call>
bool find_call(void* library, Call& call, const char* name, const char* version) {
  void* symbol = dlvsym(library, name, version);
  std::memcpy(&call, &symbol, sizeof call);
  return symbol != nullptr;
}

/// @return errno
int load_verbs(VerbsCalls& verbs) {
  void* library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == nullptr) return ELIBACC;
  find_call(library, verbs.query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11");
  find_call(library, verbs.reg_dmabuf_mr, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
  const bool all = find_call(library, verbs.get_device_list, "ibv_get_device_list", "IBVERBS_1.1") &&
                   find_call(library, verbs.get_device_name, "ibv_get_device_name", "IBVERBS_1.1") &&
                   find_call(library, verbs.open_device, "ibv_open_device", "IBVERBS_1.1") &&
                   find_call(library, verbs.query_device, "ibv_query_device", "IBVERBS_1.1") &&
                   find_call(library, verbs.query_port, "ibv_query_port", "IBVERBS_1.1") &&
                   find_call(library, verbs.alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1");
  return all ? 0 : ELIBBAD;
}

/// Calls `use` with each device and its context, null where it cannot be opened. Nothing is closed: the process ends.
/// @return errno
template <class Use>
int for_each_device(Use use) {
  VerbsCalls verbs{};
  if (const int error = load_verbs(verbs); error != 0) return error;
  ibv_device** devices = verbs.get_device_list(nullptr);
  if (devices == nullptr) return errno != 0 ? errno : ENOSYS;
  for (; *devices != nullptr; ++devices) use(verbs, verbs.get_device_name(*devices), verbs.open_device(*devices));
  return 0;
}

const char* shown_state(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "PORT_DOWN (1)";
    case IBV_PORT_INIT:
      return "PORT_INIT (2)";
    case IBV_PORT_ARMED:
      return "PORT_ARMED (3)";
    case IBV_PORT_ACTIVE:
      return "PORT_ACTIVE (4)";
    default:
      return "invalid state";
  }
}

void add_gids(const VerbsCalls& verbs, ibv_context* context, unsigned port, std::string& text) {
  std::array<ibv_gid_entry, 512> entries{};
  if (verbs.query_gid_table == nullptr) return;
  const ssize_t count = verbs.query_gid_table(context, entries.data(), entries.size(), 0, sizeof entries[0]);
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
    char address[INET6_ADDRSTRLEN];
    if (entry.port_num != port || inet_ntop(AF_INET6, &entry.gid, address, sizeof address) == nullptr) continue;
    const char* type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? ", RoCE v2"
                       : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? ", RoCE v1"
                                                                : "";
    text += fmt::format("\t\t\tGID[{:3}]:\t\t{}{}\n", entry.gid_index, address, type);
  }
}

void add_port(const VerbsCalls& verbs, ibv_context* context, unsigned number, std::string& text) {
  ibv_port_attr port{};
  if (verbs.query_port(context, static_cast<std::uint8_t>(number), reinterpret_cast<_compat_ibv_port_attr*>(&port)) !=
      0)
    return;
  const char* layer = port.link_layer == IBV_LINK_LAYER_ETHERNET     ? "Ethernet"
                      : port.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
                                                                     : "Unknown";
  text +=
      fmt::format("\t\tport:\t{}\n\t\t\tstate:\t\t\t{}\n\t\t\tactive_mtu:\t\t{} ({})\n\t\t\tlink_layer:\t\t{}\n",
                  number, shown_state(port.state), 128U << port.active_mtu, static_cast<int>(port.active_mtu), layer);
  add_gids(verbs, context, number, text);
}

int print_devices(std::string& text) {
  return for_each_device([&text](const VerbsCalls& verbs, const char* name, ibv_context* context) {
    text += fmt::format("hca_id:\t{}\n", name);
    ibv_device_attr device{};
    if (context == nullptr || verbs.query_device(context, &device) != 0) return;
    text += fmt::format("\tfw_ver:\t\t\t\t{:.64}\n\tphys_port_cnt:\t\t\t{}\n", device.fw_ver, device.phys_port_cnt);
    for (unsigned port = 1; port <= device.phys_port_cnt; ++port) add_port(verbs, context, port, text);
  });
}

int try_dmabuf(std::string& text) {
  return for_each_device([&text](const VerbsCalls& verbs, const char* name, ibv_context* context) {
    ibv_pd* domain = context != nullptr ? verbs.alloc_pd(context) : nullptr;
    if (domain == nullptr) return;
    errno = EOPNOTSUPP;  // a library without the call
    if (verbs.reg_dmabuf_mr != nullptr) static_cast<void>(verbs.reg_dmabuf_mr(domain, 0, 0, 0, -1, 0));
    const char* error = strerrorname_np(errno);
    text += fmt::format("{} {}\n", name, error != nullptr ? error : "?");
  });
}

}  // namespace

Answer verbs_devices(const std::string& /*subject*/) { return run_apart(print_devices); }

Answer dmabuf_answers(const std::string& /*subject*/) { return run_apart(try_dmabuf); }

}  // namespace tensorwire::host
