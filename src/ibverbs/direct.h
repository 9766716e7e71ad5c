/* Direct verbs of the Tensorwire HCA: what libibverbs has no call for, in the manner of mlx5dv. Programs look the
 * symbols up with dlsym and do without them on any other provider. C, stable ABI. */
#ifndef TENSORWIRE_IBVERBS_DIRECT_H
#define TENSORWIRE_IBVERBS_DIRECT_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum twdv_link { TWDV_LINK_AUTO = 0, TWDV_LINK_PACKETS = 1 };

/* Before RTR: how the packets of this queue pair may travel. Returns 0 or an errno. */
int twdv_set_link(struct ibv_qp *qp, enum twdv_link link);
/* One line on how they do travel; valid after RTR. Returns 0 or an errno. */
int twdv_link_description(struct ibv_qp *qp, char *text, size_t size);
/* The value of a counter by its mlx5 name; returns 0, or ENOENT. */
int twdv_counter(struct ibv_context *context, const char *name, uint64_t *value);

#ifdef __cplusplus
}
#endif

#endif
