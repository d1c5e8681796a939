// The passes of scan.h, in vectors of whatever instruction set the including file is compiled for; internal linkage.
// token_mass and portable_exp are written here once more, lane by lane: the bits are the same.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector crosses a call

#ifdef __AVX512F__
constexpr size_t kScanLanes = 16;
#elif defined(__AVX2__)
constexpr size_t kScanLanes = 8;
#else
constexpr size_t kScanLanes = 4;
#endif
typedef float ScanFloats __attribute__((vector_size(4 * kScanLanes)));
typedef int32_t ScanInts __attribute__((vector_size(4 * kScanLanes)));
typedef double ScanDoubles __attribute__((vector_size(8 * kScanLanes)));
typedef uint64_t ScanLongs __attribute__((vector_size(8 * kScanLanes)));

template <bool Scales>
static void scan_scale(float* x, size_t n, float factor, float* maxima) {
  for (size_t begin = 0; begin < n; begin += kScanBlock) {
    const size_t end = begin + kScanBlock < n ? begin + kScanBlock : n;
    ScanFloats most = ScanFloats{} - __builtin_inff();
    size_t i = begin;
    for (; i + kScanLanes <= end; i += kScanLanes) {
      ScanFloats v;
      __builtin_memcpy(&v, x + i, sizeof v);
      if constexpr (Scales) {
        v *= factor;
        __builtin_memcpy(x + i, &v, sizeof v);
      }
      most = v > most ? v : most;
    }
    float largest = -__builtin_inff();
    for (size_t lane = 0; lane < kScanLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
    for (; i < end; ++i) {
      if constexpr (Scales) x[i] *= factor;
      largest = x[i] > largest ? x[i] : largest;
    }
    *maxima++ = largest;
  }
}

static void scan_scale_any(float* x, size_t n, float factor, float* maxima) {
  factor == 1.0f ? scan_scale<false>(x, n, factor, maxima) : scan_scale<true>(x, n, factor, maxima);
}

static uint64_t scan_mass(const float* x, size_t n, float max) {
  ScanLongs total{};
  size_t i = 0;
  for (; i + kScanLanes <= n; i += kScanLanes) {
    ScanFloats v;
    __builtin_memcpy(&v, x + i, sizeof v);
    v -= max;
    v = v > -60.0f ? v : ScanFloats{} - 60.0f;
    const ScanFloats shifted = v * 1.44269504088896341f + 12582912.0f, k = shifted - 12582912.0f;
    const ScanFloats r = (v - k * 0.693145751953125f) - k * 1.42860682030941723e-6f;
    ScanFloats e = r * (1.0f / 720.0f) + 1.0f / 120.0f;
    e = e * r + 1.0f / 24.0f;
    e = e * r + 1.0f / 6.0f;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    e = (ScanFloats)((ScanInts)e + ((ScanInts)shifted << 23));
    // Adding 2^52 rounds to an integer, which then stands in the lowest bits.
    const ScanDoubles rounded = __builtin_convertvector(e, ScanDoubles) * kMassUnits + 0x1p52;
    total += (ScanLongs)rounded - 0x4330000000000000ull;
  }
  uint64_t sum = 0;
  for (size_t lane = 0; lane < kScanLanes; ++lane) sum += total[lane];
  for (; i < n; ++i) sum += token_mass(x[i], max);
  return sum;
}

// 64-bit lanes whose lower halves count; the upper ones may hold anything.
constexpr size_t kWordLanes = kScanLanes / 2;
typedef uint64_t ScanWords __attribute__((vector_size(8 * kWordLanes)));
#ifdef __AVX512F__
#define SLUICE_MULTIPLY(a, b) (ScanWords) _mm512_mul_epu32((__m512i)(a), _mm512_set1_epi64(b))
#elif defined(__AVX2__)
#define SLUICE_MULTIPLY(a, b) (ScanWords) _mm256_mul_epu32((__m256i)(a), _mm256_set1_epi64x(b))
#else
#define SLUICE_MULTIPLY(a, b) (ScanWords) _mm_mul_epu32((__m128i)(a), _mm_set1_epi64x(b))
#endif

// philox4x32 (base/rng.h) of as many groups as there are lanes.
static size_t scan_groups(const Noise& noise, uint32_t first, size_t n, uint32_t needed, uint32_t* out) {
  size_t found = 0;
  ScanWords lane{};
  for (size_t i = 0; i < kWordLanes; ++i) lane[i] = i;
  for (size_t g = 0; g < n; g += kWordLanes) {
    ScanWords c0 = lane + (first + g), c1 = ScanWords{} + noise.position(), c2 = ScanWords{} + noise.choice(), c3 = ScanWords{} + Noise::kDomain;
    uint32_t k0 = noise.key()[0], k1 = noise.key()[1];
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      const ScanWords p0 = SLUICE_MULTIPLY(c0, 0xD2511F53ll), p1 = SLUICE_MULTIPLY(c2, 0xCD9E8D57ll);
      c0 = (p1 >> 32) ^ c1 ^ uint64_t{k0};
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ uint64_t{k1};
      c3 = p0;
    }
    const uint64_t low = 0xFFFFFFFFull;
    const auto enough = ((c0 & low) >= needed) | ((c1 & low) >= needed) | ((c2 & low) >= needed) | ((c3 & low) >= needed);
    uint64_t any = 0;
    for (size_t i = 0; i < kWordLanes; ++i) any |= uint64_t(enough[i]);
    if (any == 0) continue;
    for (size_t i = 0; i < kWordLanes; ++i)
      if (enough[i]) out[found++] = uint32_t(first + g + i);
  }
  return found;
}
#undef SLUICE_MULTIPLY

constexpr Scan kScan{scan_scale_any, scan_groups, scan_mass};
#pragma GCC diagnostic pop
