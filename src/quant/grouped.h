// Matrices as quantisation with side tensors leaves them, in plain arrays: what GPTQ, AWQ and rounding produce, and what the
// writers of safetensors layouts store. N outputs (rows), K inputs (columns), G = ceil(K / group) groups.
// Sizes and ranges are the producer's promise; `fault` says in one line what breaks them. Values; any thread.
// Source: GPTQ arXiv:2210.17323, AWQ arXiv:2306.00978, FP8 arXiv:2209.05433.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::quant {

// w[n][k] = scales[n][g] * (codes[n][k] - zeros[n][g]), g = group_of[k].
struct GroupedMatrix {
  int rows = 0, cols = 0;          // N, K
  int bits = 4;                    // 2..8
  int group = 128;                 // inputs a scale; the last group may be shorter. cols: one scale a row
  std::vector<uint8_t> codes;      // [N, K], below 2^bits; columns in the model's order, whatever group_of says
  // [N, G]. Finite, and values that a half holds exactly: files store halves, so choose codes for the rounded scale.
  std::vector<float> scales;
  // [N, G], below 2^bits. Symmetric: all 2^(bits - 1). Files of GPTQ's first version store zero - 1, so that a zero of 0 is
  // read differently by different programs: prefer 1 and up where nothing is lost.
  std::vector<uint8_t> zeros;
  std::vector<int32_t> group_of;   // [K] the group of each column after an activation order; empty: k / group

  int groups() const { return group > 0 ? (cols + group - 1) / group : 0; }
};

// w[n][k] = scales[n / block_rows][k / block_cols] * e4m3(codes[n][k]).
struct Fp8Matrix {
  int rows = 0, cols = 0;
  int block_rows = 1, block_cols = 0;  // what shares a scale: 1 x cols a channel, rows x cols the tensor, 128 x 128
  std::vector<uint8_t> codes;          // [N, K] e4m3 (base/fp8.h), none NaN
  std::vector<float> scales;           // [ceil(N / block_rows), ceil(K / block_cols)], finite

  int scale_rows() const { return block_rows > 0 ? (rows + block_rows - 1) / block_rows : 0; }
  int scale_cols() const { return block_cols > 0 ? (cols + block_cols - 1) / block_cols : 0; }
};

// "" or what is wrong.
std::string fault(const GroupedMatrix& m);
std::string fault(const Fp8Matrix& m);

// Row n of the matrix as floats, K of them.
void decode_row(const GroupedMatrix& m, int n, float* out);
void decode_row(const Fp8Matrix& m, int n, float* out);

// Rounding to nearest, without data: scales from each group's largest magnitude (symmetric) or its range, rounded to half first.
// w: [N, K]. Errors: none; NaN and infinity are the caller's to refuse.
GroupedMatrix round_grouped(const float* w, int rows, int cols, int bits, int group, bool symmetric);
Fp8Matrix round_fp8(const float* w, int rows, int cols, int block_rows, int block_cols);

}  // namespace sluice::quant
