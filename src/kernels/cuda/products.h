// The ways to compute a product on the device, each for some types and shapes; linear.cu chooses among them.
#pragma once
#include "kernels/cuda/cuda_context.h"

namespace sluice::kernels::cuda {

struct Output {
  const uint8_t* weight;
  size_t row_bytes;
  const float* bias;
  float* y;         // of y_type, where only the library writes it
  int rows, y_stride;
  bool accumulate;
  DType y_type = DType::kF32;
  // Of fp8, whose rows are codes alone: [rows, cols / scale_cols].
  const float* scales = nullptr;
  int scale_cols = 0;
  // From column `col` of y on.
  float* y_at(size_t col) const { return reinterpret_cast<float*>(reinterpret_cast<char*>(y) + col * size_t(dtype_bytes(y_type))); }
};

struct Product {
  int tokens, cols, outputs;
  Output out[kMaxLinearOutputs];
  Gate gate = Gate::kNone;  // over two outputs of one shape; the first one's y is written
};

// A product of few tokens as blocks compute it (few_tiles.cuh).
struct FewArgs {
  Product p;
  int tile_end[kMaxLinearOutputs];  // tiles of the outputs up to and with this one
  const void* inputs;               // [parts][T][cols] where they are prepared, or halves; else x is
  Prologue prologue;
  const float* x;
  int x_stride;
  const float* norm_weight;
  float eps;
  int* tickets;
};

// Products that any type has. x: float rows, zeros up to a multiple of 32.
struct FloatProducts {
  // float32: a warp an output row, the same order of folding for any number of tokens.
  void (*rows)(CudaContext* c, const Product& p, const float* x, int x_stride) noexcept;
  // tf32: tiles of 64 x 64 on tensor cores, weights decoded into shared memory.
  void (*tiles)(CudaContext* c, const Product& p, const float* x, int x_stride) noexcept;
};
FloatProducts float_products(WeightType type) noexcept;

// The next pair of tickets (tickets.cuh).
int* next_tickets(CudaContext* c) noexcept;

// From here on, rows of x and the norm's weights are at multiples of 16 bytes.
// f16 and bf16 rows of whole groups of 64, fp8 of 128 with a scale a row or a group, a few tokens: near memory bandwidth. The prologue is done by the kernel or by one
// before it. Inputs are rounded to the weight's type; deterministic contexts split them into three parts, which hold a float.
constexpr int kFewTokens = 16;
bool few_takes(WeightType type, const Product& p) noexcept;
void multiply_few(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept;

// f16, bf16, and fp8 with a scale a row, on 9.0 alone. Inputs are rounded to the weight's type; those of fp8 to e4m3 with a scale a token.
// Dozens of tokens: near memory bandwidth. Rows at multiples of 16 bytes.
bool dense_takes(const CudaContext* c, WeightType type, const Product& p) noexcept;
void multiply_dense(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept;
// Many tokens: near the tensor cores' speed. Results in rows of whole groups of eight at multiples of 16 bytes.
bool large_takes(const CudaContext* c, WeightType type, const Product& p) noexcept;
void multiply_large(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept;

// fp8 rows [begin, end) as f16 rows of cols, at `to`.
void expand_fp8(CudaContext* c, const Output& o, int cols, int begin, int end, void* to) noexcept;

// The prologue's rows as e4m3 with a scale a row, which is its largest magnitude over 448: codes [T][cols], then scales [T].
struct Fp8Inputs {
  const uint8_t* codes;
  const float* scales;
};
bool fp8_rows_take(int cols) noexcept;
Fp8Inputs prepare_fp8(CudaContext* c, const LinearArgs& a, int cols) noexcept;
// What the library leaves of a product of codes becomes the product: out = sums * scale of the token * scale of the row, with out's bias
// and accumulation. sums: [T][rows], or null: out's own y. token_scales null: sums are scaled.
void finish_fp8(CudaContext* c, const Output& o, int tokens, const float* sums, const float* token_scales) noexcept;

// The type that products of `type` round their inputs to.
constexpr DType half_of(WeightType type) { return type == WeightType::kBF16 || is_fp8(type) ? DType::kBF16 : DType::kF16; }
// The prologue's rows rounded to f16 or bf16, [parts][T][cols], left in c->inputs. a.x may be of that type where there is one part
// and no norm.
void prepare_halves(CudaContext* c, WeightType type, const LinearArgs& a, int cols, int parts) noexcept;
// Rows of half_of(type): the inputs themselves where they are such rows, else prepared ones.
struct Halves {
  const void* x;
  int stride;
};
Halves half_inputs(CudaContext* c, WeightType type, const LinearArgs& a, int cols) noexcept;

}  // namespace sluice::kernels::cuda
