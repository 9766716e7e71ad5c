// GoogleTest's main, and the way in for the processes that process_test.cpp starts.
#include <gtest/gtest.h>

#include <cstdlib>

#include "gpu/process_rank.hpp"

int main(int argc, char** argv) {
  // As many ranks as may share a GPU each need a hardware queue of their own, or one's kernel would wait behind that of
  // another which waits for it. Before the first CUDA call.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  if (tensorwire::test::is_process_rank()) return tensorwire::test::process_rank_main();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
