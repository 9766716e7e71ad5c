#include "comm/c_api_config.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

using namespace tensorwire;

namespace {

/// The field, or `fallback` where it is TW_UNDEFINED.
int field(const char* name, int value, int fallback, int lowest, int highest) {
  if (value == TW_UNDEFINED) return fallback;
  if (value >= lowest && value <= highest) return value;
  throw Error{"read a twConfig_t", fmt::format("{} is {}; {} to {} is possible", name, value, lowest, highest),
              "Begin with TW_CONFIG_INITIALIZER"};
}

}  // namespace

bool blocks(const twConfig_t& config) { return field("blocking", config.blocking, 1, 0, 1) == 1; }

comm::CommOptions options_from(const twConfig_t& config) {
  if (config.size != sizeof config) {
    throw Error{"read a twConfig_t", fmt::format("its size is {}, here it is {}", config.size, sizeof config),
                "Begin with TW_CONFIG_INITIALIZER, and compile against the header of the library that is loaded"};
  }
  comm::CommOptions options;
  if (config.device != nullptr) options.device = config.device;
  options.gid_index = field("gidIndex", config.gidIndex, options.gid_index, 0, UINT8_MAX);
  const int path = field("path", config.path, twPathAuto, twPathAuto, twPathPackets);
  options.path = path == twPathPackets ? comm::PathChoice::kPackets : comm::PathChoice::kAuto;
  options.queue_pairs_per_peer =
      static_cast<std::uint32_t>(field("queuePairsPerPeer", config.queuePairsPerPeer, 1, 1, 64));
  options.dscp = static_cast<std::uint8_t>(field("dscp", config.dscp, options.dscp, 0, 63));
  options.depth = static_cast<std::uint32_t>(field("depth", config.depth, static_cast<int>(options.depth), 2, 64));
  options.slot_payload_bytes = static_cast<std::uint64_t>(field("slotBytes", config.slotBytes, 0, 128, 1 << 30));
  options.operation_timeout =
      kMillisecond * field("operationTimeoutMs", config.operationTimeoutMs,
                           static_cast<int>(options.operation_timeout / kMillisecond), 0, INT_MAX);
  options.straggler_warning =
      kMillisecond *
      field("warningMs", config.warningMs, static_cast<int>(options.straggler_warning / kMillisecond), 0, INT_MAX);
  options.order =
      static_cast<collective::Order>(field("order", config.order, twOrderAny, twOrderAny, twOrderBatchInvariant));
  return options;
}
