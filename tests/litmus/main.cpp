// The litmus test (src/cuda/litmus.hpp): operations of shuffled kinds, sizes and protocols, each of whose elements is
// checked on the GPU; first as the protocols are, then with each planted mistake, which must be noticed: by a wrong
// element, or by a rank that waits in vain. Flags have 8 bits, rings are small. Ranks are threads, spread over the
// GPUs.
//
// usage: gpu_litmus [--epochs N] [--ranks N] [--seed N] [--mistakes 0]
#include <cuda_runtime_api.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "cuda/communicator.hpp"
#include "cuda/litmus.hpp"
#include "tensors.hpp"

namespace tensorwire::litmus {
namespace {

using collective::DType;
using collective::Op;
using cuda::Mistake;
using cuda::Protocol;

constexpr std::size_t kMostElements = 64U << 10;
constexpr std::uint64_t kEpochsBetweenLooks = 256;

struct Named {
  Mistake mistake;
  const char* name;
};
constexpr Named kMistakes[] = {
    {Mistake::kWordsNotEmptied, "words: not emptied"},
    {Mistake::kWordsOnePlace, "words: rounds share a place"},
    {Mistake::kWordsHalfLooked, "words: only the first looked at"},
    {Mistake::kLinesOneHalf, "lines: parity off by one"},
    {Mistake::kLinesHalfLooked, "lines: only the first flag looked at"},
    {Mistake::kLinesNotRenewed, "lines: not renewed before flags come up again"},
    {Mistake::kFlagBeforeData, "slots: flag before data"},
    {Mistake::kNoMeetingBeforeFlag, "slots: no fence before the flag"},
    {Mistake::kRingIgnored, "slots: written before they are consumed"},
    {Mistake::kConsumedTooEarly, "slots: consumed before they are read"},
    {Mistake::kSharedRegion, "slots: a region shared with words"},
    {Mistake::kTakenTooEarly, "messages: taken before they are read"},
    {Mistake::kSequenceNotKept, "a sequence number that is not kept"},
};

/// Where rank threads meet, and pass each other bytes.
class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(ranks), given_(static_cast<std::size_t>(ranks)) {}
  void wait() { barrier_.arrive_and_wait(); }
  std::vector<cuda::Bytes> exchange(int rank, std::span<const std::byte> mine) {
    given_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    wait();
    std::vector<cuda::Bytes> all = given_;
    wait();
    return all;
  }

 private:
  std::barrier<> barrier_;
  std::vector<cuda::Bytes> given_;
};

struct Verdict {
  std::uint64_t epochs = 0;
  unsigned long long wrong = 0;
  std::string failure;
};

/// One operation of an epoch, the same on all ranks.
struct Epoch {
  std::uint32_t kind;
  std::size_t count;
  cuda::Shape shape;
};
Epoch epoch_of(std::uint64_t seed, std::uint64_t number, const cuda::Layout& layout) {
  Random random(mix64(seed ^ number));
  Epoch made{random.below(8), 1, {}};
  const std::uint32_t size = random.below(16);
  const auto most = static_cast<std::uint32_t>(size == 0 ? kMostElements / layout.ranks : size < 4 ? 8192 : 1024);
  made.count = 1 + random.below(most);
  const std::size_t bytes = made.count * 2;
  constexpr Protocol kProtocols[] = {Protocol::kLines, Protocol::kWords, Protocol::kSlots};
  made.shape = {kProtocols[random.below(3)], 1 + random.below(layout.lanes), 64U << random.below(3), 0};
  if (made.shape.protocol == Protocol::kSlots) {
    made.shape.piece_bytes = 64 * (1 + random.below(layout.slot_bytes / 64));
  }
  if (!cuda::fits(made.shape, bytes, DType::kBfloat16, layout)) {
    made.shape = cuda::choose_shape(bytes, DType::kBfloat16, layout);
  }
  return made;
}

class LitmusRank {
 public:
  LitmusRank(int rank, int ranks, Meeting& meeting, bool impatient) : rank_(rank), ranks_(ranks) {
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices));
    cuda::CommunicatorOptions options;
    options.rank = rank;
    options.ranks = ranks;
    options.device = rank % devices;
    options.exchange = [&meeting, rank](std::span<const std::byte> bytes) { return meeting.exchange(rank, bytes); };
    options.operation_bound = impatient ? 100 * kMillisecond : 20 * kSecond;
    options.most_lanes = 4;  // so that messages have more pieces than rings have places
    options.line_data_bytes = 2048;
    options.round_bytes = 2048;
    options.slot_bytes = 2048;
    options.flag_bits = 8;
    check_cuda(cudaSetDevice(options.device));
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check_cuda(cudaMalloc(&in_, kMostElements * 2));
    check_cuda(cudaMalloc(&out_, kMostElements * 2));
    check_cuda(cudaMalloc(&wrong_, sizeof(unsigned long long)));
    check_cuda(cudaMemset(wrong_, 0, sizeof(unsigned long long)));
    // Loads these kernels before any waits for a peer.
    fill(in_, 1, 0, rank, stream_);
    check(in_, 1, Promise::kSumOfPart, 0, 0, 1, static_cast<unsigned long long*>(wrong_), stream_);
    check_cuda(cudaStreamSynchronize(stream_));
    check_cuda(cudaMemset(wrong_, 0, sizeof(unsigned long long)));
    communicator_.emplace(options);
  }
  ~LitmusRank() {
    communicator_.reset();
    for (void* memory : {in_, out_, wrong_}) cudaFree(memory);
    cudaStreamDestroy(stream_);
  }
  LitmusRank(const LitmusRank&) = delete;
  LitmusRank& operator=(const LitmusRank&) = delete;

  /// Until `stop`, which is set by whoever notices something.
  Verdict run(std::uint64_t epochs, std::uint64_t seed, std::atomic<bool>& stop, Meeting& meeting) {
    Verdict verdict;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      if (epoch % kEpochsBetweenLooks == 0) {
        look(verdict);
        if (verdict.wrong != 0 || !verdict.failure.empty()) stop = true;
        meeting.wait();
        const bool stopped = stop;
        meeting.wait();
        if (stopped) return verdict;
      }
      launch(epoch, epoch_of(seed, epoch, communicator_->layout()));
      verdict.epochs = epoch + 1;
    }
    look(verdict);
    return verdict;
  }

 private:
  static void check_cuda(cudaError_t error) {
    if (error != cudaSuccess) throw Error("use a GPU", cudaGetErrorString(error));
  }

  void launch(std::uint64_t number, const Epoch& epoch) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    cuda::Communicator& communicator = *communicator_;
    const auto all = epoch.kind < 5 ? epoch.count : std::min(epoch.count, kMostElements / ranks) * ranks;
    const std::size_t part = all / ranks;
    fill(in_, all, number, rank_, stream_);
    Promise promise = Promise::kSum;
    std::size_t count = epoch.count;
    switch (epoch.kind) {
      case 5:
        static_cast<void>(communicator.all_gather(in_, out_, part, DType::kBfloat16, stream_));
        promise = Promise::kAllInputs;
        count = part;
        break;
      case 6:
        static_cast<void>(communicator.reduce_scatter(in_, out_, part, DType::kBfloat16, Op::kSum, stream_));
        promise = Promise::kSumOfPart;
        count = part;
        break;
      case 7:
        static_cast<void>(communicator.all_to_all(in_, out_, part, {}, DType::kBfloat16, stream_));
        promise = Promise::kOnePartOfEach;
        count = part;
        break;
      default:
        static_cast<void>(
            communicator.all_reduce_as(epoch.shape, in_, out_, count, DType::kBfloat16, Op::kSum, stream_));
    }
    check(out_, count, promise, number, rank_, ranks_, static_cast<unsigned long long*>(wrong_), stream_);
  }
  void look(Verdict& verdict) {
    check_cuda(cudaStreamSynchronize(stream_));
    check_cuda(cudaMemcpy(&verdict.wrong, wrong_, sizeof verdict.wrong, cudaMemcpyDeviceToHost));
    verdict.failure = communicator_->failure_text();
  }

  int rank_, ranks_;
  cudaStream_t stream_ = nullptr;
  void *in_ = nullptr, *out_ = nullptr, *wrong_ = nullptr;
  std::optional<cuda::Communicator> communicator_;
};

/// Of the first rank that noticed something, else of rank 0.
Verdict verdict_of(int ranks, std::uint64_t epochs, std::uint64_t seed, Mistake mistake) {
  cuda::litmus_of_process() = {mistake, seed};
  Meeting meeting(ranks);
  std::atomic<bool> stop = false;
  std::vector<Verdict> verdicts(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        LitmusRank self(rank, ranks, meeting, mistake != Mistake::kNone);
        verdicts[static_cast<std::size_t>(rank)] = self.run(epochs, seed, stop, meeting);
        meeting.wait();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::exit(2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Verdict& verdict : verdicts) {
    if (verdict.wrong != 0 || !verdict.failure.empty()) return verdict;
  }
  return verdicts[0];
}

void print(const char* name, const Verdict& verdict) {
  std::printf("%-48s %8llu epochs, %llu wrong elements%s%s\n", name, static_cast<unsigned long long>(verdict.epochs),
              verdict.wrong, verdict.failure.empty() ? "" : "; ", verdict.failure.c_str());
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  std::uint64_t epochs = 1'000'000, seed = 1, mistaken_epochs = 100'000;
  int ranks = 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--epochs") epochs = value;
    if (name == "--ranks") ranks = static_cast<int>(value);
    if (name == "--seed") seed = value;
    if (name == "--mistakes") mistaken_epochs = value;
  }
  const Verdict clean = verdict_of(ranks, epochs, seed, Mistake::kNone);
  print("as it is", clean);
  int missed = clean.wrong == 0 && clean.failure.empty() && clean.epochs == epochs ? 0 : 1;
  if (mistaken_epochs == 0) return missed;
  for (const Named& planted : kMistakes) {
    const Verdict verdict = verdict_of(ranks, mistaken_epochs, seed, planted.mistake);
    const bool noticed = verdict.wrong != 0 || !verdict.failure.empty();
    print(planted.name, verdict);
    if (!noticed) {
      std::printf("%-48s was not noticed\n", planted.name);
      ++missed;
    }
  }
  return missed;
}

}  // namespace
}  // namespace tensorwire::litmus

int main(int argc, char** argv) {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  return tensorwire::litmus::run(argc, argv);
}
