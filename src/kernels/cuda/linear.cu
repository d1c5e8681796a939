// Products: which way each is computed. fp8: few tokens by linear_few.cu; many by the library, on codes where rows have a scale each (docs/adr/0018),
// else expanded to f16. f16 and bf16: few tokens by linear_few.cu, many by the library where it is found. Where it is not, on 9.0, linear_dense.cu
// takes some dozens of all three and linear_large.cu more. Tiled types (tiled.h): few tokens by linear_quant.cuh, up to a few thousand by linear_quant_many.cuh (on 9.0 alone), more by the library from rows that are expanded to f16. Everything
// else by linear_float.cuh: few tokens in float32, many in tf32. A deterministic context takes the ways in which a token's result depends on its own inputs alone,
// whatever the number of tokens.
#include <algorithm>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/library.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tiled.h"
#include "quant/weight_format.h"

namespace sluice::kernels::cuda {
namespace {

// Where the library is not faster: few tokens, and inputs that are not much longer than what shared memory holds.
constexpr int kOwnTokens = 8;
constexpr size_t kOwnInputs = 128 * 1024;
// Quantised weights: for how few tokens they are read for the bandwidth, and how often; from how many on the library is so much faster that it makes up for
// expanding them.
constexpr int kQuantFew = 8, kQuantPasses = 1, kQuantMany = 2048;
// Without the library: how many tokens have tiles for the bandwidth.
constexpr int kDenseTokens = 256;
// fp8: from how many tokens on the library's own scaling is as fast as its product without.
constexpr int kScaledTokens = 512;
constexpr int kGroup = 32;  // float inputs are padded to multiples of this

// order: column k is the prologue's column order[k]; null: k. Columns from `cols` on are zeros.
template <class Y>
__global__ void prologue_kernel(LinearArgs a, int cols, const int32_t* order, Y* inputs, int stride) {
  const size_t x = size_t(blockIdx.x) * a.x_stride;
  Y* y = inputs + size_t(blockIdx.x) * stride;
  float factor = 1;
  if (a.prologue == Prologue::kRmsNorm) {
    double sum = 0;
    for (int k = threadIdx.x; k < cols; k += blockDim.x) {
      const double v = element_of(a.x, x + k);
      sum += v * v;
    }
    factor = float(1.0 / sqrt(block_sum(sum) / cols + a.eps));
  }
  for (int k = threadIdx.x; k < stride; k += blockDim.x) {
    float v = 0;
    if (k < cols) {
      const int from = order ? order[k] : k;
      v = element_of(a.x, x + from);
      switch (a.prologue) {
        case Prologue::kNone: break;
        case Prologue::kRmsNorm: v = v * factor * (a.norm_weight ? a.norm_weight[from] : 1.0f); break;
        case Prologue::kSiluMul: v = v / (1.0f + expf(-v)) * element_of(a.x, x + cols + from); break;
        case Prologue::kGeluMul: {  // 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), which cancels nothing
          const float u = 0.7978845608028654f * (v + 0.044715f * v * v * v);
          v = v / (1.0f + expf(-2.0f * u)) * element_of(a.x, x + cols + from);
          break;
        }
      }
    }
    y[k] = from_float<Y>(v);
  }
}

// Float inputs: x itself where there is nothing to do and rows are whole groups, else prepared ones in scratch memory.
struct FloatInputs {
  const float* x;
  int stride;
};
FloatInputs float_inputs(CudaContext* c, const LinearArgs& a, int cols, const int32_t* order) {
  if (a.prologue == Prologue::kNone && !order && cols % kGroup == 0 && a.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0)
    return {a.x.floats(), a.x_stride};
  const int stride = (cols + kGroup - 1) / kGroup * kGroup;
  launch(c, a.num_tokens, 256, prologue_kernel<float>, a, cols, order, c->inputs, stride);
  return {c->inputs, stride};
}

// Inputs of a tiled type in the order that its columns want, as f16 with the prologue done: what any of the ways takes as it lies.
LinearArgs in_order(CudaContext* c, const LinearArgs& a, int cols, const int32_t* order) {
  auto* to = reinterpret_cast<__half*>(c->inputs);
  launch(c, a.num_tokens, 256, prologue_kernel<__half>, a, cols, order, to, cols);
  LinearArgs ready = a;
  ready.x = {to, DType::kF16};
  ready.x_stride = cols;
  ready.prologue = Prologue::kNone;
  ready.out[0].weight.input_order = nullptr;
  return ready;
}

bool rows_are_aligned(const LinearArgs& a) {
  return a.x_stride % 4 == 0 && (reinterpret_cast<uintptr_t>(a.x.data) | reinterpret_cast<uintptr_t>(a.norm_weight)) % 16 == 0;
}

bool own_is_faster(const CudaContext* c, const Product& p) {
  if (!c->library) return p.tokens <= kFewTokens;
  return p.tokens <= kOwnTokens && size_t(p.tokens) * p.cols <= kOwnInputs;
}

// The library's products of codes.
bool codes_take(const Product& p) {
  const auto whole = [&](const Output& o) {
    const int size = int(16 / dtype_bytes(o.y_type));
    return o.scale_cols == p.cols && o.rows % 16 == 0 && o.y_stride % size == 0 && reinterpret_cast<uintptr_t>(o.y) % 16 == 0 && o.y_type != DType::kF16;
  };
  return fp8_rows_take(p.cols) && std::all_of(p.out, p.out + p.outputs, whole);
}
void multiply_codes(CudaContext* c, const Product& p, const LinearArgs& a) {
  const Fp8Inputs in = prepare_fp8(c, a, p.cols);
  for (int i = 0; i < p.outputs; ++i) {
    const Output& o = p.out[i];
    const bool apart = o.accumulate && size_t(p.tokens) * o.rows <= kPartTiles * kPartFloats;
    if (p.tokens >= kScaledTokens || (o.accumulate && !apart)) {
      note(c, c->library->multiply_codes(c->stream, in.codes, in.scales, p.tokens, p.cols, o));
      if (o.bias) finish_fp8(c, o, p.tokens, nullptr, nullptr);
      continue;
    }
    // Few tokens: the library's scaling takes longer than a kernel behind it.
    Output sums = o;
    if (apart) sums.y = c->parts, sums.y_stride = o.rows, sums.accumulate = false;
    note(c, c->library->multiply_codes(c->stream, in.codes, nullptr, p.tokens, p.cols, sums));
    finish_fp8(c, o, p.tokens, apart ? c->parts : nullptr, in.scales);
  }
}

void expand(CudaContext* c, WeightType type, const Output& o, int cols, int begin, int end, void* to) {
  if (is_fp8(type)) expand_fp8(c, o, cols, begin, end, to);
  else find_tiled(type)->expand(c, o, cols, begin, end, to);
}
// The library's products of a quantised weight, which is expanded to f16 some rows at a time.
void multiply_expanded(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) {
  const Halves in = half_inputs(c, WeightType::kF16, a, p.cols);
  constexpr size_t kMostRows = 32 * 1024;  // a grid's second dimension has less than 64 Ki
  const int step = int(std::min(kMostRows, kExpandedBytes / (size_t(p.cols) * 2))) / 128 * 128;
  for (int i = 0; i < p.outputs; ++i) {
    const Output& o = p.out[i];
    for (int first = 0; first < o.rows; first += step) {
      Output some = o;
      some.rows = std::min(step, o.rows - first);
      some.weight = static_cast<const uint8_t*>(c->expanded);
      some.bias = o.bias ? o.bias + first : nullptr;
      some.y = o.y_at(size_t(first));
      expand(c, type, o, p.cols, first, first + some.rows, c->expanded);
      note(c, c->library->multiply(c->stream, WeightType::kF16, in.x, in.stride, p.tokens, p.cols, some));
    }
  }
}

// The ways that a product may go; which is right depends on the weights' type, the shape and how inputs lie.
enum class Way { kFew, kCodes, kLibrary, kDense, kLarge, kQuant, kQuantMany, kExpanded, kRows, kTiles };

// Without the library; kTiles: neither takes it.
Way without_library(const CudaContext* c, WeightType type, const Product& p) {
  const bool large = large_takes(c, type, p);
  if (dense_takes(c, type, p) && (p.tokens <= kDenseTokens || !large)) return Way::kDense;
  return large ? Way::kLarge : Way::kTiles;
}

// aligned: inputs at multiples of 16 bytes. floats: they are float32.
Way way_of(const CudaContext* c, WeightType type, const Product& p, bool aligned, bool floats) {
  if (is_fp8(type) && !c->deterministic && aligned) {
    if (few_takes(type, p) && own_is_faster(c, p)) return Way::kFew;
    if (c->library && c->can.hopper && codes_take(p)) return Way::kCodes;
    if (const Way own = without_library(c, type, p); !c->library && own != Way::kTiles) return own;
    if (c->library && p.cols % 8 == 0 && floats) return Way::kExpanded;
  }
  if (!is_fp8(type) && few_takes(type, p) && aligned) {
    if (c->deterministic || own_is_faster(c, p)) return Way::kFew;
    if (c->library) return Way::kLibrary;
    if (const Way own = without_library(c, type, p); own != Way::kTiles) return own;
  }
  if (is_tiled(type) && !c->deterministic && aligned) {
    const int passes = find_tiled(type)->passes(c, p);
    if (c->can.hopper) {
      if (p.tokens <= kQuantFew && passes > 0 && passes <= kQuantPasses) return Way::kQuant;
      return p.tokens <= kQuantMany || !c->library ? Way::kQuantMany : Way::kExpanded;
    }
    if (passes > 0 && (p.tokens <= kQuantFew || !c->library)) return Way::kQuant;
    if (c->library && (floats || p.tokens > kQuantFew)) return Way::kExpanded;
  }
  return c->deterministic || p.tokens <= kFewTokens ? Way::kRows : Way::kTiles;
}

bool takes_halves(Way way) { return way != Way::kRows && way != Way::kTiles; }

void multiply(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) {
  const int32_t* order = a.out[0].weight.input_order;
  const TiledType* tiled = find_tiled(type);
  // Inputs in order are f16, which float32's ways do not take; those put floats in order themselves.
  if (order && tiled && !c->deterministic && takes_halves(way_of(c, type, p, true, false))) return multiply(c, type, p, in_order(c, a, p.cols, order));
  const bool floats = a.x.type == DType::kF32;
  switch (order ? Way::kRows : way_of(c, type, p, !floats || rows_are_aligned(a), floats)) {
    case Way::kFew: return multiply_few(c, type, p, a);
    case Way::kCodes: return multiply_codes(c, p, a);
    case Way::kQuant: return tiled->few(c, p, a);
    case Way::kQuantMany: return tiled->many(c, p, a);
    case Way::kDense: return multiply_dense(c, type, p, a);
    case Way::kLarge: return multiply_large(c, type, p, a);
    case Way::kExpanded: return multiply_expanded(c, type, p, a);
    case Way::kLibrary: {
      const Halves in = half_inputs(c, type, a, p.cols);
      for (int i = 0; i < p.outputs; ++i) note(c, c->library->multiply(c->stream, type, in.x, in.stride, p.tokens, p.cols, p.out[i]));
      return;
    }
    case Way::kRows: case Way::kTiles: break;
  }
  const FloatInputs in = float_inputs(c, a, p.cols, order);
  const FloatProducts ways = float_products(type);
  if (c->deterministic || p.tokens <= kFewTokens) ways.rows(c, p, in.x, in.stride);
  else ways.tiles(c, p, in.x, in.stride);
}

// Outputs whose weights and results lie side by side are one: fewer and larger products.
bool continues(const Output& o, const Output& next) {
  return next.weight == o.weight + size_t(o.rows) * o.row_bytes && next.scale_cols == o.scale_cols &&
         (!o.scales || next.scales == o.scales + size_t(o.rows) * (o.row_bytes / size_t(o.scale_cols))) && o.rows % kUnitRows == 0 && next.y_type == o.y_type &&
         next.y == o.y_at(size_t(o.rows)) && next.y_stride == o.y_stride &&
         !o.bias && !next.bias && o.accumulate == next.accumulate;
}

size_t row_bytes_of(WeightType type, int cols) {
  if (is_fp8(type)) return size_t(cols);
  if (const TiledType* t = find_tiled(type)) return t->tile_bytes(cols) / kUnitRows;
  return quant::row_bytes(*quant::find_format(type), size_t(cols));
}
Output output_of(const LinearOutput& o) {
  const PackedWeight& w = o.weight;
  return {static_cast<const uint8_t*>(w.data), row_bytes_of(w.type, w.cols), o.bias, static_cast<float*>(o.y.data), w.rows, o.y_stride, o.accumulate, o.y.type, w.scales, w.scale_cols};
}
// The outputs from `from` on that go together, neighbours of one type; `from` is then behind them.
Product product_of(const LinearArgs& a, int& from) {
  const WeightType type = a.out[from].weight.type;
  Product p{a.num_tokens, a.out[0].weight.cols, 0, {}, a.gate};
  for (; from < a.num_outputs && a.out[from].weight.type == type; ++from) {
    const Output next = output_of(a.out[from]);
    if (p.outputs && p.gate == Gate::kNone && continues(p.out[p.outputs - 1], next)) p.out[p.outputs - 1].rows += next.rows;
    else p.out[p.outputs++] = next;
  }
  return p;
}

}  // namespace

int* next_tickets(CudaContext* c) noexcept { return c->tickets + 2 * (c->next_tickets++ % kTicketPairs); }

// Halves where many tokens are computed from halves: what is given needs no rounding then, and is half as long.
DType activations(const Context* context, const PackedWeight& w, int num_tokens) noexcept {
  const auto* c = static_cast<const CudaContext*>(context);
  if (c->deterministic || (!c->library && !c->can.hopper) || w.cols % 64 != 0 || w.rows % 8 != 0) return DType::kF32;
  const bool many = num_tokens > (c->library ? kOwnTokens : kFewTokens);
  if (is_fp8(w.type)) return c->can.hopper && w.scale_cols == w.cols && w.rows % 16 == 0 && fp8_rows_take(w.cols) && many ? DType::kBF16 : DType::kF32;
  const bool halves = (w.type == WeightType::kF16 || w.type == WeightType::kBF16) && many;
  return halves || (is_tiled(w.type) && num_tokens > kQuantFew) ? half_of(w.type) : DType::kF32;
}

// Where a kernel of this backend makes the product, and what follows takes halves.
bool gates(const Context* context, const PackedWeight& gate, const PackedWeight& up, const PackedWeight& down, int num_tokens, DType* y) noexcept {
  const auto* c = static_cast<const CudaContext*>(context);
  if (c->deterministic || gate.type != up.type || gate.rows != up.rows || gate.cols != up.cols || gate.scale_cols != up.scale_cols || gate.rows % kUnitRows != 0 || gate.input_order != up.input_order || (gate.input_order && !is_tiled(gate.type))) return false;
  const Product both{num_tokens, gate.cols, 2, {output_of({gate, nullptr, {}, 0, false}), output_of({up, nullptr, {}, 0, false})}, Gate::kSilu};
  const Product after{num_tokens, down.cols, 1, {output_of({down, nullptr, {}, down.rows, true})}};
  const Way makes = way_of(c, gate.type, both, true, true), reads = way_of(c, down.type, after, true, false);
  if (makes != Way::kFew && makes != Way::kDense && makes != Way::kLarge && makes != Way::kQuant && makes != Way::kQuantMany) return false;
  if (reads == Way::kExpanded || reads == Way::kRows || reads == Way::kTiles) return false;
  const bool own = reads == Way::kFew || reads == Way::kQuant;  // which take fp8's inputs, too, as f16
  *y = own && is_fp8(down.type) ? DType::kF16 : half_of(down.type);
  return true;
}

void linear(Context* context, const LinearArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.num_tokens <= 0 || a.num_outputs <= 0 || !begin(c)) return;
  if (orders_differ(a)) return one_output_at_a_time(context, a, linear);
  for (int i = 0; i < a.num_outputs;) {
    const WeightType type = a.out[i].weight.type;
    const Product p = product_of(a, i);
    multiply(c, type, p, a);
  }
  note(c, cudaGetLastError());
}

}  // namespace sluice::kernels::cuda
