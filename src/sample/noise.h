// Gumbel noise as a pure function of (seed, choice, position, token): sampling is argmax(logit / T + noise), so a request's
// text does not depend on its neighbours, and a draft model with the same noise mostly agrees with its target
// (coupled sampling, arXiv:2408.07978). The same numbers on every backend.
#pragma once
#include <cstdint>

#include "base/portable_log.h"
#include "base/rng.h"

namespace sluice::sample {

class Noise {
 public:
  // position: index in the sequence of the token that is being chosen.
  Noise(uint64_t seed, int32_t choice, int64_t position)
      : key_{uint32_t(seed), uint32_t(seed >> 32)}, position_(uint32_t(position)), choice_(uint32_t(choice)) {}

  // The random words of four neighbours: tokens 4 * group to 4 * group + 3. More bits, more noise.
  std::array<uint32_t, 4> words(uint32_t group) const { return philox4x32({group, position_, choice_, kDomain}, key_); }
  std::array<uint32_t, 2> key() const { return key_; }
  uint32_t position() const { return position_; }
  uint32_t choice() const { return choice_; }

  float gumbel(int32_t token) {
    const uint32_t group = uint32_t(token) / 4;
    if (group != group_) {
      block_ = words(group);
      group_ = group;
    }
    return -portable_log(-portable_log(unit_float(block_[uint32_t(token) % 4])));
  }

 static constexpr uint32_t kDomain = 0x5A17C0DEu;  // other uses of the generator have others

 private:
  std::array<uint32_t, 2> key_;
  uint32_t position_, choice_, group_ = 0xFFFFFFFFu;
  std::array<uint32_t, 4> block_{};
};

}  // namespace sluice::sample
