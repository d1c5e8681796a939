// Passes over a whole vocabulary, which cost what sampling costs: a backend brings its own build of them (scan.inl) for the
// instruction set of the machine. All builds give the same bits.
// Threads: any. Errors: none.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sluice::sample {

class Noise;

// Tokens a block: the largest logits of blocks tell where the largest of all can be.
constexpr size_t kScanBlock = 128;
constexpr size_t scan_blocks(size_t n) { return (n + kScanBlock - 1) / kScanBlock; }

struct Scan {
  // x[i] *= factor (where it is not 1), then maxima[b] is the largest of block b; -infinity where it holds NaN alone.
  void (*scale)(float* x, size_t n, float factor, float* maxima);
  // Of groups [first, first + n) of four tokens, n a multiple of 16, those with a random word of at least `needed`, in rising
  // order; returns how many.
  size_t (*groups)(const Noise& noise, uint32_t first, size_t n, uint32_t needed, uint32_t* out);
  // Sum of token_mass(x[i], max).
  uint64_t (*mass)(const float* x, size_t n, float max);
};

extern const Scan plain_scan;  // for any x86-64

}  // namespace sluice::sample
