#include "host/test_host.hpp"

#include <cerrno>
#include <cstring>

#include "host/parse/nccl_log.hpp"
#include "host/read/read.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

const std::string kPci = "/sys/bus/pci/devices/";

/// 39 characters, as sysfs writes GIDs.
std::string gid_text(const std::string& address) {
  const auto parsed = parse_address(address);
  std::string text;
  for (std::size_t i = 0; parsed && i < 16; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%s%02x", i > 0 && i % 2 == 0 ? ":" : "", parsed->bytes[i]);
    text += hex;
  }
  return text + "\n";
}

const char* driver_of(Kind kind) {
  switch (kind) {
    case Kind::kMlx5:
    case Kind::kOfed:
      return "mlx5_core";
    case Kind::kBroadcom:
      return "bnxt_en";
    case Kind::kIntel:
      return "ice";
    default:
      return "";
  }
}

/// ConnectX tables hold RoCE v1 and v2 of each address, the others v2 only.
bool has_pairs(Kind kind) { return kind == Kind::kMlx5 || kind == Kind::kOfed; }

std::string route_line(const std::string& netdev, const std::string& subnet) {
  const auto address = parse_address(subnet);
  char line[128];
  std::snprintf(line, sizeof line, "%s\t%02X%02X%02X%02X\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n", netdev.c_str(),
                address->bytes[15], address->bytes[14], address->bytes[13], address->bytes[12]);
  return line;
}

}  // namespace

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::kMlx5:
      return "mlx5";
    case Kind::kOfed:
      return "ofed";
    case Kind::kBroadcom:
      return "broadcom";
    case Kind::kIntel:
      return "intel";
    case Kind::kRxe:
      return "rxe";
    case Kind::kNone:
      return "none";
  }
  return "?";
}

TestHost::TestHost(Kind kind) : kind_(kind), tree_(ENOENT) {
  const std::map<Kind, std::string> prefixes{{Kind::kMlx5, "mlx5_"},
                                             {Kind::kOfed, "mlx5_"},
                                             {Kind::kBroadcom, "bnxt_re"},
                                             {Kind::kIntel, "irdma"},
                                             {Kind::kRxe, "rxe"}};
  file("/proc/sys/kernel/osrelease", "6.8.0-60-generic\n");
  file("/proc/meminfo", "MemTotal:       2113463532 kB\nCmaTotal:              0 kB\nCmaFree:               0 kB\n");
  tool(tool::kHypervisor, "", "");
  file("/sys/class/net/lo/mtu", "65536\n").file("/sys/class/net/lo/operstate", "unknown\n");
  file("/sys/class/net/eth0/mtu", "1500\n").file("/sys/class/net/eth0/operstate", "up\n");
  if (kind != Kind::kNone) {
    const std::string& prefix = prefixes.at(kind);
    nics_ = {{prefix + "0", "eth2", "192.0.2.10", "192.0.2.0", "0000:3d:00.0"},
             {prefix + "1", "eth3", "198.51.100.10", "198.51.100.0", "0000:5d:00.0"}};
    std::string routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
    for (unsigned i = 0; i < nics_.size(); ++i) {
      add_nic(nics_[i], i);
      routes += route_line(nics_[i].netdev, nics_[i].subnet);
    }
    file("/proc/net/route", routes);
    file("/proc/net/ipv6_route",
         "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 "
         "00000100 00000002 00000000 00000001     eth0\n");
    tool(tool::kNeighbours, "", "192.0.2.11 dev eth2 lladdr 0c:42:a1:03:00:0b REACHABLE\n");
    tool(tool::kDmabuf, "",
         nics_[0].device + (kind == Kind::kRxe ? " EOPNOTSUPP\n" : " EBADF\n") + nics_[1].device +
             (kind == Kind::kRxe ? " EOPNOTSUPP\n" : " EBADF\n"));
    tool(tool::kDaemons, "", "");
  }
  if (kind != Kind::kNone && kind != Kind::kRxe) {
    add_gpu("0000:3e:00.0", 0);
    add_gpu("0000:5e:00.0", 1);
  }
  add_process();
}

void TestHost::add_pci(const std::string& pci, const std::string& path, const std::string& driver) {
  link(kPci + pci, path);
  file(kPci + pci + "/numa_node", pci.starts_with("0000:3") ? "0\n" : "1\n");
  for (const char* which : {"current", "max"}) {
    file(kPci + pci + "/" + which + "_link_speed", "32.0 GT/s PCIe\n");
    file(kPci + pci + "/" + which + "_link_width", "16\n");
  }
  link(kPci + pci + "/iommu_group", "/sys/kernel/iommu_groups/7");
  file("/sys/kernel/iommu_groups/7/type", "identity\n");
  config(pci, -1);
  if (!driver.empty()) link(kPci + pci + "/driver", "/sys/bus/pci/drivers/" + driver);
}

void TestHost::add_nic(const Nic& nic, unsigned number) {
  const bool soft = kind_ == Kind::kRxe;
  if (soft) {
    file(nic.ib() + "/parent", nic.netdev + "\n");
  } else {
    // Root port, switch upstream port, a downstream port each for NIC (:00) and GPU (:01).
    const std::string bus = nic.pci.substr(0, 6);
    const std::string above = "/sys/devices/pci" + bus + "a/" + bus + "a:00.0/" + bus + "b:00.0/";
    add_pci(nic.pci, above + bus + "c:00.0/" + nic.pci, driver_of(kind_));
    config(bus + "a:00.0", 0x1d).config(bus + "b:00.0", -1).config(bus + "c:00.0", 0).config(bus + "c:01.0", 0x01);
    link(nic.ib() + "/device", above + bus + "c:00.0/" + nic.pci);
    link(nic.ib() + "/device/driver", std::string{"/sys/bus/pci/drivers/"} + driver_of(kind_));
    link(nic.net() + "/device", above + bus + "c:00.0/" + nic.pci);
  }
  shows(nic.device);
  file(nic.ib() + "/fw_ver", "28.39.1002\n")
      .file(nic.ib() + "/sys_image_guid", "0c42:a103:0000:000" + std::to_string(number) + "\n");
  file(nic.port() + "/state", "4: ACTIVE\n").file(nic.port() + "/phys_state", "5: LinkUp\n");
  file(nic.port() + "/rate", "400 Gb/sec (4X NDR)\n").file(nic.port() + "/link_layer", "Ethernet\n");
  for (unsigned index = 0; index < 8; ++index) no_gid(nic, index);
  const std::string local = "fe80::e42:a1ff:fe03:" + std::to_string(number + 1);
  unsigned index = 0;
  for (const std::string& address : {local, nic.address}) {
    if (has_pairs(kind_)) gid(nic, index++, address, "IB/RoCE v1");
    gid(nic, index++, address, "RoCE v2");
  }
  file(nic.port() + "/counters/port_rcv_data", "250000000000\n").file(nic.port() + "/counters/link_downed", "1\n");
  if (has_pairs(kind_)) {
    hw_counter(nic, "np_ecn_marked_roce_packets", 5000).hw_counter(nic, "np_cnp_sent", 4990);
    hw_counter(nic, "rp_cnp_handled", 3000).hw_counter(nic, "rp_cnp_ignored", 0);
    hw_counter(nic, "out_of_sequence", 3)
        .hw_counter(nic, "packet_seq_err", 2)
        .hw_counter(nic, "local_ack_timeout_err", 0);
  }
  if (kind_ == Kind::kIntel)
    hw_counter(nic, "cnpSent", 700).hw_counter(nic, "cnpHandled", 800).hw_counter(nic, "cnpIgnored", 0);
  if (kind_ == Kind::kBroadcom) hw_counter(nic, "tx_cnp_pkts", 700).hw_counter(nic, "rx_ecn_marked_pkts", 710);
  const std::string node = "uverbs" + std::to_string(number);
  const std::map<Kind, std::string> abis{{Kind::kIntel, "5"}, {Kind::kRxe, "2"}};
  const auto abi = abis.find(kind_);
  file("/sys/class/infiniband_verbs/" + node + "/ibdev", nic.device + "\n");
  file("/sys/class/infiniband_verbs/" + node + "/abi_version", (abi != abis.end() ? abi->second : "1") + "\n");
  file("/dev/infiniband/" + node, "");
  tree_.put(Ask::kOpens, "/dev/infiniband/" + node, {});
  file(nic.net() + "/mtu", "9000\n").file(nic.net() + "/operstate", "up\n");
  for (const char* name : {"arp_ignore", "arp_announce", "rp_filter"}) {
    file("/proc/sys/net/ipv4/conf/" + nic.netdev + "/" + name, "0\n");
  }
  if (soft) return;
  statistics(nic, {{"rx_prio0_bytes", 20'000'000},
                   {"rx_prio0_packets", 100'000},
                   {"rx_prio3_bytes", 1'000'000'000'000},
                   {"rx_prio3_packets", 250'000'000},
                   {"tx_prio3_pause", 1500},
                   {"rx_prio3_pause", 40},
                   {"link_down_events_phy", 1},
                   {"rx_oversize_pkts_phy", 0},
                   {"rx_pcs_symbol_err_phy", 0},
                   {"tx_pause_storm_warning_events", 0},
                   {"tx_pause_storm_error_events", 0}});
  tool(tool::kEthtoolPause, nic.netdev,
       "Pause parameters for " + nic.netdev + ":\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n");
  kind_ == Kind::kOfed ? add_ofed_qos(nic) : add_qos(nic);
}

void TestHost::add_qos(const Nic& nic) {
  tool(tool::kDcbPfc, nic.netdev,
       R"({"pfc_cap":8,"macsec_bypass":false,"delay":7,"prio_pfc":[false,false,false,true,false,false,false,false]})");
  tool(tool::kDcbApp, nic.netdev,
       kind_ == Kind::kBroadcom ? R"({"dscp_prio":[[26,3],[48,7]],"dgram_port_prio":[[4791,3]]})"
                                : R"({"dscp_prio":[[26,3],[48,6]]})");
  tool(tool::kDcbEts, nic.netdev,
       R"({"willing":false,"ets_cap":8,"cbs":false,"tc_bw":[9,8,8,50,8,8,0,9],"pg_bw":[0,0,0,0,0,0,0,0],)"
       R"("tc_tsa":["ets","ets","ets","ets","ets","ets","strict","ets"],"prio_tc":[1,0,2,3,4,5,6,7]})");
  tool(tool::kDcbx, nic.netdev, R"({"host":true,"ieee":true})");
}

void TestHost::add_ofed_qos(const Nic& nic) {
  std::string text = "DCBX mode: OS controlled\nPriority trust state: dscp\ndscp2prio mapping:\n";
  for (int priority = 0; priority < 8; ++priority) {
    text += "\tprio:" + std::to_string(priority) + " dscp:";
    for (int i = 7; i >= 0; --i) text += (priority * 8 + i < 10 ? "0" : "") + std::to_string(priority * 8 + i) + ",";
    text += "\n";
  }
  text +=
      "default priority:\nReceive buffer size (bytes): 19872,243072,0,0,0,0,0,0,max_buffer_size=2069280\nCable len: 7\n"
      "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"
      "\tenabled     0   0   0   1   0   0   0   0   \n\tbuffer      0   0   0   1   0   0   0   0   \n"
      "tc: 0 ratelimit: unlimited, tsa: vendor\n\t priority:  1\n"
      "tc: 1 ratelimit: unlimited, tsa: vendor\n\t priority:  0\n"
      "tc: 3 ratelimit: unlimited, tsa: vendor\n\t priority:  3\n";
  tool(tool::kMlnxQos, nic.netdev, text);
  for (int priority = 0; priority < 8; ++priority) {
    for (const char* end : {"roce_np", "roce_rp"}) {
      file(nic.net() + "/ecn/" + end + "/enable/" + std::to_string(priority), "1\n");
    }
  }
  file(nic.net() + "/ecn/roce_np/cnp_802p_prio", "6\n");
  file(nic.net() + "/ecn/roce_np/cnp_dscp", "48\n").file(nic.net() + "/qos/trust", "dscp\n");
  file(nic.ib() + "/tc/1/traffic_class", "");
}

void TestHost::add_gpu(const std::string& pci, unsigned number) {
  const std::string bus = pci.substr(0, 6);
  add_pci(pci, "/sys/devices/pci" + bus + "a/" + bus + "a:00.0/" + bus + "b:00.0/" + bus + "c:01.0/" + pci, "nvidia");
  file(kPci + pci + "/vendor", "0x10de\n").file(kPci + pci + "/class", "0x030200\n");
  file(kPci + pci + "/resource",
       "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
       "0x0000021000000000 0x0000022fffffffff 0x000000000014220c\n");
  file("/proc/driver/nvidia/gpus/" + pci + "/information",
       "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t GPU-11111111-2222-3333-4444-55555555555" +
           std::to_string(number) + "\nBus Location: \t " + pci + "\n");
  file("/proc/driver/nvidia/version",
       "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (builder@host)\n"
       "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n");
  file("/sys/module/nvidia_peermem/version", "570.86.10\n");
  cuda_dmabuf(true);
  tool(tool::kKernelSymbols, "",
       kind_ == Kind::kOfed ? "0000000000000000 T ib_register_peer_memory_client\t[ib_core]\n" : "");
}

void TestHost::add_process() {
  file("/proc/target/limits",
       "Limit                     Soft Limit           Hard Limit           Units     \n"
       "Max locked memory         unlimited            unlimited            bytes     \n"
       "Max address space         unlimited            unlimited            bytes     \n");
  file("/proc/target/maps",
       "7f0000000000-7f0000100000 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.39.0\n"
       "7f0000200000-7f0000300000 r-xp 00000000 08:01 2 /usr/lib/x86_64-linux-gnu/libnccl.so.2.27.3\n"
       "7f0000300000-7f0000400000 rw-p 00100000 08:01 2 /usr/lib/x86_64-linux-gnu/libnccl.so.2.27.3\n"
       "7f0000400000-7f0000500000 r-xp 00000000 08:01 3 /usr/lib/x86_64-linux-gnu/libc.so.6\n");
  set("HOME", "/root").set("API_TOKEN", "never to be recorded");
  if (kind_ != Kind::kNone) set("NCCL_IB_TC", "104").set("NCCL_DEBUG", "INFO");
}

TestHost& TestHost::file(const std::string& path, const std::string& text) {
  tree_.put(Ask::kText, path, {text, 0});
  for (std::string below = path; below.rfind('/') != 0;) {
    const std::string folder = below.substr(0, below.rfind('/'));
    folders_[folder].insert(below.substr(below.rfind('/') + 1));
    below = folder;
  }
  return *this;
}

TestHost& TestHost::fails(const std::string& path, int error) {
  file(path, "");
  tree_.put(Ask::kText, path, {{}, error});
  return *this;
}

TestHost& TestHost::gone(const std::string& path) {
  write_folders();
  tree_.filter([&path](Ask, std::string_view name, Answer&) { return name != path && !name.starts_with(path + "/"); });
  std::erase_if(folders_,
                [&path](const auto& entry) { return entry.first == path || entry.first.starts_with(path + "/"); });
  folders_[path.substr(0, path.rfind('/'))].erase(path.substr(path.rfind('/') + 1));
  return *this;
}

TestHost& TestHost::link(const std::string& path, const std::string& target) {
  const auto slash = path.rfind('/');
  folders_[path.substr(0, slash)].insert(path.substr(slash + 1));
  tree_.put(Ask::kTarget, path, {target, 0});
  return *this;
}

TestHost& TestHost::no_link(const std::string& path) {
  tree_.remove(Ask::kTarget, path);
  return *this;
}

TestHost& TestHost::tool(std::string_view tool, const std::string& subject, const std::string& text) {
  tree_.put(Ask::kTool, std::string{tool} + (subject.empty() ? "" : " ") + subject, {text, 0});
  return *this;
}

TestHost& TestHost::no_tool(std::string_view tool, const std::string& subject) {
  tree_.remove(Ask::kTool, std::string{tool} + (subject.empty() ? "" : " ") + subject);
  return *this;
}

TestHost& TestHost::set(const std::string& name, const std::string& value) {
  value.empty() ? static_cast<void>(variables_.erase(name)) : static_cast<void>(variables_[name] = value);
  return *this;
}

TestHost& TestHost::log(const std::string& text) {
  log_ += text;
  return *this;
}

TestHost& TestHost::shows(const std::string& device) {
  shown_devices_ +=
      "hca_id:\t" + device + "\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t4096 (5)\n";
  return tool(tool::kVerbsDevices, "", shown_devices_);
}

TestHost& TestHost::gid(const Nic& nic, unsigned index, const std::string& address, const std::string& type) {
  const std::string name = std::to_string(index);
  file(nic.port() + "/gids/" + name, gid_text(address));
  file(nic.port() + "/gid_attrs/types/" + name, type + "\n");
  return file(nic.port() + "/gid_attrs/ndevs/" + name, nic.netdev + "\n");
}

TestHost& TestHost::no_gid(const Nic& nic, unsigned index) {
  const std::string name = std::to_string(index);
  file(nic.port() + "/gids/" + name, gid_text("::"));
  fails(nic.port() + "/gid_attrs/types/" + name, EINVAL);
  return fails(nic.port() + "/gid_attrs/ndevs/" + name, EINVAL);
}

TestHost& TestHost::cuda_dmabuf(bool supported) {
  const std::string answer = supported ? " 1\n" : " 0\n";
  return tool(tool::kCudaDmabuf, "", "0000:3e:00.0" + answer + "0000:5e:00.0" + answer);
}

TestHost& TestHost::firmware(const Nic& nic, const std::string& name, const std::string& value) {
  const std::string now = value + "  ";
  return tool(tool::kMlxconfig, nic.pci,
              "\nDevice #1:\n----------\n\nDevice type:        ConnectX7           \nName:               "
              "MCX75310AAS-NEA_Ax  \nDevice:             " +
                  nic.pci +
                  "\n\nConfigurations:                              Default             Current         Next Boot\n"
                  "        ROCE_CC_PRIO_MASK_P1                255                 255             255\n*       " +
                  name + "    DEVICE_DEFAULT(0)    " + now + now + "\n");
}

TestHost& TestHost::hw_counter(const Nic& nic, const std::string& name, std::uint64_t value) {
  return file(nic.port() + "/hw_counters/" + name, std::to_string(value) + "\n");
}

TestHost& TestHost::statistics(const Nic& nic, const std::map<std::string, std::uint64_t>& values) {
  auto& all = statistics_[nic.netdev];
  for (const auto& [name, value] : values) all[name] = value;
  std::string text = "NIC statistics:\n";
  for (const auto& [name, value] : all) text += "     " + name + ": " + std::to_string(value) + "\n";
  return tool(tool::kEthtoolStatistics, nic.netdev, text);
}

TestHost& TestHost::config(const std::string& pci, int acs_control, bool relaxed_ordering) {
  std::string bytes(4096, '\0');
  const auto put = [&bytes](std::size_t at, std::initializer_list<int> values) {
    for (const int value : values) bytes[at++] = static_cast<char>(value);
  };
  put(0x34, {0x60});
  put(0x60, {0x10, 0x00, 0x02, 0x00, 0, 0, 0, 0, relaxed_ordering ? 0x10 : 0x00});
  put(0x100, {0x03, 0x00, 0x01, 0x15, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x7f});  // serial number; next: 0x150
  if (acs_control >= 0) put(0x150, {0x0d, 0x00, 0x01, 0x00, 0x5f, 0x00, acs_control, 0x00});
  return file(kPci + pci + "/config", bytes);
}

void TestHost::write_environment() {
  std::string text;
  for (const auto& [name, value] : variables_) text += name + "=" + value + std::string(1, '\0');
  file("/proc/target/environ", text);
}

void TestHost::write_folders() {
  for (const auto& [folder, names] : folders_) {
    std::string text;
    for (const std::string& name : names) text += name + "\n";
    tree_.put(Ask::kNames, folder, {text, 0});
  }
}

Recording& TestHost::tree() {
  write_environment();
  write_folders();
  return tree_;
}

Host TestHost::facts() {
  Host host = read_host(tree());
  if (!log_.empty()) host.nccl_log = parse_nccl_log(log_, "nccl.log");
  return host;
}

}  // namespace tensorwire::host::test
