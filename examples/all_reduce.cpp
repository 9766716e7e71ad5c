// An all-reduce between the ranks of a launcher, in ten lines of C++:
//   torchrun --no-python --nproc-per-node 2 ./all_reduce_cpp     or     mpirun -n 2 ./all_reduce_cpp
#include <cstdio>
#include <tensorwire/tensorwire.hpp>
#include <vector>

int main() try {
  auto comm = tensorwire::Communicator::from_env();
  std::vector<float> tensor(65'536, static_cast<float>(comm.rank() + 1));
  comm.all_reduce<float>(tensor);
  std::printf("rank %d of %d: every element is %g\n", comm.rank(), comm.size(), static_cast<double>(tensor[0]));
} catch (const tensorwire::CommunicatorError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
