// NVIDIA GPUs and what lets a NIC reach their memory.
#pragma once

#include <string>
#include <vector>

#include "host/fact.hpp"
#include "host/facts/pci.hpp"

namespace tensorwire::host {

struct Gpu {
  PciDevice pci;
  Fact<std::string> model;  ///< "NVIDIA H100 80GB HBM3"
};

struct GpuDriver {
  Fact<std::string> version;       ///< "550.54.15"; unknown with ENOENT: no NVIDIA driver
  Fact<bool> open_kernel_modules;  ///< DMA-BUF needs them
  Fact<bool> legacy_peermem;       ///< nv_peer_mem registered with ib_core: every NCCL finds that one
  Fact<bool> nvidia_peermem;       ///< the module is loaded, which is no proof that it works
  Fact<unsigned> peermem_users;    ///< reference count of that module
  Fact<bool> cuda_dmabuf;          ///< what CUDA itself says (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), of all GPUs
  Fact<bool> peer_memory_api;  ///< ib_core has ib_register_peer_memory_client (MLNX_OFED's has, the kernel's has not)
};

}  // namespace tensorwire::host
