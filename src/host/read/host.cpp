#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

/// Docker and podman leave a file; Kubernetes a variable.
Fact<bool> read_in_container(Tree& tree) {
  for (const char* mark : {"/.dockerenv", "/run/.containerenv"}) {
    if (tree.text(mark).ok()) return {true, mark};
  }
  const Answer environment = tree.text("/proc/1/environ");
  if (environment.ok() && environment.text.find("container=") != std::string::npos) return {true, "/proc/1/environ"};
  return {false, "/.dockerenv, /run/.containerenv"};
}

}  // namespace

Host read_host(Tree& tree) {
  Host host;
  host.kernel = line_in(tree, "/proc/sys/kernel/osrelease");
  host.in_container = read_in_container(tree);
  host.rdma_nodes = exists(tree.names("/dev/infiniband"), "/dev/infiniband");
  host.rdma = read_rdma_devices(tree);
  host.netdevs = read_netdevs(tree, host.rdma.value_or({}));
  host.subnets = read_subnets(tree);
  host.process = read_process(tree);
  if (host.rdma && !host.rdma->empty()) {
    host.daemons = fact_of_tool(tree, tool::kDaemons, "", [](std::string_view text) {
      std::vector<std::string> names;
      for (const std::string_view name : lines_of(text)) names.emplace_back(name);
      return std::optional{names};
    });
  }
  read_pci(tree, host);
  if (!host.gpus.empty()) host.gpu_driver = read_gpu_driver(tree);
  return host;
}

}  // namespace tensorwire::host
