#pragma once
#include "kernels/cuda/tiled_codes.h"
#include "quant/codebook.h"

namespace sluice::kernels::cuda {

// Four bits that stand for a value of the codebook. Looked up by bytes_of, whose selectors are nibbles: those of pair p lie side by side, from bit 8 p on.
struct CodebookCodes {
  static constexpr int kBits = 4;
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) {
    const auto near = [](uint32_t v) { return (v & 0x000F000Fu) | (v >> 4 & 0x00F000F0u); };
    words[half] = near(u) | near(l) << 8;
  }
  // Four values of the codebook with 128 added, as bytes.
  SLUICE_ANYWHERE static constexpr uint32_t values(int from) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t(quant::kNonLinear4[from + i] + 128) << 8 * i;
    return word;
  }
  template <class Lane>
  SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) {
    constexpr uint32_t k0 = values(0), k4 = values(4), k8 = values(8), k12 = values(12);
    // Either half of the codebook by the low three bits; then, by the fourth, byte i of the one or of the other.
    const uint32_t w = lane.code(half), at = w & 0x77777777u, side = (w >> 1 & 0x44444444u) | 0x32103210u;
    const auto look_up = [](uint32_t at, uint32_t side) { return bytes_of(bytes_of(k0, k4, at), bytes_of(k8, k12, at), side); };
    eight_bits(look_up(at, side), look_up(at >> 16, side >> 16), off_low(128), off_low(128), a);
  }
};

}  // namespace sluice::kernels::cuda
