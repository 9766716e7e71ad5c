// A host that exists only as answers: healthy to begin with, one for each family of NICs. A test breaks one thing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/facts/host.hpp"
#include "host/tree/recording.hpp"

namespace tensorwire::host::test {

enum class Kind { kMlx5, kOfed, kBroadcom, kIntel, kRxe, kNone };
inline constexpr Kind kKinds[] = {Kind::kMlx5, Kind::kOfed, Kind::kBroadcom, Kind::kIntel, Kind::kRxe, Kind::kNone};
[[nodiscard]] const char* to_string(Kind kind);

/// What differs between a host's NICs.
struct Nic {
  std::string device;   ///< "mlx5_0"
  std::string netdev;   ///< "eth2"
  std::string address;  ///< "192.0.2.10"
  std::string subnet;   ///< "192.0.2.0", of 26 bits
  std::string pci;      ///< "0000:3d:00.0"

  [[nodiscard]] std::string ib() const { return "/sys/class/infiniband/" + device; }
  [[nodiscard]] std::string port() const { return ib() + "/ports/1"; }
  [[nodiscard]] std::string net() const { return "/sys/class/net/" + netdev; }
};

class TestHost {
 public:
  /// Two NICs with a GPU each, a job that marks its packets, nothing wrong.
  explicit TestHost(Kind kind);

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::vector<Nic>& nics() const noexcept { return nics_; }
  [[nodiscard]] const Nic& nic(std::size_t i = 0) const { return nics_.at(i); }

  TestHost& file(const std::string& path, const std::string& text);
  TestHost& fails(const std::string& path, int error);
  /// The file and all below it.
  TestHost& gone(const std::string& path);
  TestHost& link(const std::string& path, const std::string& target);
  TestHost& no_link(const std::string& path);
  TestHost& tool(std::string_view tool, const std::string& subject, const std::string& text);
  TestHost& no_tool(std::string_view tool, const std::string& subject);
  /// A variable of the job; an empty value takes it away.
  TestHost& set(const std::string& name, const std::string& value);
  TestHost& log(const std::string& text);
  /// libibverbs shows this device to programs, too.
  TestHost& shows(const std::string& device);

  TestHost& gid(const Nic& nic, unsigned index, const std::string& address, const std::string& type);
  TestHost& no_gid(const Nic& nic, unsigned index);
  /// What CUDA says of DMA-BUF.
  TestHost& cuda_dmabuf(bool supported);
  /// A setting of the NIC's firmware, as its tool prints it.
  TestHost& firmware(const Nic& nic, const std::string& name, const std::string& value);
  TestHost& hw_counter(const Nic& nic, const std::string& name, std::uint64_t value);
  /// Lines "name: value" to add to `ethtool -S`.
  TestHost& statistics(const Nic& nic, const std::map<std::string, std::uint64_t>& values);
  /// PCI configuration space with the control word of ACS (no ACS where negative) and relaxed ordering.
  TestHost& config(const std::string& pci, int acs_control, bool relaxed_ordering = true);

  [[nodiscard]] Recording& tree();
  [[nodiscard]] const std::string& log_text() const noexcept { return log_; }
  [[nodiscard]] Host facts();

 private:
  void add_nic(const Nic& nic, unsigned number);
  void add_gpu(const std::string& pci, unsigned number);
  void add_pci(const std::string& pci, const std::string& path, const std::string& driver);
  void add_qos(const Nic& nic);
  void add_ofed_qos(const Nic& nic);
  void add_process();
  void write_environment();
  void write_folders();

  Kind kind_;
  std::vector<Nic> nics_;
  Recording tree_;
  std::map<std::string, std::set<std::string>> folders_;
  std::map<std::string, std::string> variables_;
  std::map<std::string, std::map<std::string, std::uint64_t>> statistics_;
  std::string log_;
  std::string shown_devices_;
};

}  // namespace tensorwire::host::test
