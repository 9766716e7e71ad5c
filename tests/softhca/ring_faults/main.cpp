// test_ring_faults: runs seeds of the fault simulation over rings; see README.md.
#include "ring_run.hpp"
#include "transport/faults/seeds.hpp"

int main(int count, char** arguments) {
  using namespace tensorwire;
  using softhca::faults::RingRun;
  using softhca::faults::RingWorkspace;
  using transport::faults::Workspace;
  return transport::faults::run_program(
      {.name = "test_ring_faults",
       .make_workspace = []() -> std::unique_ptr<Workspace> { return std::make_unique<RingWorkspace>(); },
       .make_run = [](std::uint64_t seed, Workspace& workspace) -> std::unique_ptr<transport::faults::Run> {
         return std::make_unique<RingRun>(seed, static_cast<RingWorkspace&>(workspace));
       }},
      count, arguments);
}
