// The GID table of one device: which index names which address in which RoCE version. Two layouts exist, so that a
// program that insists on an index fails here the way it fails on the NIC that it was written for. An address keeps its
// index for as long as the interface has it; an index whose address went is empty, and may be taken by a newcomer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "softhca/hca.hpp"

namespace tensorwire::softhca {

enum class GidLayout : std::uint8_t {
  kV2Only,    ///< 0 link-local, 1 IPv4, then other IPv6: as rxe, irdma and newer bnxt_re
  kConnectX,  ///< 0,1 link-local, 2,3 IPv4, then other IPv6, each as a v1/v2 pair: as mlx5
};

/// TENSORWIRE_GID_LAYOUT. @throws Error on another word than v2 or connectx.
[[nodiscard]] GidLayout gid_layout_from_environment();

class GidTable {
 public:
  /// Addresses that a table has room for; further ones are not in it.
  static constexpr std::size_t kAddresses = 16;

  explicit GidTable(GidLayout layout) noexcept : layout_(layout) {}

  /// The addresses that can be bound now, in any order: the IPv4 one of the device (or none) and IPv6 ones.
  void update(std::span<const wire::Gid> bindable);

  /// kAddresses entries, with kConnectX twice as many; an empty one has a zero GID.
  [[nodiscard]] std::vector<GidEntry> entries() const;

 private:
  [[nodiscard]] wire::Gid* place_for(const wire::Gid& gid) noexcept;

  GidLayout layout_;
  std::array<wire::Gid, kAddresses> addresses_;  ///< [0] link-local, [1] IPv4
};

}  // namespace tensorwire::softhca
