// Rails: the subnet of the NIC that each GPU has nearest.
#pragma once

#include <string>
#include <vector>

#include "host/facts/host.hpp"

namespace tensorwire::host {

struct Rail {
  std::string gpu;     ///< PCI address
  std::string device;  ///< "mlx5_0"
  Subnet subnet;
};

/// By PCI address of the GPUs; empty where a GPU has no NIC nearer than a CPU socket, or two that are equally near, or
/// a NIC no IPv4 subnet: then there is no order to speak of.
[[nodiscard]] std::vector<Rail> rails_by_gpu(const Host& host);

/// The place of each rail's subnet among all of them: 0 1 2 3 where they ascend.
[[nodiscard]] std::vector<unsigned> order_of(const std::vector<Rail>& rails);

}  // namespace tensorwire::host
