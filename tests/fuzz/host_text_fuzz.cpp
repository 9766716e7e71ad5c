// Any text as what a tool printed, as a recording, and as every file of a host at once: no crash, and what is read of a
// recording is written and read as the same.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "host/configure/difference.hpp"
#include "host/configure/witness.hpp"
#include "host/parse/counters.hpp"
#include "host/parse/lspci.hpp"
#include "host/parse/mlxconfig.hpp"
#include "host/parse/nccl_log.hpp"
#include "host/parse/network.hpp"
#include "host/parse/pci.hpp"
#include "host/parse/qos_text.hpp"
#include "host/parse/rdma_text.hpp"
#include "host/parse/switch_counters.hpp"
#include "host/parse/systemd.hpp"
#include "host/read/read.hpp"
#include "host/report.hpp"
#include "host/tree/escape.hpp"
#include "host/tree/recording.hpp"

namespace {

using namespace tensorwire::host;

/// A host with one device, whose every file and tool says the same.
class Parrot final : public Tree {
 public:
  explicit Parrot(std::string_view text) : text_(text) {}
  Answer answer(Ask kind, const std::string& name) override {
    if (kind == Ask::kNames) return {name.ends_with("/ports") ? "1\n" : name.ends_with("s") ? "0\n" : "a\n", 0};
    return {std::string{text_}, 0};
  }

 private:
  std::string_view text_;
};

void as_host(std::string_view text) {
  Parrot tree{text};
  Host host = read_host(tree);
  host.nccl_log = parse_nccl_log(text, "log");
  const Diagnosis diagnosis = diagnose(host);
  static_cast<void>(report_text(host, diagnosis, true));
  static_cast<void>(report_json(host, diagnosis));
  for (const char* driver : {"mlx5_core", "bnxt_en"}) {
    PortState port = read_port_state(tree, "eth2");
    port.driver = {driver, "fuzz"};
    static_cast<void>(find_difference(port, {}));
    static_cast<void>(witnesses(tree, port, {}));
  }
}

void as_recording(std::string_view text) {
  try {
    const std::string written = Recording::from_text(text, "fuzz").to_text();
    if (Recording::from_text(written, "fuzz").to_text() != written) std::abort();
  } catch (const tensorwire::Error&) {
  }
}

void as_tool(std::string_view text) {
  static_cast<void>(parse_dcb_pfc(text));
  static_cast<void>(parse_dcb_app(text));
  static_cast<void>(parse_dcb_ets(text));
  static_cast<void>(parse_dcb_buffer(text));
  static_cast<void>(parse_dcbx(text));
  static_cast<void>(parse_dscp2prio(text));
  static_cast<void>(parse_mlxconfig(text));
  static_cast<void>(fabric_settings(text));
  static_cast<void>(parse_mlnx_qos(text));
  static_cast<void>(parse_switch_counters(text));
  static_cast<void>(parse_niccli_qos(text));
  static_cast<void>(parse_show_gids(text, ""));
  static_cast<void>(parse_ibv_devinfo(text, ""));
  static_cast<void>(parse_ipv4_routes(text));
  static_cast<void>(parse_ipv6_routes(text));
  static_cast<void>(parse_neighbours(text));
  const auto devices = parse_lspci(text);
  for (const LspciDevice& device : devices) static_cast<void>(path_of(device, devices));
  static_cast<void>(parse_ethtool_statistics(text));
  static_cast<void>(parse_nccl_conf(text));
  static_cast<void>(bytes_of_limit(limit_memlock_in(text).value_or(text)));
  static_cast<void>(service_in(text));
  static_cast<void>(path_in(text));
  static_cast<void>(bar1_in(text));
}

void as_bytes(std::string_view text) {
  if (unescaped(escaped(text)) != text) std::abort();
  std::string config{text};
  config.resize(4096);
  static_cast<void>(acs_in(config));
  static_cast<void>(relaxed_ordering_in(config));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr std::array kUses = {as_host, as_recording, as_tool, as_bytes};
  kUses[data[0] % kUses.size()]({reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
