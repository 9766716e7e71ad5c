#include "gpu/api_ranks.hpp"

#include <cstdlib>
#include <exception>
#include <thread>

#include "gpu/delay.hpp"

namespace tensorwire::test {

void ApiRank::write(const DeviceBytes& to, const std::vector<std::byte>& from) const {
  expect_ok(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice, stream), "copy in");
  synchronize();
}

std::vector<std::byte> ApiRank::read(const DeviceBytes& from) const {
  synchronize();
  std::vector<std::byte> bytes(from.size());
  expect_ok(cudaMemcpyAsync(bytes.data(), from.data(), bytes.size(), cudaMemcpyDeviceToHost, stream), "copy out");
  synchronize();
  return bytes;
}

void ApiRank::end_capture() {
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t made = nullptr;
  expect_ok(cudaStreamEndCapture(stream, &captured), "end capture");
  expect_ok(cudaGraphInstantiate(&made, captured, 0), "instantiate");
  expect_ok(cudaGraphDestroy(captured), "destroy");
  graph.reset(made);
}

void ApiRank::capture(cudaStreamCaptureMode mode, const std::function<twResult_t()>& call) {
  begin_capture(mode);
  EXPECT_EQ(call(), twSuccess) << line();
  end_capture();
}

OnPath::OnPath(const char* path, int ranks, int hosts) {
  ::setenv("TENSORWIRE_PATH", path, 1);
  if (hosts == 1) return;
  std::string names;
  for (int rank = 0; rank < ranks; ++rank)
    names += (rank > 0 ? ",host" : "host") + std::to_string(rank * hosts / ranks);
  ::setenv("TENSORWIRE_HOSTID", names.c_str(), 1);
}
OnPath::~OnPath() {
  ::unsetenv("TENSORWIRE_PATH");
  ::unsetenv("TENSORWIRE_HOSTID");
}

void as_api_ranks(int ranks, const std::function<void(ApiRank&)>& body, twConfig_t config) {
  config.device = "soft";
  twUniqueId id;
  ASSERT_EQ(twGetUniqueId(&id), twSuccess) << twGetLastError(nullptr);
  Crossing crossing(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const int device = rank % gpu_count();
        expect_ok(cudaSetDevice(device), "cudaSetDevice");
        load_delay();
        twComm_t comm = nullptr;
        ASSERT_EQ(twCommInitRankConfig(&comm, ranks, id, rank, &config), twSuccess) << twGetLastError(nullptr);
        cudaStream_t stream = nullptr;
        expect_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        {
          ApiRank self{rank, ranks, device, stream, comm, crossing};
          body(self);
          self.synchronize();
        }
        crossing.wait();
        EXPECT_EQ(twCommDestroy(comm), twSuccess);
        expect_ok(cudaStreamDestroy(stream), "cudaStreamDestroy");
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tensorwire::test
