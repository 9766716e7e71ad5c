// What several field cases say: lines of a log, drivers and models.
#pragma once

#include <string>

#include "host/test_host.hpp"

namespace tensorwire::host::test {

inline const std::string kFieldDevices = "/sys/bus/pci/devices/";

inline void warns(TestHost& host, const std::string& line) {
  host.log("host-a:1201:1377 [0] transport/net_ib.cc:1250 NCCL WARN " + line + "\n");
}
inline void informs(TestHost& host, const std::string& line) {
  host.log("host-a:1201:1201 [0] NCCL INFO " + line + "\n");
}

inline void closed_driver(TestHost& host) {
  host.file("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n")
      .cuda_dmabuf(false);
}

inline void models(TestHost& host, const std::string& name) {
  for (const char* pci : {"0000:3e:00.0", "0000:5e:00.0"}) {
    host.file(std::string{"/proc/driver/nvidia/gpus/"} + pci + "/information", "Model: \t\t " + name + "\n");
  }
}

}  // namespace tensorwire::host::test
