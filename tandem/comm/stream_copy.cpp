#include "tandem/comm/stream_copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tandem {

void stream_copy(std::byte* dst, const std::byte* src, size_t bytes) {
  size_t done = 0;
#if defined(__SSE2__)
  constexpr size_t kSmall = 1024;  // cheaper to leave in the cache
  if (bytes >= kSmall) {
    for (; done + 64 <= bytes; done += 64) {
      const auto* from = reinterpret_cast<const __m128i*>(src + done);
      auto* to = reinterpret_cast<__m128i*>(dst + done);
      const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
      const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
      _mm_stream_si128(to, a);
      _mm_stream_si128(to + 1, b);
      _mm_stream_si128(to + 2, c);
      _mm_stream_si128(to + 3, d);
    }
    _mm_sfence();
  }
#endif
  if (done < bytes) std::memcpy(dst + done, src + done, bytes - done);
}

}  // namespace tandem
