#include "base/stream_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/env.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#endif

namespace tensorwire {

namespace {

#if defined(__x86_64__)
/// The three registers of CPUID leaf 0 that spell "AuthenticAMD" (or "HygonGenuine", its descendant).
bool made_by_amd() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx) ||
         (ebx == 0x6f677948 && ecx == 0x656e6975 && edx == 0x6e65476e);
}
#endif

}  // namespace

bool streaming_pays() {
  const std::string asked = env::get_choice("TENSORWIRE_STREAM", "auto", {"auto", "on", "off"});
#if defined(__x86_64__)
  return asked == "on" || (asked == "auto" && made_by_amd());
#else
  static_cast<void>(asked);
  return false;
#endif
}

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kUnit = sizeof(__m128i);
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (std::size_t unit = 0; unit < kLine; unit += kUnit) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + unit));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + unit), value);
    }
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace tensorwire
