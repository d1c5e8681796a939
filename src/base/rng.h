// Counter-based random numbers: a pure function of its arguments, so no state is shared between requests.
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once
#include <array>
#include <cstdint>

namespace sluice {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> ctr, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * ctr[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * ctr[2];
    ctr = {uint32_t(p1 >> 32) ^ ctr[1] ^ key[0], uint32_t(p1), uint32_t(p0 >> 32) ^ ctr[3] ^ key[1], uint32_t(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return ctr;
}

// Uniform in (0, 1): never 0 and never 1, so both logarithms of a Gumbel are finite.
inline float unit_float(uint32_t bits) { return (float(bits >> 9) + 0.5f) * (1.0f / 8388608.0f); }

// A small sequential generator for tests and synthetic weights: Philox over a counter.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0) : key_{uint32_t(seed), uint32_t(seed >> 32)}, stream_(stream) {}
  uint32_t next_u32() {
    if (used_ == 4) {
      block_ = philox4x32({uint32_t(count_), uint32_t(count_ >> 32), uint32_t(stream_), uint32_t(stream_ >> 32)}, key_);
      ++count_;
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t next_u64() { const uint64_t hi = next_u32(); return hi << 32 | next_u32(); }
  uint32_t below(uint32_t n) { return uint32_t((uint64_t{next_u32()} * n) >> 32); }  // n > 0
  float uniform() { return unit_float(next_u32()); }
  // Sum of four uniforms, centred and scaled to unit variance: near enough to a normal for synthetic data.
  float normalish() { return (uniform() + uniform() + uniform() + uniform() - 2.0f) * 1.7320508f; }

 private:
  std::array<uint32_t, 2> key_;
  uint64_t stream_, count_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace sluice
