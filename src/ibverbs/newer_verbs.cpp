// Verbs of releases of rdma-core newer than the headers this is built with (nodes 1.15 to 1.18 of the ABI). Programs
// look them up, find that this HCA has not got them, and go on. Their types are unknown here, but a C function may be
// called with arguments that it does not take: the caller passes them in registers and on its own stack.
#include "ibverbs/export.hpp"

namespace tw = tensorwire::ibverbs;

// Their own header, if it comes to be, must not be included here.
#define TENSORWIRE_NEWER_POINTER(name, feature) \
  TENSORWIRE_VERB void* name() { return tw::fail<void>(tw::not_supported(feature)); }
#define TENSORWIRE_NEWER_STATUS(name, feature) \
  TENSORWIRE_VERB int name() { return tw::not_supported(feature); }

TENSORWIRE_NEWER_POINTER(ibv_alloc_dmah, "DMA handles")
TENSORWIRE_NEWER_STATUS(ibv_dealloc_dmah, "DMA handles")
TENSORWIRE_NEWER_POINTER(ibv_reg_mr_ex, "extended memory registration")
TENSORWIRE_NEWER_STATUS(ibv_query_port_speed, "port speed queries")
TENSORWIRE_NEWER_POINTER(ibv_alloc_buf, "buffers from the provider")
TENSORWIRE_NEWER_STATUS(ibv_free_buf, "buffers from the provider")
TENSORWIRE_NEWER_POINTER(ibv_reg_buf_mr, "buffers from the provider")
TENSORWIRE_NEWER_STATUS(_ibv_query_comp_cntr_caps, "completion counters")
TENSORWIRE_NEWER_POINTER(ibv_create_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_destroy_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_inc_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_inc_err_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_qp_attach_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_read_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_read_err_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_set_comp_cntr, "completion counters")
TENSORWIRE_NEWER_STATUS(ibv_set_err_comp_cntr, "completion counters")

/// A descriptor, so -1 and errno.
TENSORWIRE_VERB int ibv_dm_export_dmabuf_fd() { return tw::minus_one(tw::not_supported("device memory")); }
