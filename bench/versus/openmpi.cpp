// MPI_Allreduce. mpirun starts it; which byte transfer layer it uses is for run.py to say.
#include <mpi.h>

#include <cstdio>
#include <exception>

#include "library.hpp"

namespace tensorwire::versus {

namespace {

class OpenMpi final : public Library {
 public:
  [[nodiscard]] std::uint32_t rank() const override {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return static_cast<std::uint32_t>(rank);
  }
  [[nodiscard]] std::uint32_t ranks() const override {
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return static_cast<std::uint32_t>(ranks);
  }
  [[nodiscard]] std::string description() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string version{text, static_cast<std::size_t>(length)};
    return version.substr(0, version.find(','));
  }
  void all_reduce(const float* in, float* out, std::size_t count) override {
    MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);  // errors end the job
  }
};

}  // namespace

}  // namespace tensorwire::versus

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    tensorwire::versus::OpenMpi library;
    tensorwire::versus::run_rank(library);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "openmpi: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
