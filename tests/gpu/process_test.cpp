// Ranks as processes, one for each GPU: scratch memory is passed between them as file descriptors, or a proxy carries
// for them; and one may be killed.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "bootstrap/group.hpp"
#include "gpu/process_rank.hpp"
#include "gpu/ranks.hpp"
#include "tensorwire/tensorwire.h"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

constexpr const char* kRole = "TW_GPU_TEST_RANK";  // "rank ranks port kill way"
constexpr int kOperations = 40;
constexpr int kSaysNothing = 3;

enum class Route {
  kPeer,
  kProxy,   ///< through the C API
  kShared,  ///< scratch in memory of the host
  kHosts,   ///< as if on two hosts, through the C API
};

struct Role {
  int rank = 0;
  int ranks = 0;
  int port = 0;
  int victim = -1;  ///< dies in the middle
  Route way = Route::kPeer;

  [[nodiscard]] int hosts() const { return way == Route::kHosts ? 2 : 1; }
  [[nodiscard]] std::string text() const {
    return std::to_string(rank) + " " + std::to_string(ranks) + " " + std::to_string(port) + " " +
           std::to_string(victim) + " " + std::to_string(static_cast<int>(way));
  }
};

pid_t start(const Role& role) {
  // `environ` with one more entry.
  const std::string entry = std::string(kRole) + "=" + role.text();
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  char program[] = "/proc/self/exe";
  char* arguments[] = {program, nullptr};
  pid_t child = -1;
  EXPECT_EQ(::posix_spawn(&child, program, nullptr, nullptr, arguments, environment.data()), 0);
  return child;
}

std::vector<int> verdicts_of(int ranks, int victim, Route way = Route::kPeer) {
  static int turn = 0;
  const int port = 20000 + ::getpid() % 20000 + ++turn;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) children.push_back(start({rank, ranks, port, victim, way}));
  std::vector<int> verdicts;
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    verdicts.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return verdicts;
}

int run(const Role& role) {
  bootstrap::GroupOptions meeting;
  meeting.rank = role.rank;
  meeting.world_size = role.ranks;
  meeting.master_port = static_cast<std::uint16_t>(role.port);
  const auto group = bootstrap::Group::join(meeting);
  cuda::CommunicatorOptions options;
  options.rank = role.rank;
  options.ranks = role.ranks;
  options.device = role.rank % gpu_count();
  options.operation_bound = kSecond;
  if (role.way == Route::kShared) options.scratch = cuda::Home::kHost;
  options.exchange = [&](std::span<const std::byte> bytes) { return group->all_gather(bytes); };
  expect_ok(cudaSetDevice(options.device), "cudaSetDevice");
  cuda::Communicator communicator(options);
  const DeviceBytes in(1U << 20), out(1U << 20);

  for (int operation = 0; operation < kOperations; ++operation) {
    if (operation == kOperations / 2 && role.rank == role.victim) ::raise(SIGKILL);
    const auto seed = static_cast<std::uint64_t>(operation);
    const std::size_t count = operation % 5 == 4 ? 500001 : 1 + 777 * seed;
    const std::vector<std::byte> input = input_of(seed, role.rank, count, DType::kBfloat16);
    expect_ok(cudaMemcpy(in.data(), input.data(), input.size(), cudaMemcpyHostToDevice), "copy");
    if (communicator.all_reduce(in.data(), out.data(), count, DType::kBfloat16, Op::kSum, nullptr) !=
        cuda::Status::kOk) {
      break;
    }
    expect_ok(cudaStreamSynchronize(nullptr), "synchronize");
    if (communicator.failure()) break;
    std::vector<std::byte> got(input.size());
    expect_ok(cudaMemcpy(got.data(), out.data(), got.size(), cudaMemcpyDeviceToHost), "copy");
    if (got != expected_of(seed, role.ranks, count, DType::kBfloat16, Op::kSum)) return 1;
  }
  if (role.victim < 0) {
    group->barrier();
    return communicator.failure() ? 2 : 0;
  }
  const auto failure = communicator.failure();
  if (!failure) return kSaysNothing;
  std::fprintf(stderr, "%s\n", communicator.failure_text().c_str());
  return failure->peer == role.victim ? 0 : 4;
}

/// A captured graph of all-reduces is replayed, through the C API: nothing of the host's runs in this thread meanwhile.
int run_by_proxy(const Role& role) {
  ::setenv("TENSORWIRE_PATH", role.hosts() > 1 ? "hierarchical" : "proxy", 1);
  if (role.hosts() > 1) ::setenv("TENSORWIRE_HOSTID", std::to_string(role.rank * role.hosts() / role.ranks).c_str(), 1);
  twConfig_t config TW_CONFIG_INITIALIZER;
  config.device = "soft";
  config.operationTimeoutMs = 20'000;
  twUniqueId id{};
  bootstrap::GroupOptions meeting;
  meeting.rank = role.rank;
  meeting.world_size = role.ranks;
  meeting.master_port = static_cast<std::uint16_t>(role.port);
  {
    const auto group = bootstrap::Group::join(meeting);
    if (role.rank == 0 && twGetUniqueId(&id) != twSuccess) return 5;
    const auto all = group->all_gather(std::as_bytes(std::span(&id, 1)));
    std::memcpy(&id, all[0].data(), sizeof id);
  }
  const int device = role.rank % gpu_count();
  expect_ok(cudaSetDevice(device), "cudaSetDevice");
  twComm_t comm = nullptr;
  if (twCommInitRankConfig(&comm, role.ranks, id, role.rank, &config) != twSuccess) return 6;
  if (twCommInitGpu(comm, device) != twSuccess) return 7;
  constexpr std::size_t kCount = 50'001;
  const DeviceBytes in(kCount * 2), out(kCount * 2);
  cudaStream_t stream = nullptr;
  expect_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const std::vector<std::byte> input = input_of(3, role.rank, kCount, DType::kBfloat16);
  expect_ok(cudaMemcpy(in.data(), input.data(), input.size(), cudaMemcpyHostToDevice), "copy");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replayed = nullptr;
  expect_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  for (int i = 0; i < 4; ++i) {
    if (twAllReduce(in.data(), out.data(), kCount, twBfloat16, twSum, comm, stream) != twSuccess) return 10;
  }
  expect_ok(cudaStreamEndCapture(stream, &graph), "end capture");
  expect_ok(cudaGraphInstantiate(&replayed, graph, 0), "instantiate");
  twResult_t state = twSuccess;
  for (int replay = 0; replay < kOperations && state == twSuccess; ++replay) {
    if (replay == kOperations / 2 && role.rank == role.victim) ::raise(SIGKILL);
    expect_ok(cudaGraphLaunch(replayed, stream), "launch");
    expect_ok(cudaStreamSynchronize(stream), "synchronize");
    static_cast<void>(twCommGetAsyncError(comm, &state));
  }
  if (role.victim >= 0) {
    if (state == twSuccess) return kSaysNothing;
    const std::string line = twGetLastError(comm);
    std::fprintf(stderr, "%s\n", line.c_str());
    return line.find("rank " + std::to_string(role.victim)) != std::string::npos ? 0 : 4;
  }
  std::vector<std::byte> got(input.size());
  expect_ok(cudaMemcpy(got.data(), out.data(), got.size(), cudaMemcpyDeviceToHost), "copy");
  if (got != expected_of(3, role.ranks, kCount, DType::kBfloat16, Op::kSum, role.hosts())) return 1;
  return state == twSuccess && twCommDestroy(comm) == twSuccess ? 0 : 2;
}

/// Two, four, and as many as there are GPUs; where there are fewer of these, they are shared.
TEST(Processes, ShareScratchByDescriptor) {
  SKIP_WITHOUT_GPU();
  for (const int ranks : std::set{2, 4, std::clamp(gpu_count(), 2, 8)}) {
    EXPECT_EQ(verdicts_of(ranks, -1), std::vector<int>(static_cast<std::size_t>(ranks), 0)) << ranks << " ranks";
  }
}

TEST(Processes, AKilledRankIsNamedByTheOthers) {
  SKIP_WITHOUT_GPU();
  EXPECT_EQ(verdicts_of(2, 1), (std::vector<int>{0, -SIGKILL}));
  EXPECT_EQ(verdicts_of(4, 2), (std::vector<int>{0, 0, -SIGKILL, 0}));
}

TEST(ProcessesInHostMemory, ShareScratchByDescriptor) {
  SKIP_WITHOUT_GPU();
  EXPECT_EQ(verdicts_of(2, -1, Route::kShared), (std::vector<int>{0, 0}));
}

TEST(ProcessesInHostMemory, AKilledRankIsNamedByTheOthers) {
  SKIP_WITHOUT_GPU();
  EXPECT_EQ(verdicts_of(2, 1, Route::kShared), (std::vector<int>{0, -SIGKILL}));
}

TEST(ProcessesByProxy, ReplayGraphs) {
  SKIP_WITHOUT_GPU();
  EXPECT_EQ(verdicts_of(2, -1, Route::kProxy), (std::vector<int>{0, 0}));
}

TEST(ProcessesByProxy, AKilledRankEndsAReplayAndIsNamed) {
  SKIP_WITHOUT_GPU();
  EXPECT_EQ(verdicts_of(2, 1, Route::kProxy), (std::vector<int>{0, -SIGKILL}));
}

TEST(ProcessesByHosts, ReplayGraphs) {
  SKIP_WITHOUT_GPU();
  EXPECT_EQ(verdicts_of(4, -1, Route::kHosts), (std::vector<int>{0, 0, 0, 0}));
}

/// Those of its host wait for it inside, one of the other host between them, and one of that for a rank that is well.
TEST(ProcessesByHosts, AKilledRankEndsAReplayAndIsNamedByAll) {
  SKIP_WITHOUT_GPU();
  EXPECT_EQ(verdicts_of(4, 1, Route::kHosts), (std::vector<int>{0, -SIGKILL, 0, 0}));
}

}  // namespace

bool is_process_rank() { return std::getenv(kRole) != nullptr; }

int process_rank_main() {
  Role role;
  int way = 0;
  if (std::sscanf(std::getenv(kRole), "%d %d %d %d %d", &role.rank, &role.ranks, &role.port, &role.victim, &way) != 5) {
    return 9;
  }
  role.way = static_cast<Route>(way);
  try {
    return role.way == Route::kProxy || role.way == Route::kHosts ? run_by_proxy(role) : run(role);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", role.rank, error.what());
    return 8;
  }
}

}  // namespace tensorwire::test
