#include "host/tree/tools.hpp"

#include <array>
#include <cerrno>
#include <vector>

#include "host/tree/cuda_probe.hpp"
#include "host/tree/dcb_netlink.hpp"
#include "host/tree/ethtool_ioctl.hpp"
#include "host/tree/firmware_tool.hpp"
#include "host/tree/folder_tree.hpp"
#include "host/tree/neighbours_netlink.hpp"
#include "host/tree/run_program.hpp"
#include "host/tree/verbs_probe.hpp"

namespace tensorwire::host {

namespace {

Answer running_daemons(const std::string& subject);
Answer kernel_symbols(const std::string& subject);
Answer hypervisor(const std::string& subject);
/// For what people attach to reports; a live host's own files say more.
Answer given_only(const std::string& /*subject*/) { return {{}, ENOENT}; }

struct Tool {
  std::string_view name;
  std::string_view command;                                 ///< "%" stands for the subject
  Answer (*answers)(const std::string& subject) = nullptr;  ///< instead of running the command
};

constexpr std::array kTools = {
    Tool{tool::kDcbPfc, "dcb -j pfc show dev %", ask_dcb_pfc},
    Tool{tool::kDcbApp, "dcb -j app show dev %", ask_dcb_app},
    Tool{tool::kDcbEts, "dcb -j ets show dev %", ask_dcb_ets},
    Tool{tool::kDcbBuffer, "dcb -j buffer show dev %", ask_dcb_buffer},
    Tool{tool::kDcbx, "dcb -j dcbx show dev %", ask_dcbx},
    Tool{tool::kMlnxQos, "mlnx_qos -i %"},
    Tool{tool::kNiccli, "niccli --dev % qos --ets --show"},
    Tool{tool::kEthtoolStatistics, "ethtool -S %", ethtool_statistics},
    Tool{tool::kEthtoolPause, "ethtool -a %", ethtool_pause},
    Tool{tool::kVerbsDevices, "ibv_devinfo -v", verbs_devices},
    Tool{tool::kDmabuf, "ibv_reg_dmabuf_mr(fd -1)", dmabuf_answers},
    Tool{tool::kCudaDmabuf, "cuDeviceGetAttribute(DMA_BUF_SUPPORTED)", cuda_dmabuf_answers},
    Tool{tool::kMlxconfig, "mlxconfig -d % -e query", firmware_settings},
    Tool{tool::kNetconf, "ip -4 netconf show dev %"},
    Tool{tool::kRdmaSystem, "rdma system"},
    Tool{tool::kNeighbours, "ip neigh show", neighbours},
    Tool{tool::kShowGids, "show_gids", given_only},
    Tool{tool::kLspci, "lspci -vvv", given_only},
    Tool{tool::kHypervisor, "grep -o hypervisor /proc/cpuinfo", hypervisor},
    Tool{tool::kDaemons, "pgrep -l lldpad", running_daemons},
    Tool{tool::kKernelSymbols, "grep ib_register_peer_memory_client /proc/kallsyms", kernel_symbols},
};

const Tool* find_tool(std::string_view name) {
  for (const Tool& tool : kTools) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

std::vector<std::string> words_of(const Tool& tool, const std::string& subject) {
  std::vector<std::string> words;
  std::string_view rest = tool.command;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    words.push_back(word == "%" ? subject : std::string{word});
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return words;
}

Answer running_daemons(const std::string& /*subject*/) {
  const Answer processes = list_folder("/proc");
  if (!processes.ok()) return processes;
  Answer answer;
  std::size_t begin = 0;
  while (begin < processes.text.size()) {
    const std::size_t end = processes.text.find('\n', begin);
    const std::string name = processes.text.substr(begin, end - begin);
    begin = end + 1;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_file("/proc/" + name + "/comm").text == "lldpad\n") answer.text = "lldpad\n";
  }
  return answer;
}

Answer hypervisor(const std::string& /*subject*/) {
  const Answer line = find_line("/proc/cpuinfo", " hypervisor");
  return {line.text.empty() ? "" : "hypervisor\n", line.error};
}

Answer kernel_symbols(const std::string& /*subject*/) {
  return find_line("/proc/kallsyms", " ib_register_peer_memory_client");
}

}  // namespace

std::string tool_command(std::string_view name, std::string_view subject) {
  const Tool* tool = find_tool(name);
  if (tool == nullptr) return std::string{name};
  std::string command;
  for (const std::string& word : words_of(*tool, std::string{subject}))
    command.append(command.empty() ? "" : " ").append(word);
  return command;
}

Answer run_tool(const std::string& name) {
  const auto space = name.find(' ');
  const Tool* tool = find_tool(std::string_view{name}.substr(0, space));
  if (tool == nullptr) return {{}, ENOENT};
  const std::string subject = space == std::string::npos ? std::string{} : name.substr(space + 1);
  if (subject.starts_with('-')) return {{}, EINVAL};  // never an option
  return tool->answers != nullptr ? tool->answers(subject) : run_program(words_of(*tool, subject));
}

}  // namespace tensorwire::host
