/* An all-reduce of 64 Ki floats between the ranks of a launcher, in C:
 *   torchrun --no-python --nproc-per-node 2 ./all_reduce_c     or     mpirun -n 2 ./all_reduce_c
 * Without a launcher: RANK=0 WORLD_SIZE=2 ./all_reduce_c & RANK=1 WORLD_SIZE=2 ./all_reduce_c */
#include <stdio.h>
#include <tensorwire/tensorwire.h>

#define COUNT 65536

static int fail(const char* what, twComm_t comm) {
  fprintf(stderr, "%s: %s\n", what, twGetLastError(comm));
  return 1;
}

int main(void) {
  static float tensor[COUNT];
  twComm_t comm = NULL;
  int rank = 0, ranks = 0;

  if (twCommInitFromEnv(&comm, NULL) != twSuccess) return fail("twCommInitFromEnv", NULL);
  twCommUserRank(comm, &rank);
  twCommCount(comm, &ranks);
  for (int i = 0; i < COUNT; ++i) tensor[i] = (float)(rank + 1);

  if (twAllReduce(tensor, tensor, COUNT, twFloat32, twSum, comm, NULL) != twSuccess) return fail("twAllReduce", comm);

  printf("rank %d of %d: every element is %g\n", rank, ranks, tensor[0]);
  return twCommDestroy(comm) == twSuccess ? 0 : 1;
}
