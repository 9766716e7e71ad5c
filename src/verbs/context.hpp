// An open RDMA device with its port and its chosen GID: the root that protection domains, queues and queue pairs hang
// on. Everything made from a Context shares ownership of it, so destruction order cannot go wrong.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verbs/gid.hpp"
#include "verbs/library.hpp"

namespace tensorwire::verbs {

/// What the user asks for; all defaults: the automatic choice.
struct DeviceWish {
  std::string device;            ///< "", "soft", "soft1", "mlx5_0" or "mlx5_0:2" (port after the colon)
  std::optional<int> gid_index;  ///< --gid-index or TENSORWIRE_GID_INDEX
  std::optional<Gid> route_to;   ///< a peer's address: prefer the GID whose interface routes to it

  // Where peers are on other hosts, no automatic choice is a device of the loopback interface.
  bool has_peers_elsewhere = false;
  std::optional<Gid> peer_elsewhere = std::nullopt;  ///< an address of one, where it is known
};

/// What happened to a device since it was last asked.
struct DeviceNews {
  bool any = false;        ///< something did that may concern the path: problem() is up to date
  bool gid_moved = false;  ///< the address has another index: queue pairs should take it (reroute_qp)
};

class Context {
 public:
  /// Chooses library, device, port and GID by the rules of device_choice.hpp and gid.hpp, and opens it. What the wish
  /// leaves open is taken from TENSORWIRE_DEVICE and TENSORWIRE_GID_INDEX.
  /// @throws Error with one line that says why and what to do.
  [[nodiscard]] static std::shared_ptr<Context> open(const DeviceWish& wish);

  /// As open(), on a library that the caller chose, and without a look at the environment.
  [[nodiscard]] static std::shared_ptr<Context> open_on(std::shared_ptr<const Library> library, const DeviceWish& wish,
                                                        std::string reason);

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// One line: device, port, GID index and address, RoCE version, provider, MTU, and why they were chosen.
  [[nodiscard]] std::string describe() const;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool is_soft() const noexcept { return library_->is_soft(); }
  [[nodiscard]] std::uint8_t port() const noexcept { return port_; }
  [[nodiscard]] int gid_index() const noexcept { return gid_.entry.index; }
  [[nodiscard]] const Gid& gid() const noexcept { return gid_.entry.gid; }
  /// Of that GID: "eth2"; empty where unknown.
  [[nodiscard]] const std::string& netdev() const noexcept { return gid_.entry.netdev; }
  [[nodiscard]] ibv_mtu mtu() const noexcept { return mtu_; }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept { return limits_; }
  [[nodiscard]] ibv_context* raw() const noexcept { return context_; }
  [[nodiscard]] const Functions& call() const noexcept { return library_->call(); }
  [[nodiscard]] const DirectFunctions& direct() const noexcept { return library_->direct(); }

  /// Takes the device's asynchronous events, never waiting for one. Where they concern port or GIDs, it looks again for
  /// the address that was chosen: gid_index() is where that stands now.
  DeviceNews take_news();
  /// Why packets cannot leave, as far as the news told: "port 1 is down", an address that is gone. "": nothing is
  /// wrong.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  /// A counter by the name mlx5 uses ("out_of_sequence", "local_ack_timeout_err", "rx_icrc_encapsulated"): from the
  /// HCA's direct verbs, else from sysfs hw_counters and counters; nullopt where there is none of that name.
  [[nodiscard]] std::optional<std::uint64_t> counter(std::string_view name) const;

 private:
  Context(std::shared_ptr<const Library> library, ibv_context* context) noexcept;

  void choose_port(std::optional<std::uint8_t> asked);
  DeviceNews look_again();
  void choose_gid_entry(std::optional<int> asked, const std::string& route_netdev);

  std::shared_ptr<const Library> library_;
  ibv_context* context_;
  std::string name_;
  std::string reason_;
  std::uint8_t port_ = 1;
  ibv_mtu mtu_ = IBV_MTU_1024;
  GidChoice gid_;
  std::string problem_;
  ibv_device_attr limits_{};
};

/// The GID table of an open device's port, empty entries left out.
[[nodiscard]] std::vector<GidFacts> read_gid_table(const Library& library, ibv_context* context, std::uint8_t port,
                                                   int table_length);

/// 256, 512, ... 4096.
[[nodiscard]] constexpr std::uint32_t mtu_bytes(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }

}  // namespace tensorwire::verbs
