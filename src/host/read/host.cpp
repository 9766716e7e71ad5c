#include <algorithm>

#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

/// Docker and podman leave a file, Kubernetes a folder and a variable.
Fact<bool> read_in_container(Tree& tree) {
  for (const char* mark : {"/.dockerenv", "/run/.containerenv"}) {
    if (tree.text(mark).ok()) return {true, mark};
  }
  const char* secrets = "/var/run/secrets/kubernetes.io";
  if (tree.names(secrets).ok()) return {true, secrets};
  const char* first_process = "/proc/1/environ";
  const Answer environment = tree.text(first_process);
  for (const char* variable : {"container=", "KUBERNETES_SERVICE_HOST="}) {
    if (environment.text.find(variable) != std::string::npos) return {true, first_process};
  }
  return {false, "/.dockerenv, /run/.containerenv"};
}

/// "CmaTotal:        0 kB".
std::optional<std::uint64_t> cma_in(std::string_view text) {
  const auto value = between(text, "CmaTotal:", "kB");
  const auto kib = value ? number_in<std::uint64_t>(trimmed(*value)) : std::nullopt;
  return kib ? std::optional{*kib * 1024} : std::nullopt;
}

std::vector<Subnet> subnets_of(const std::vector<Route>& routes) {
  std::vector<Subnet> subnets;
  for (const Route& route : routes) {
    const Subnet subnet{route.netdev, route.network, route.length};
    if (!route.gateway && route.length > 0 && std::ranges::find(subnets, subnet) == subnets.end())
      subnets.push_back(subnet);
  }
  return subnets;
}

/// "netns shared copy-on-fork on", "netns exclusive": as `rdma system` prints it.
std::optional<bool> shared_in(std::string_view text) {
  const auto words = words_of(text.substr(0, text.find('\n')));
  const auto mode = std::ranges::find(words, "netns");
  if (mode == words.end() || mode + 1 == words.end()) return std::nullopt;
  return *(mode + 1) == "shared"      ? std::optional{true}
         : *(mode + 1) == "exclusive" ? std::optional{false}
                                      : std::nullopt;
}

/// The parameter of ib_core follows `rdma system set`; kernels before 5.2 have neither.
Fact<bool> read_rdma_shared(Tree& tree) {
  auto shared = fact_in_file(tree, "/sys/module/ib_core/parameters/netns_mode", [](std::string_view text) {
    const std::string_view word = trimmed(text);
    return word == "Y" ? std::optional{true} : word == "N" ? std::optional{false} : std::nullopt;
  });
  return shared ? shared : fact_of_tool(tree, tool::kRdmaSystem, "", shared_in);
}

}  // namespace

Host read_host(Tree& tree) {
  Host host;
  host.kernel = fact_in_file(tree, "/proc/sys/kernel/osrelease", [](std::string_view text) {
    return leading_number(text) ? std::optional{std::string{trimmed(text)}} : std::nullopt;
  });
  host.in_container = read_in_container(tree);
  host.rdma_nodes = exists(tree.names("/dev/infiniband"), "/dev/infiniband");
  host.virtual_machine = fact_of_tool(tree, tool::kHypervisor, "",
                                      [](std::string_view text) { return std::optional{!trimmed(text).empty()}; });
  host.cma_bytes = fact_in_file(tree, "/proc/meminfo", cma_in);
  host.rdma = read_rdma_devices(tree);
  add_printed_devices(tree, host);
  host.netdevs = read_netdevs(tree, host.rdma.value_or({}));
  host.routes = read_routes(tree);
  host.subnets = subnets_of(host.routes.value_or({}));
  host.process = read_process(tree);
  if (host.rdma && !host.rdma->empty()) {
    host.rdma_shared = read_rdma_shared(tree);
    host.neighbours = read_neighbours(tree);
    host.service_limits = read_service_limits(tree, host.process.service);
    host.daemons = fact_of_tool(tree, tool::kDaemons, "", [](std::string_view text) {
      std::vector<std::string> names;
      for (const std::string_view name : lines_of(text)) names.emplace_back(name);
      return std::optional{names};
    });
  }
  read_pci(tree, host);
  fill_from_lspci(tree, host);
  if (!host.gpus.empty()) host.gpu_driver = read_gpu_driver(tree, !host.nics.empty());
  return host;
}

}  // namespace tensorwire::host
