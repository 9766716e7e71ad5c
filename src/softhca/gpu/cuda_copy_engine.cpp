#include "softhca/gpu/cuda_copy_engine.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/clock.hpp"
#include "base/cuda_driver.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace tensorwire::softhca {

namespace {

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kPortableAndMapped = 1 | 2;

/// A copy takes microseconds, and milliseconds when the program's own copies are ahead of it on the same engine.
constexpr Ps kLookAtStream = 2 * kMillisecond;
constexpr Ps kCopyBound = 10 * kSecond;
constexpr int kSpinsBetweenLooks = 256;

/// Each word has a cache line of its own.
constexpr std::size_t kDoneBytes = 128;

class CudaCopyEngine final : public CopyEngine {
 public:
  CudaCopyEngine(const CudaDriver& driver, int device, std::size_t pinned_bytes);
  ~CudaCopyEngine() override;

  std::span<std::byte> pinned() noexcept override { return {memory_, pinned_bytes_}; }
  Ticket begin_read(std::span<std::byte> to, std::uint64_t from) noexcept override {
    return begin(read_, [&] { return driver_.copy_to_host(to.data(), from, to.size(), read_.stream); });
  }
  Ticket begin_write(std::uint64_t to, std::span<const std::byte> from) noexcept override {
    return begin(write_, [&] { return driver_.copy_to_device(to, from.data(), from.size(), write_.stream); });
  }
  bool finish_read(Ticket ticket) noexcept override { return finish(read_, ticket); }
  bool finish_write(Ticket ticket) noexcept override { return finish(write_, ticket); }
  bool write_done(Ticket ticket) noexcept override { return done(write_, ticket); }
  std::uint64_t allocation_at(std::uint64_t address) noexcept override {
    const CudaSection section{driver_, context_};
    return section ? cuda_buffer_id(driver_, address) : 0;
  }

 private:
  struct Direction {
    void* stream = nullptr;
    std::uint32_t* word = nullptr;  ///< the last ticket that is done, modulo 2^32
    CudaDriver::Address word_for_gpu = 0;
    Ticket last = 0;
  };

  void open(Direction& direction, std::size_t word_at);
  template <class Copy>
  Ticket begin(Direction& direction, Copy copy) noexcept;
  [[nodiscard]] static bool done(const Direction& direction, Ticket ticket) noexcept {
    const std::uint32_t now = std::atomic_ref{*direction.word}.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(now - static_cast<std::uint32_t>(ticket)) >= 0;
  }
  bool finish(Direction& direction, Ticket ticket) noexcept;
  [[nodiscard]] bool stream_works(const Direction& direction) noexcept;
  void must(CudaDriver::Result result, const char* what) const;
  void give_up(const std::string& why) noexcept;

  const CudaDriver& driver_;
  const int device_;
  const std::size_t pinned_bytes_;
  void* context_ = nullptr;
  std::byte* memory_ = nullptr;
  Direction read_, write_;
  bool broken_ = false;  ///< what was begun may still write into our memory, so that is never given back
};

CudaCopyEngine::CudaCopyEngine(const CudaDriver& driver, int device, std::size_t pinned_bytes)
    : driver_(driver), device_(device), pinned_bytes_(pinned_bytes) {
  int handle = 0;
  must(driver_.device_get(&handle, device), "find it");
  // Never released: the program, which uses the same one, decides when it ends.
  must(driver_.primary_retain(&context_, handle), "take its primary context");
  const CudaSection section{driver_, context_};
  if (!section) throw Error(fmt::format("use GPU {} for RDMA", device), "the process is ending");
  void* memory = nullptr;
  must(driver_.host_alloc(&memory, pinned_bytes + kDoneBytes, kPortableAndMapped), "allocate page-locked memory");
  memory_ = static_cast<std::byte*>(memory);
  std::fill_n(memory_ + pinned_bytes, kDoneBytes, std::byte{0});
  open(read_, pinned_bytes);
  open(write_, pinned_bytes + kDoneBytes / 2);
}

void CudaCopyEngine::open(Direction& direction, std::size_t word_at) {
  direction.word = reinterpret_cast<std::uint32_t*>(memory_ + word_at);
  must(driver_.host_device_address(&direction.word_for_gpu, direction.word, 0), "map page-locked memory");
  int least = 0;
  int greatest = 0;
  must(driver_.stream_priorities(&least, &greatest), "ask for the priorities of streams");
  must(driver_.stream_create(&direction.stream, kStreamNonBlocking, greatest), "make a stream");
}

CudaCopyEngine::~CudaCopyEngine() {
  if (broken_) return;
  const CudaSection section{driver_, context_};
  if (!section) return;
  for (const Direction& direction : {read_, write_}) driver_.stream_destroy(direction.stream);
  driver_.host_free(memory_);
}

void CudaCopyEngine::must(CudaDriver::Result result, const char* what) const {
  if (result == 0) return;
  throw Error(fmt::format("use GPU {} for RDMA: {}", device_, what), driver_.error_text(result),
              "The lines of `nvidia-smi` and `dmesg` say more");
}

template <class Copy>
CopyEngine::Ticket CudaCopyEngine::begin(Direction& direction, Copy copy) noexcept {
  if (broken_) return 0;
  const CudaSection section{driver_, context_};
  if (!section) return 0;
  const CudaDriver::Result copied = copy();
  if (copied == kCudaDeinitialized) return 0;
  if (copied != 0) {
    log_error(fmt::format("RDMA with memory of GPU {} fails: CUDA refuses the copy: {}. Was it freed while registered?",
                          device_, driver_.error_text(copied)));
    return 0;
  }
  const Ticket ticket = direction.last + 1;
  const CudaDriver::Result noted =
      driver_.write_value(direction.stream, direction.word_for_gpu, static_cast<std::uint32_t>(ticket), 0);
  if (noted != 0) {
    give_up("its stream takes no word: " + driver_.error_text(noted));
    return 0;
  }
  return direction.last = ticket;
}

bool CudaCopyEngine::finish(Direction& direction, Ticket ticket) noexcept {
  const Ps begin = monotonic_now();
  Ps look_at = begin + kLookAtStream;
  while (!broken_) {
    for (int spin = 0; spin < kSpinsBetweenLooks; ++spin) {
      if (done(direction, ticket)) return true;
      __builtin_ia32_pause();
    }
    const Ps now = monotonic_now();
    if (now < look_at) continue;
    look_at = now + kLookAtStream;
    if (!stream_works(direction)) return false;
    if (now - begin > kCopyBound) give_up(fmt::format("a copy has not finished within {} s", kCopyBound / kSecond));
    ::sched_yield();  // milliseconds by now: somebody else may need this core to get on
  }
  return false;
}

/// A program that broke its context (an illegal address in one of its kernels) has broken our streams as well.
bool CudaCopyEngine::stream_works(const Direction& direction) noexcept {
  const CudaSection section{driver_, context_};
  if (!section) return false;
  const CudaDriver::Result state = driver_.stream_query(direction.stream);
  if (state == 0 || state == kCudaNotReady) return true;
  if (state == kCudaDeinitialized) {
    broken_ = true;
  } else {
    give_up("CUDA says " + driver_.error_text(state));
  }
  return false;
}

void CudaCopyEngine::give_up(const std::string& why) noexcept {
  broken_ = true;
  log_error(fmt::format("RDMA with memory of GPU {} ends: {}", device_, why));
}

class CudaPlatform final : public GpuPlatform {
 public:
  bool present() noexcept override { return cuda_driver_in_process() != nullptr; }
  Found find(std::uint64_t address, std::uint64_t length) override;
  std::unique_ptr<CopyEngine> open(int device, std::size_t pinned_bytes) override {
    return std::make_unique<CudaCopyEngine>(*cuda_driver_in_process(), device, pinned_bytes);
  }
};

/// Programs round what they register to pages, as a NIC pins pages; allocations begin and end where they like.
constexpr std::uint64_t kHostPage = 4096;

/// Mapping by mapping: of virtual memory, a reservation may have holes.
bool all_of_one_gpu(const CudaPointer& known, std::uint64_t address, std::uint64_t length) {
  const std::uint64_t range_end = known.range_start + known.range_bytes;
  const std::uint64_t end = address + length;
  if (!known.mapped || end < address || address < known.range_start / kHostPage * kHostPage ||
      end > (range_end + kHostPage - 1) / kHostPage * kHostPage)
    return false;
  std::uint64_t next = known.mapping_end;
  while (next < std::min(end, range_end)) {
    const std::optional<CudaPointer> there = cuda_pointer(next);
    if (!there || there->kind != CudaPointer::Kind::kDevice || there->device != known.device || !there->mapped ||
        there->mapping_end <= next)
      return false;
    next = there->mapping_end;
  }
  return true;
}

GpuPlatform::Found judge(const CudaPointer& known, std::uint64_t address, std::uint64_t length) {
  if (known.kind == CudaPointer::Kind::kHost) return {};
  if (known.kind == CudaPointer::Kind::kManaged) {
    return {{}, EFAULT, "it is managed memory, which wanders; use cudaMalloc or cudaHostAlloc"};
  }
  if (known.from_pool) {
    return {{}, EINVAL, "it is of a stream-ordered pool (cudaMallocAsync), which RDMA cannot use; use cudaMalloc"};
  }
  if (!all_of_one_gpu(known, address, length)) {
    return {{}, EFAULT, "not all of it is inside one allocation; was part of it freed?"};
  }
  if (cuda_driver_in_process()->write_value == nullptr) {
    return {{}, EOPNOTSUPP, "the CUDA driver is too old; version 515 or newer is needed"};
  }
  return {GpuRange{.device = known.device, .allocation = known.buffer_id}, 0, {}};
}

/// Where the first page is shared, its beginning is of another allocation, or of none, and its end of the right one.
GpuPlatform::Found CudaPlatform::find(std::uint64_t address, std::uint64_t length) {
  Found first;
  if (const auto known = cuda_pointer(address)) first = judge(*known, address, length);
  if (first.range || length <= 1 || address % kHostPage != 0) return first;
  const auto within = cuda_pointer(address + std::min(length, kHostPage) - 1);
  if (!within) return first;
  Found second = judge(*within, address, length);
  return second.range || first.error == 0 ? second : first;
}

}  // namespace

std::unique_ptr<GpuPlatform> make_cuda_platform() { return std::make_unique<CudaPlatform>(); }

}  // namespace tensorwire::softhca
