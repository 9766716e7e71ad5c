#include "cuda/gpu_clock.hpp"

#include "base/clock.hpp"
#include "cuda/driver.cuh"
#include "cuda/kernels.hpp"

namespace tensorwire::cuda {

namespace {

constexpr std::uint64_t kQuestions = 16;
constexpr Ps kBound = 5 * kMillisecond;
constexpr std::uint64_t kKernelBoundNs = 20'000'000;
constexpr Ps kFresh = 250 * kMillisecond;

}  // namespace

GpuClock::GpuClock() : memory_(sizeof(ClockBoard)) {
  check(static_cast<cudaError_t>(load_clock_kernel()), "load kernels");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
}

GpuClock::~GpuClock() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

std::optional<ClockReading> GpuClock::read() noexcept {
  const std::scoped_lock lock{mutex_};
  if (last_ && monotonic_now() - last_->host < kFresh) return last_;
  if (const auto measured = measure()) last_ = measured;
  return last_;
}

std::optional<ClockReading> GpuClock::measure() noexcept {
  // One that came too late to be answered may still be waiting for its turn.
  if (cudaStreamQuery(stream_) != cudaSuccess) return std::nullopt;
  auto* const board = reinterpret_cast<ClockBoard*>(memory_.host());
  *board = {};
  auto* const on_gpu = reinterpret_cast<ClockBoard*>(memory_.on_gpu());
  if (launch_clock(on_gpu, kQuestions, kKernelBoundNs, stream_) != cudaSuccess) return std::nullopt;
  std::optional<ClockReading> best;
  const Ps deadline = monotonic_now() + kBound;
  for (std::uint64_t question = 1; question <= kQuestions; ++question) {
    const Ps asked = monotonic_now();
    __atomic_store_n(&board->asked, question, __ATOMIC_RELEASE);
    while (__atomic_load_n(&board->answered, __ATOMIC_ACQUIRE) < question) {
      if (monotonic_now() > deadline) {
        __atomic_store_n(&board->asked, kQuestions, __ATOMIC_RELEASE);  // so that the kernel ends
        return best;
      }
    }
    const Ps answered = monotonic_now();
    const Ps error = (answered - asked) / 2;
    if (!best || error < best->error) best = {board->ns, asked + error, error};
  }
  return best;
}

}  // namespace tensorwire::cuda
