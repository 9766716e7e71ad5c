// The GID table of one device: which index names which address in which RoCE version. Two layouts exist, so that a
// program that insists on an index fails here the way it fails on the NIC that it was written for.
#pragma once

#include <string_view>
#include <vector>

#include "softhca/hca.hpp"

namespace tensorwire::softhca {

enum class GidLayout : std::uint8_t {
  kV2Only,    ///< 0 link-local, 1 IPv4: as rxe, irdma and newer bnxt_re
  kConnectX,  ///< 0,1 link-local and 2,3 IPv4, each as a v1/v2 pair: as mlx5
};

/// TENSORWIRE_GID_LAYOUT. @throws Error on another word than v2 or connectx.
[[nodiscard]] GidLayout gid_layout_from_environment();

/// IPv6 cannot be bound yet, so link-local indices are empty.
[[nodiscard]] std::vector<GidEntry> make_gid_table(std::uint32_t ipv4, GidLayout layout);

}  // namespace tensorwire::softhca
