// Counters of whichever HCA: the kernel shows rxe's in sysfs, the soft HCA's are a direct verb.
#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "ibverbs/direct.h"
#include "station.hpp"

namespace tensorwire::rxe {

namespace {

constexpr auto kSoftNames = std::to_array<const char*>(
    {"port_xmit_packets", "port_rcv_packets", "retransmitted_packets", "out_of_sequence", "packet_seq_err",
     "local_ack_timeout_err", "duplicate_request", "implied_nak_seq_err", "rnr_nak_retry_err", "out_of_buffer",
     "rx_icrc_encapsulated", "rx_discards", "rx_malformed", "rx_dropped", "tx_sends", "tx_errors"});

auto soft_counter() { return reinterpret_cast<decltype(&twdv_counter)>(dlsym(RTLD_DEFAULT, "twdv_counter")); }

}  // namespace

bool on_soft_hca() { return soft_counter() != nullptr; }

std::vector<std::pair<std::string, std::uint64_t>> counters(ibv_context* context) {
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, std::uint64_t>> found;
  if (const auto read = soft_counter()) {
    for (const char* name : kSoftNames) {
      std::uint64_t value = 0;
      if (read(context, name, &value) == 0) found.emplace_back(name, value);
    }
    return found;
  }
  const fs::path folder = fs::path{context->device->ibdev_path} / "ports/1/hw_counters";
  for (const fs::directory_entry& entry : fs::directory_iterator{folder}) {
    std::uint64_t value = 0;
    if (entry.is_regular_file() && entry.path().filename() != "lifespan" && std::ifstream{entry.path()} >> value) {
      found.emplace_back(entry.path().filename(), value);
    }
  }
  return found;
}

}  // namespace tensorwire::rxe
