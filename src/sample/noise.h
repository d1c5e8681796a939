// Gumbel noise as a pure function of (seed, choice, position, token): sampling is argmax(logit / T + noise), so a request's
// text does not depend on its neighbours, and a draft model with the same noise mostly agrees with its target
// (coupled sampling, arXiv:2408.07978). The same numbers on every backend.
#pragma once
#include <bit>
#include <cstdint>

#include "base/portable_math.h"
#include "base/rng.h"

namespace sluice::sample {

class Noise {
 public:
  // position: index in the sequence of the token that is being chosen.
  Noise(uint64_t seed, int32_t choice, int64_t position)
      : key_{uint32_t(seed), uint32_t(seed >> 32)}, position_(uint32_t(position)), choice_(uint32_t(choice)) {}

  float gumbel(int32_t token) { return -portable_log(-portable_log(unit_float(bits(token)))); }
  // At least gumbel(token), at a fraction of its cost: of a uniform u, -log(-log(u)) <= -log(1 - u), and 1 - u is within a
  // factor of two of a power of two.
  float gumbel_bound(int32_t token) {
    const uint32_t left = (1u << 23) - (bits(token) >> 9);  // (1 - u) * 2^23 and a half
    return 1e-3f + 0.69321f * float(std::countl_zero(left) - 7);
  }

 private:
  uint32_t bits(int32_t token) {
    const uint32_t group = uint32_t(token) / 4;
    if (group != group_) {
      block_ = philox4x32({group, position_, choice_, 0x5A17C0DEu}, key_);
      group_ = group;
    }
    return block_[uint32_t(token) % 4];
  }

  std::array<uint32_t, 2> key_;
  uint32_t position_, choice_, group_ = 0xFFFFFFFFu;
  std::array<uint32_t, 4> block_{};
};

}  // namespace sluice::sample
