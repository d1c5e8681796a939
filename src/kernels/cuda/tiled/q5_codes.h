#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

// Four bits, and after them a fifth. `zero` is taken off.
template <int zero>
struct FiveBitCodes {
  static constexpr int kBits = 5;
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) {
    words[half] = put_four_bits(u, l);
    put_one_bit(words + 8, half, u >> 4, l >> 4);
  }
  template <class Lane>
  SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) { five_bits<zero>(lane.code(half), lane.code(8 + half / 4), half, a); }
};

// A block of 32 as the file has it: a word of fifth bits at `at`, then nibbles.
inline uint32_t four_of_five_bits(const uint8_t* block, int at, int half, int t) {
  uint32_t fifth;
  std::memcpy(&fifth, block + at, 4);
  fifth >>= 16 * (half % 2) + 2 * t;
  const uint32_t low = pairs_at(block + at + 4 + 2 * t) >> 4 * (half % 2) & 0x0F0F0F0Fu;
  return low | ((fifth & 1) | (fifth & 2) << 7 | (fifth & 0x100) << 8 | (fifth & 0x200) << 15) << 4;
}

}  // namespace sluice::kernels::cuda
