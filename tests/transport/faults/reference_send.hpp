// A posted send request as every reference queue pair keeps it, whatever its service.
#pragma once

#include <cstdint>

#include "sge_list.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport::faults {

struct ReferenceSend {
  std::uint64_t wr_id;
  WrOpcode opcode;
  bool signaled;
  bool solicited;
  bool inline_data;
  std::uint32_t immediate;
  std::uint32_t length;
  SgeList sges;
  std::uint64_t remote_address;  ///< of a connection's WRITEs, READs and atomics
  std::uint32_t rkey;
  std::uint64_t first = 0;  ///< number of its first packet, once that is known
};

}  // namespace tensorwire::transport::faults
