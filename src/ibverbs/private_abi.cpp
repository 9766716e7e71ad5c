// The private half of libibverbs' ABI. Many programs link to libmlx5 or libefa, which do not load unless every function
// they import is there; a driver registers itself and is never asked for a device. So a registration is accepted and
// forgotten, and the commands to the kernel fail.
//
// The version node counts up with rdma-core: 34 (2021), 57 and 59 (2025), 64 and 65 (2026). Each name is defined in all
// of them.
#include "ibverbs/export.hpp"
#include "ibverbs/operations.hpp"

namespace tw = tensorwire::ibverbs;

extern "C" {

int tensorwire_private_status() { return EOPNOTSUPP; }
int tensorwire_private_zero() { return 0; }
void* tensorwire_private_null() { return tw::fail<void>(EOPNOTSUPP); }
int tensorwire_private_minus_one() { return tw::minus_one(EOPNOTSUPP); }
const char* tensorwire_private_ibv_wr_opcode_str() { return "unknown"; }
/// Read by drivers when the kernel takes a device away.
bool tensorwire_private_verbs_allow_disassociate_destroy = false;
/// The one function of this half that programs call themselves (ibv_devinfo).
int tensorwire_private_ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, unsigned* type) {
  return tw::query_gid_type(context, port, index, type);
}
}

// An alias of its own for each name and node: some assemblers allow one version per symbol.
#define TENSORWIRE_ALIAS(name, target, node)                                                 \
  asm(".globl tensorwire_" #node "_" #name "\n.set tensorwire_" #node "_" #name ", " #target \
      "\n.symver tensorwire_" #node "_" #name ", " #name "@IBVERBS_PRIVATE_" #node);
#define TENSORWIRE_IN_ALL_NODES(name, target) \
  TENSORWIRE_ALIAS(name, target, 34)          \
  TENSORWIRE_ALIAS(name, target, 57)          \
  TENSORWIRE_ALIAS(name, target, 59)          \
  TENSORWIRE_ALIAS(name, target, 64)          \
  TENSORWIRE_ALIAS(name, target, 65)

#define TENSORWIRE_PRIVATE_STATUS(name) TENSORWIRE_IN_ALL_NODES(name, tensorwire_private_status)
#define TENSORWIRE_PRIVATE_ZERO(name) TENSORWIRE_IN_ALL_NODES(name, tensorwire_private_zero)
#define TENSORWIRE_PRIVATE_NULL(name) TENSORWIRE_IN_ALL_NODES(name, tensorwire_private_null)
#define TENSORWIRE_PRIVATE_MINUS_ONE(name) TENSORWIRE_IN_ALL_NODES(name, tensorwire_private_minus_one)
#define TENSORWIRE_PRIVATE_OTHER(name) TENSORWIRE_IN_ALL_NODES(name, tensorwire_private_##name)
#include "ibverbs/private_abi.inc"

TENSORWIRE_ALIAS(verbs_register_driver_34, tensorwire_private_zero, 34)
TENSORWIRE_ALIAS(verbs_register_driver_57, tensorwire_private_zero, 57)
TENSORWIRE_ALIAS(verbs_register_driver_59, tensorwire_private_zero, 59)
TENSORWIRE_ALIAS(verbs_register_driver_64, tensorwire_private_zero, 64)
TENSORWIRE_ALIAS(verbs_register_driver_65, tensorwire_private_zero, 65)
