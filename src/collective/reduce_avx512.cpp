// Reduction kernels for AVX-512 (F, BW, VL); this file alone is compiled for it. The bf16 conversion is done with
// integers: the AVX512_BF16 instruction treats subnormals as zero and so gives other bits.
#if defined(__x86_64__)

#include <immintrin.h>

#include "collective/reduce_kernels.hpp"

namespace tensorwire::collective {
namespace {

__m512 canonical(__m512 value) noexcept {
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(value), is_nan, kCanonicalNan));
}

struct Common {
  using Register = __m512;
  static constexpr std::size_t kElements = 16;
  template <Op kOp>
  static __m512 combine(__m512 a, __m512 b) noexcept {
    if constexpr (kOp != Op::kMax) return _mm512_add_ps(a, b);
    // As for AVX2. The AND of floats is an extension of its own, that of integers is not.
    const __m512i greater =
        _mm512_and_si512(_mm512_castps_si512(_mm512_max_ps(a, b)), _mm512_castps_si512(_mm512_max_ps(b, a)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(greater, is_nan, kCanonicalNan));
  }
  static __m512 scaled(__m512 value, float scale) noexcept { return _mm512_mul_ps(value, _mm512_set1_ps(scale)); }
  static __m256i load_halves(const std::byte* from) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::byte* to, __m256i halves) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  }
  static void store(std::byte* to, __m512 value) noexcept { _mm512_storeu_ps(to, value); }
};

struct Float32 : Common {
  using Scalar = ScalarFloat32;
  static __m512 load(const std::byte* from) noexcept { return _mm512_loadu_ps(from); }
  static __m512 narrow(__m512 value) noexcept { return canonical(value); }
};

struct Float16 : Common {
  using Scalar = ScalarFloat16;
  static __m512 load(const std::byte* from) noexcept { return _mm512_cvtph_ps(load_halves(from)); }
  static __m256i narrow(__m512 value) noexcept {
    return _mm512_cvtps_ph(canonical(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

struct Bfloat16 : Common {
  using Scalar = ScalarBfloat16;
  static __m512 load(const std::byte* from) noexcept {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(from)), 16));
  }
  static __m256i narrow(__m512 value) noexcept {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i chosen = _mm512_mask_set1_epi32(rounded, is_nan, kCanonicalNan);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
  }
};

struct Int32 {
  using Register = __m512i;
  using Scalar = ScalarInt32;
  static constexpr std::size_t kElements = 16;
  template <Op kOp>
  static __m512i combine(__m512i a, __m512i b) noexcept {
    if constexpr (kOp == Op::kMax) return _mm512_max_epi32(a, b);
    return _mm512_add_epi32(a, b);
  }
  static __m512i load(const std::byte* from) noexcept { return _mm512_loadu_si512(from); }
  static __m512i narrow(__m512i value) noexcept { return value; }
  static void store(std::byte* to, __m512i value) noexcept { _mm512_storeu_si512(to, value); }
};

}  // namespace

const Kernels& avx512_kernels() noexcept {
  static constexpr Kernels kKernels{kernels_of_vector<Float32>(), kernels_of_vector<Float16>(),
                                    kernels_of_vector<Bfloat16>(), kernels_of_integers<Int32>()};
  return kKernels;
}

}  // namespace tensorwire::collective

#endif
