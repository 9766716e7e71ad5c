// Reduction kernels for AVX2 with F16C; this file alone is compiled for them.
#if defined(__x86_64__)

#include <immintrin.h>

#include "collective/reduce_kernels.hpp"

namespace tensorwire::collective {
namespace {

__m256 canonical(__m256 value) noexcept {
  const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(kCanonicalNan)), is_nan);
}

struct Common {
  using Register = __m256;
  static constexpr std::size_t kElements = 8;
  template <Op kOp>
  static __m256 combine(__m256 a, __m256 b) noexcept {
    if constexpr (kOp != Op::kMax) return _mm256_add_ps(a, b);
    // The instruction gives its second operand where both are equal (zeros of either sign) or one is NaN. Both ways
    // round, ANDed: of zeros the positive one. Where one is NaN: all ones, which is a NaN.
    const __m256 greater = _mm256_and_ps(_mm256_max_ps(a, b), _mm256_max_ps(b, a));
    return _mm256_or_ps(greater, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
  }
  static __m256 scaled(__m256 value, float scale) noexcept { return _mm256_mul_ps(value, _mm256_set1_ps(scale)); }
  static __m128i load_halves(const std::byte* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static void store(std::byte* to, __m128i halves) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }
  static void store(std::byte* to, __m256 value) noexcept { _mm256_storeu_ps(reinterpret_cast<float*>(to), value); }
};

struct Float32 : Common {
  using Scalar = ScalarFloat32;
  static __m256 load(const std::byte* from) noexcept { return _mm256_loadu_ps(reinterpret_cast<const float*>(from)); }
  static __m256 narrow(__m256 value) noexcept { return canonical(value); }
};

struct Float16 : Common {
  using Scalar = ScalarFloat16;
  static __m256 load(const std::byte* from) noexcept { return _mm256_cvtph_ps(load_halves(from)); }
  static __m128i narrow(__m256 value) noexcept {
    return _mm256_cvtps_ph(canonical(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

struct Bfloat16 : Common {
  using Scalar = ScalarBfloat16;
  static __m256 load(const std::byte* from) noexcept {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(from)), 16));
  }
  static __m128i narrow(__m256 value) noexcept {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(kCanonicalNan), is_nan);
    const __m256i halves = _mm256_srli_epi32(chosen, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  }
};

struct Int32 {
  using Register = __m256i;
  using Scalar = ScalarInt32;
  static constexpr std::size_t kElements = 8;
  template <Op kOp>
  static __m256i combine(__m256i a, __m256i b) noexcept {
    if constexpr (kOp == Op::kMax) return _mm256_max_epi32(a, b);
    return _mm256_add_epi32(a, b);
  }
  static __m256i load(const std::byte* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static __m256i narrow(__m256i value) noexcept { return value; }
  static void store(std::byte* to, __m256i value) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
};

}  // namespace

const Kernels& avx2_kernels() noexcept {
  static constexpr Kernels kKernels{kernels_of_vector<Float32>(), kernels_of_vector<Float16>(),
                                    kernels_of_vector<Bfloat16>(), kernels_of_integers<Int32>()};
  return kKernels;
}

}  // namespace tensorwire::collective

#endif
