// Connections of the tests of UC.
#pragma once

#include "lab.hpp"

namespace tensorwire::transport::test {

inline constexpr std::uint32_t kUcMtu = 256;

inline Connection uc(std::uint32_t access = kEveryAccess) {
  Connection c;
  c.mtu = MtuCode::k256;
  c.access = access;
  c.type = QpType::kUc;
  return c;
}

}  // namespace tensorwire::transport::test
