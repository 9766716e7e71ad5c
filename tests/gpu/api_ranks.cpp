#include "gpu/api_ranks.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <thread>

#include "gpu/delay.hpp"
#include "gpu/host_process.hpp"

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
  if (hosts == 1 || HostProcess::get() != nullptr) return;
  std::string names;
  for (int rank = 0; rank < ranks; ++rank)
    names += (rank > 0 ? ",host" : "host") + std::to_string(rank * hosts / ranks);
  ::setenv("TENSORWIRE_HOSTID", names.c_str(), 1);
}
OnPath::~OnPath() {
  ::unsetenv("TENSORWIRE_PATH");
  ::unsetenv("TENSORWIRE_HOSTID");
}

namespace {

/// The ranks of this process: [first, last).
struct Own {
  int first;
  int last;
};
Own own_of(int ranks) {
  HostProcess* const process = HostProcess::get();
  if (process == nullptr) return {0, ranks};
  const int each = ranks / process->hosts();
  EXPECT_EQ(each * process->hosts(), ranks) << "not for so many processes";
  return {process->host() * each, (process->host() + 1) * each};
}

twUniqueId shared_id() {
  twUniqueId id{};
  HostProcess* const process = HostProcess::get();
  if (process == nullptr || process->host() == 0) {
    EXPECT_EQ(twGetUniqueId(&id), twSuccess) << twGetLastError(nullptr);
  }
  if (process == nullptr) return id;
  const auto all = process->exchange(std::as_bytes(std::span(&id, 1)));
  std::memcpy(&id, all[0].data(), sizeof id);
  return id;
}

/// Between hosts the tensors left this one, as packets, and no CPU copied them. After an error nothing is claimed.
void expect_packets(const ApiRank& rank, std::uint64_t sent_before) {
  const twComm_t comm = rank.comm;
  twResult_t state = twInternalError;
  twStats_t stats;
  const char* path = "";
  if (twCommGetAsyncError(comm, &state) != twSuccess || state != twSuccess) return;
  ASSERT_EQ(twCommGetStats(comm, &stats), twSuccess) << twGetLastError(comm);
  ASSERT_EQ(twCommGpuPath(comm, &path), twSuccess);
  if (std::string_view(path) != "proxy" && std::string_view(path) != "hierarchical") return;
  EXPECT_GE(HostProcess::bytes_sent() - sent_before, stats.bytesWritten);
  if (!rank.copies_by_cpu) {
    EXPECT_EQ(stats.bytesCopied, 0U);
  }
  ::testing::Test::RecordProperty("bytesWritten", std::to_string(stats.bytesWritten));
}

}  // namespace

void as_api_ranks(int ranks, const std::function<void(ApiRank&)>& body, twConfig_t config) {
  config.device = "soft";
  const twUniqueId id = shared_id();
  HostProcess* const process = HostProcess::get();
  const Own own = own_of(ranks);
  Crossing crossing(own.last - own.first, process != nullptr ? [=] { process->barrier(); } : std::function<void()>{});
  const std::uint64_t sent_before = HostProcess::bytes_sent();
  std::vector<std::thread> threads;
  for (int rank = own.first; rank < own.last; ++rank) {
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
          if (process != nullptr) expect_packets(self, sent_before);
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
