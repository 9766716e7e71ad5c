#include "collective/reduce.hpp"

#include <algorithm>
#include <cstring>

#include "base/stream_copy.hpp"
#include "collective/reduce_kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

namespace tensorwire::collective {

namespace {

constexpr std::size_t kBlockBytes = 8192;

const Kernels& kernels_of(SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return avx512_kernels();
  if (level == SimdLevel::kAvx2) return avx2_kernels();
#endif
  static_cast<void>(level);
  return scalar_kernels();
}

#if defined(__x86_64__)
/// Clang 16 knows no name for it in __builtin_cpu_supports.
bool has_f16c() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

SimdLevel supported_level() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return SimdLevel::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && has_f16c()) return SimdLevel::kAvx2;
#endif
  return SimdLevel::kScalar;
}

/// Programs may have set flush-to-zero or another rounding for this thread; the sum must not depend on it.
class DefaultFloatEnvironment {
 public:
#if defined(__x86_64__)
  DefaultFloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    if ((saved_ & kModes) != 0) _mm_setcsr(saved_ & ~kModes);
  }
  ~DefaultFloatEnvironment() {
    if ((saved_ & kModes) != 0) _mm_setcsr(saved_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  static constexpr unsigned kModes = 0x8000 | 0x0040 | 0x6000;  // flush to zero, denormals are zero, rounding control
  unsigned saved_;
#endif
};

void run(const Kernels& kernels, const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
         std::byte* second_output, std::size_t count) noexcept {
  if (operands.empty()) return;
  [[maybe_unused]] const DefaultFloatEnvironment environment;
  const Kernel kernel = kernels.of(what.dtype, what.op);
  const std::uint32_t divisor = what.divisor;
  if (second_output == nullptr) return kernel(operands.data(), operands.size(), output, 0, count, divisor);
  // Block by block, while the result is in the first-level cache. A second store in the kernel's loop would be twice as
  // dear: loads that follow it wait for it whenever the buffers' addresses are alike in their low 12 bits, as slots'
  // are.
  const std::size_t size = element_bytes(what.dtype);
  const std::size_t block = kBlockBytes / size;
  for (std::size_t from = 0; from < count; from += block) {
    const std::size_t to = std::min(from + block, count);
    kernel(operands.data(), operands.size(), output, from, to, divisor);
    if (what.stream_second) {
      stream_copy(second_output + from * size, output + from * size, (to - from) * size);
    } else {
      std::memcpy(second_output + from * size, output + from * size, (to - from) * size);
    }
  }
}

const Kernels& chosen_kernels() noexcept {
  static const Kernels& kernels = kernels_of(best_simd_level());
  return kernels;
}

}  // namespace

const Kernels& scalar_kernels() noexcept {
  static constexpr Kernels kKernels{kernels_of_scalar<ScalarFloat32>(), kernels_of_scalar<ScalarFloat16>(),
                                    kernels_of_scalar<ScalarBfloat16>(), kernels_of_scalar<ScalarInt32>()};
  return kKernels;
}

std::string_view name_of(SimdLevel level) noexcept {
  switch (level) {
    case SimdLevel::kScalar:
      return "scalar";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
  }
  return "unknown level";
}

SimdLevel best_simd_level() noexcept {
  static const SimdLevel level = supported_level();
  return level;
}

void reduce(const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
            std::byte* second_output, std::size_t count) noexcept {
  run(chosen_kernels(), what, operands, output, second_output, count);
}

void reduce_at(SimdLevel level, const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
               std::byte* second_output, std::size_t count) noexcept {
  run(kernels_of(level), what, operands, output, second_output, count);
}

}  // namespace tensorwire::collective
