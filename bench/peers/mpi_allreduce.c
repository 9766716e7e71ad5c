/* All-reduces (sum of fp32) of one size by whatever MPI this is compiled with, timed as `tensorwire bench allreduce`
 * times its own: the same buffers each time, latency is the slowest rank's of each iteration, results are checked.
 *
 *   mpirun -n RANKS mpi_allreduce BYTES ITERATIONS WARMUP        prints {"p50_us":..,"p99_us":..,"wrong":..} */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b) {
  const double difference = *(const double *)a - *(const double *)b;
  return difference < 0 ? -1 : difference > 0;
}

/* Small whole numbers: their sum is exact in any order. */
static float input(int rank, size_t index) { return (float)((index * 7 + (size_t)rank * 13) % 101); }

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) {
    fprintf(stderr, "usage: mpi_allreduce BYTES ITERATIONS WARMUP\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const size_t count = strtoul(argv[1], NULL, 10) / sizeof(float);
  const int iterations = atoi(argv[2]), warmup = atoi(argv[3]);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  float *in = malloc(count * sizeof *in), *out = malloc(count * sizeof *out);
  double *mine = malloc((size_t)iterations * sizeof *mine), *slowest = malloc((size_t)iterations * sizeof *slowest);
  if (!in || !out || !mine || !slowest) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t i = 0; i < count; ++i) in[i] = input(rank, i);

  for (int i = -warmup; i < iterations; ++i) {
    const double began = MPI_Wtime();
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 0) mine[i] = MPI_Wtime() - began;
  }

  long wrong = 0, all_wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += input(r, i);
    wrong += out[i] != sum;
  }
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(mine, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    qsort(slowest, (size_t)iterations, sizeof *slowest, by_value);
    printf("{\"p50_us\":%.2f,\"p99_us\":%.2f,\"wrong\":%ld}\n", slowest[iterations / 2] * 1e6,
           slowest[iterations * 99 / 100] * 1e6, all_wrong);
  }
  MPI_Finalize();
  return 0;
}
