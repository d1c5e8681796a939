// linear against double precision, and the bitwise contract: a row depends on its own inputs alone.
#include <memory>
#include <tuple>

#include "kernels/backend_buffer.h"
#include "lab/kernel_check.h"
#include "lab/on_backend.h"

namespace sluice::lab {
namespace {

struct LinearCase {
  WeightType type;
  int tokens, rows, cols;
  Prologue prologue;
  bool bias, accumulate;
  bool row_scale = false;  // of fp8: one a row
};

std::string describe(const LinearCase& c) {
  return quant::find_format(c.type)->name + std::string(" T=") + std::to_string(c.tokens) +
         " N=" + std::to_string(c.rows) + " K=" + std::to_string(c.cols) + " prologue=" + std::to_string(int(c.prologue)) + (c.row_scale ? " scales of rows" : "");
}

// Everything a case needs but the backend.
struct LinearData {
  std::vector<uint8_t> bytes;
  std::vector<float> x, norm, bias, before;
  int x_cols;
  LinearData(const LinearCase& c, uint64_t seed) {
    Rng rng(seed);
    bytes = random_weight(rng, c.type, c.rows, c.cols);
    if (c.row_scale) share_scales(c.type, c.rows, c.cols, bytes);
    x_cols = c.prologue == Prologue::kSiluMul || c.prologue == Prologue::kGeluMul ? 2 * c.cols : c.cols;
    x = random_floats(rng, size_t(c.tokens) * x_cols);
    norm = random_floats(rng, size_t(c.cols));
    bias = random_floats(rng, size_t(c.rows));
    before = random_floats(rng, size_t(c.tokens) * c.rows);
  }
};

struct Truth {
  std::vector<double> y;
  std::vector<double> size;   // root of the sum of the squared terms of each output: what float rounding is measured by
  std::vector<double> noise;  // the same of weight * (largest input of its block) / 254: what int8 inputs may be off by
  // The largest error of got, in units of what is allowed. Float sums: a few roundings, 1e-5 of size. Int8 inputs: an error
  // uniform in +-amax / 254 has a deviation of that over sqrt(3); six deviations, since there are many outputs.
  // Half products: both factors rounded to 11 bits (tf32, f16) are off by at most 2^-11 of themselves, a term by a deviation of
  // 4e-4, and again six; inputs rounded to bf16's 8 bits by at most 2^-8, a term by a deviation of 1.6e-3, and six of those.
  // Fp8 inputs: e4m3's four bits round a number by at most 2^-4 of itself, by a deviation of 2.6e-2 in the mean, times six; the
  // smallest ones, by 2^-10 of 2^-8 of the row's largest, which is less.
  // rounding: what results themselves are rounded by.
  double error(const std::vector<float>& got, bool int8_inputs, double float_error = 1e-5, double rounding = 0) const {
    double worst = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double allowed = float_error * size[i] + (int8_inputs ? 6 / std::sqrt(3.0) * noise[i] : 0) + rounding * std::abs(y[i]) + 1e-30;
      keep_worst(worst, std::abs(got[i] - y[i]) / allowed);
    }
    return worst;
  }
};

Truth truth(const LinearCase& c, const LinearData& d) {
  const std::vector<float> w = decode_weight(c.type, d.bytes, c.rows, c.cols);
  Truth out;
  out.y.resize(size_t(c.tokens) * c.rows);
  out.size.resize(out.y.size());
  out.noise.resize(out.y.size());
  std::vector<double> in(size_t(c.cols));
  for (int t = 0; t < c.tokens; ++t) {
    const float* x = d.x.data() + size_t(t) * d.x_cols;
    double square = 0;
    for (int k = 0; k < c.cols; ++k) square += double(x[k]) * x[k];
    const double factor = 1 / std::sqrt(square / c.cols + 1e-5);
    for (int k = 0; k < c.cols; ++k) {
      const double v = x[k];
      switch (c.prologue) {
        case Prologue::kNone: in[k] = v; break;
        case Prologue::kRmsNorm: in[k] = v * factor * d.norm[k]; break;
        case Prologue::kSiluMul: in[k] = v / (1 + std::exp(-v)) * x[c.cols + k]; break;
        case Prologue::kGeluMul:
          in[k] = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))) * x[c.cols + k];
          break;
      }
    }
    std::vector<double> largest(size_t(c.cols) / 32 + 1, 0);
    for (int k = 0; k < c.cols; ++k) largest[k / 32] = std::max(largest[k / 32], std::abs(in[k]));
    for (int n = 0; n < c.rows; ++n) {
      const double bias = c.bias ? d.bias[n] : 0, before = c.accumulate ? d.before[size_t(t) * c.rows + n] : 0;
      double sum = bias + before, square = bias * bias + before * before, noise = 0;
      for (int k = 0; k < c.cols; ++k) {
        const double term = in[k] * w[size_t(n) * c.cols + k];
        sum += term;
        square += term * term;
        noise += std::pow(largest[k / 32] / 254 * w[size_t(n) * c.cols + k], 2);
      }
      out.y[size_t(t) * c.rows + n] = sum;
      out.size[size_t(t) * c.rows + n] = std::sqrt(square);
      out.noise[size_t(t) * c.rows + n] = std::sqrt(noise);
    }
  }
  return out;
}

// A case in one backend's memory.
struct LinearRun {
  const KernelTable& t;
  const LinearCase& c;
  int x_cols;
  Packed w;
  OnBackend<float> x, norm, bias;
  LinearRun(const KernelTable& t, const LinearCase& c, const LinearData& d)
      : t(t), c(c), x_cols(d.x_cols), w(pack_weight(t, c.type, c.rows, c.cols, d.bytes, c.row_scale)), x(t, d.x), norm(t, d.norm), bias(t, d.bias) {}

  // Tokens [begin, end) of the case in one call.
  void call(Context* context, float* y, int begin, int end) const {
    LinearArgs a;
    a.num_tokens = end - begin;
    a.x = x.data() + size_t(begin) * x_cols;
    a.x_stride = x_cols;
    a.prologue = c.prologue;
    a.norm_weight = norm.data();
    a.eps = 1e-5f;
    a.num_outputs = 1;
    a.out[0] = {w.weight, c.bias ? bias.data() : nullptr, y + size_t(begin) * c.rows, c.rows, c.accumulate};
    t.linear(context, a);
  }
  // All of them, `chunk` a call.
  std::vector<float> outputs(Context* context, const std::vector<float>& before, int chunk) const {
    const OnBackend<float> y(t, before);
    for (int i = 0; i < c.tokens; i += chunk) call(context, y.data(), i, std::min(c.tokens, i + chunk));
    return y.read(context);
  }
};

// What a context is made for: as a server's, without the vendor's library, batch-invariant.
struct Mode {
  bool deterministic, library;
  ContextPtr context(const KernelTable& t) const { return make_context(t, 2, 640, 2048, deterministic, library); }
};
// Those in which a backend may compute this differently.
std::vector<Mode> modes(const KernelTable& t, WeightType type, int tokens) {
  std::vector<Mode> some{{false, true}};
  if (t.batch_invariant) return some;
  some.push_back({true, true});
  if (tokens > 8 && (type == WeightType::kF16 || type == WeightType::kBF16 || is_fp8(type))) some.push_back({false, false});
  return some;
}

std::vector<LinearCase> shapes() {
  std::vector<LinearCase> cases;
  const Prologue prologues[] = {Prologue::kNone, Prologue::kRmsNorm, Prologue::kSiluMul, Prologue::kGeluMul};
  int i = 0;
  for (WeightType type : kAllTypes) {
    const int block = quant::find_format(type)->block_elements, unit = block == 1 ? 33 : block;
    for (int tokens : {1, 2, 3, 5, 8, 13, 40})
      for (int rows : {1, 16, 23, 80})
        cases.push_back({type, tokens, rows, unit * (1 + i % 5), prologues[i % 4], i % 3 == 0, i++ % 2 == 0});
    cases.push_back({type, 4, 48, block == 1 ? 5 : block, Prologue::kNone, false, false});
    cases.push_back({type, 300, 33, block == 1 ? 67 : block, Prologue::kRmsNorm, true, true});
  }
  // Rows of whole groups of 64 halves, which products on tensor cores want; the edges of tiles of 8 tokens and 16 rows.
  for (WeightType type : {WeightType::kF16, WeightType::kBF16})
    for (int tokens : {1, 2, 3, 7, 8, 9, 16, 17, 40})
      for (int rows : {1, 16, 40, 200})
        for (int cols : {64, 576, 2048}) cases.push_back({type, tokens, rows, cols, prologues[i % 4], i % 3 == 0, i++ % 2 == 0});
  // Dozens of tokens and more: the edges of tiles of 128 rows and of 32, 64 and 128 tokens, whose columns several blocks share.
  for (WeightType type : kAllTypes) {
    if (type == WeightType::kF32 || is_fp8(type)) continue;
    for (const auto& [tokens, rows, cols] : {std::tuple{12, 130, 2048}, {32, 257, 512}, {33, 384, 1280}, {64, 40, 2048}, {65, 640, 768}, {128, 256, 1024}, {130, 300, 1536}, {260, 130, 512}})
      cases.push_back({type, tokens, rows, cols, prologues[i % 4], i % 3 == 0, i++ % 2 == 0});
  }
  // Many tokens: the edges of tiles of 128 tokens and of 256 rows, and of steps of 64 columns.
  for (WeightType type : {WeightType::kF16, WeightType::kBF16})
    for (const auto& [tokens, rows, cols] : {std::tuple{129, 1000, 192}, {257, 264, 1088}, {300, 520, 2048}, {640, 136, 576}})
      cases.push_back({type, tokens, rows, cols, prologues[i % 4], i % 3 == 0, i++ % 2 == 0});
  for (const auto& [tokens, rows, cols] : {std::tuple{129, 1008, 128}, {257, 272, 1152}, {520, 528, 2048}})
    cases.push_back({WeightType::kFp8_128, tokens, rows, cols, prologues[i % 4], i % 3 == 0, i++ % 2 == 0, true});
  // More tiles than a device has processors, of too few columns to be shared: a block has one after another.
  cases.push_back({WeightType::kQ4_0, 520, 6930, 256, Prologue::kRmsNorm, true, true});
  // Fp8 of one scale a row and of one a block: the same edges, and rows that a library wants and does not.
  for (bool row_scale : {false, true})
    for (int tokens : {1, 2, 3, 8, 9, 17, 40})
      for (int rows : {1, 16, 40, 48})
        for (int cols : {128, 1152}) cases.push_back({WeightType::kFp8_128, tokens, rows, cols, prologues[i % 4], i % 3 == 0, i++ % 2 == 0, row_scale});
  for (bool row_scale : {false, true}) cases.push_back({WeightType::kFp8_128, 530, 48, 256, Prologue::kSiluMul, true, true, row_scale});
  cases.push_back({WeightType::kFp8_64, 20, 48, 576, Prologue::kNone, false, false, true});
  cases.push_back({WeightType::kFp8_128, 9, 65601, 128, Prologue::kNone, true, false});  // more rows than a grid's second dimension has
  // Few tokens and so many rows that a block of a large device takes two tiles at a time; the last ones are not whole.
  for (int tokens : {1, 3, 8}) {
    cases.push_back({WeightType::kFp8_128, tokens, 4200, 256, prologues[i % 4], i % 3 == 0, i++ % 2 == 0, true});
    for (WeightType type : {WeightType::kQ4_0, WeightType::kQ2_K, WeightType::kInt4_128}) cases.push_back({type, tokens, 5650, 256, prologues[i % 4], i % 3 == 0, i++ % 2 == 0});
  }
  return cases;
}

constexpr double kFp8Inputs = 0.16;

// Float sums, int8 inputs and half products, as Truth::error allows them.
Verdict agrees(const KernelTable& t, const LinearCase& c, uint64_t seed) {
  const LinearData d(c, seed);
  const Truth want = truth(c, d);
  const bool int8_inputs = t.int8_inputs && quant::find_format(c.type)->block_elements != 1 && !is_fp8(c.type);
  Verdict v;
  for (const Mode& mode : modes(t, c.type, c.tokens)) {
    const ContextPtr context = mode.context(t);
    const std::vector<float> y = LinearRun(t, c, d).outputs(context.get(), d.before, c.tokens);
    const bool deterministic = mode.deterministic, halves = t.half_products && !deterministic, bf16_inputs = (t.bf16_inputs || halves) && c.type == WeightType::kBF16;
    const bool fp8_inputs = !deterministic && t.fp8_inputs && is_fp8(c.type) && (c.row_scale || c.cols == side_unit(c.type));
    keep_worst(v.error, want.error(y, int8_inputs, fp8_inputs ? kFp8Inputs : bf16_inputs ? 1e-2 : halves ? 2.5e-3 : 1e-5));
  }
  return v;
}

// Activations in the type that the backend would have them in: inputs that it reads without a norm, results that it does not add.
double halves_error(const KernelTable& t, Context* context, const LinearCase& c, LinearData d, const PackedWeight& weight, DType type) {
  const DType in = c.prologue == Prologue::kRmsNorm ? DType::kF32 : type, out = c.accumulate ? DType::kF32 : type;
  d.x = from_type(in, as_type(in, d.x));
  const OnBackend<uint8_t> x(t, as_type(in, d.x)), y(t, as_type(out, d.before));
  const OnBackend<float> norm(t, d.norm), bias(t, d.bias);
  LinearArgs a;
  a.num_tokens = c.tokens;
  a.x = {x.data(), in};
  a.x_stride = d.x_cols;
  a.prologue = c.prologue;
  a.norm_weight = norm.data();
  a.eps = 1e-5f;
  a.num_outputs = 1;
  a.out[0] = {weight, c.bias ? bias.data() : nullptr, Array(y.data(), out), c.rows, c.accumulate};
  t.linear(context, a);
  return truth(c, d).error(from_type(out, y.read(context)), false, c.row_scale ? kFp8Inputs : type == DType::kBF16 ? 1e-2 : 2.5e-3,
                          out == DType::kF32 ? 0 : out == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048);
}

Verdict halves_agree(const KernelTable& t, const LinearCase& c, uint64_t seed) {
  if (!t.activations) return {};
  LinearData d(c, seed);
  const Packed w = pack_weight(t, c.type, c.rows, c.cols, d.bytes, c.row_scale);
  Verdict v;
  for (const Mode& mode : modes(t, c.type, c.tokens)) {
    const ContextPtr context = mode.context(t);
    const DType type = t.activations(context.get(), w.weight, c.tokens);
    if (type != DType::kF32) keep_worst(v.error, halves_error(t, context.get(), c, d, w.weight, type));
  }
  return v;
}

std::vector<LinearCase> half_shapes() {
  std::vector<LinearCase> cases;
  const Prologue prologues[] = {Prologue::kNone, Prologue::kRmsNorm, Prologue::kSiluMul, Prologue::kGeluMul};
  int i = 0;
  for (WeightType type : {WeightType::kF16, WeightType::kBF16, WeightType::kQ4_0, WeightType::kQ8_0, WeightType::kQ6_K, WeightType::kInt4_128, WeightType::kQ2_K})
    for (int tokens : {9, 33, 129, 300})
      for (int rows : {16, 40, 200})
        for (int cols : {256, 512, 2048}) cases.push_back({type, tokens, rows, cols, prologues[i % 4], false, i++ % 3 == 0});
  for (int tokens : {9, 33, 300, 640})
    for (int rows : {16, 208})
      for (int cols : {256, 2048}) cases.push_back({WeightType::kFp8_128, tokens, rows, cols, prologues[i % 4], false, i++ % 3 == 0, true});
  return cases;
}

struct GateCase {
  WeightType type;
  int tokens, rows, cols;
  Gate gate;
  bool norm, row_scale = false;
};

// Two weights that lie side by side, as a model's do, and the gate over them.
Verdict gate_agrees(const KernelTable& t, const GateCase& c, uint64_t seed) {
  if (!t.gates) return {};
  const LinearCase both{c.type, c.tokens, 2 * c.rows, c.cols, c.norm ? Prologue::kRmsNorm : Prologue::kNone, false, false, c.row_scale};
  const LinearData d(both, seed);
  const Packed w = pack_weight(t, c.type, both.rows, c.cols, d.bytes, c.row_scale);
  PackedWeight gate = w.weight, up = w.weight, down{c.type, 16, c.rows};
  gate.rows = up.rows = c.rows;
  gate.bytes = up.bytes = t.packed_bytes(c.type, c.rows, c.cols);
  up.data = static_cast<const uint8_t*>(w.weight.data) + gate.bytes;
  if (w.weight.scales) up.scales += size_t(c.rows) * size_t(c.cols / up.scale_cols), down.scale_cols = c.row_scale ? c.rows : side_unit(c.type);
  const Truth want = truth(both, d);
  Verdict v;
  for (const Mode& mode : modes(t, c.type, c.tokens)) {
    const ContextPtr context = mode.context(t);
    DType type = DType::kF32;
    if (!t.gates(context.get(), gate, up, down, c.tokens, &type)) continue;
    const OnBackend<float> x(t, d.x), norm(t, d.norm);
    const OnBackend<uint8_t> y(t, as_type(type, std::vector<float>(size_t(c.tokens) * c.rows, NAN)));
    LinearArgs a;
    a.num_tokens = c.tokens;
    a.x = x.data();
    a.x_stride = c.cols;
    a.prologue = both.prologue;
    a.norm_weight = norm.data();
    a.eps = 1e-5f;
    a.num_outputs = 2;
    a.out[0] = {gate, nullptr, Array(y.data(), type), c.rows, false};
    a.out[1] = {up, nullptr, {}, 0, false};
    a.gate = c.gate;
    t.linear(context.get(), a);
    const std::vector<float> got = from_type(type, y.read(context.get()));
    const bool halves = t.half_products && !mode.deterministic;
    const bool fp8 = t.fp8_inputs && is_fp8(c.type) && t.activations(context.get(), gate, c.tokens) == DType::kBF16;
    const double rough = fp8 ? kFp8Inputs : halves && c.type == WeightType::kBF16 ? 1e-2 : halves ? 2.5e-3 : 1e-5;
    for (int i = 0; i < c.tokens; ++i)
      for (int n = 0; n < c.rows; ++n) {
        const size_t at = size_t(i) * both.rows + n, above = at + c.rows;
        const double g = want.y[at], u = want.y[above], factor = c.gate == Gate::kSilu ? 1 / (1 + std::exp(-g)) : 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
        // Neither activation is steeper than 1.13, nor larger than its argument.
        const double by_gate = 1.13 * rough * want.size[at], by_up = rough * want.size[above];
        const double allowed = by_gate * (std::abs(u) + by_up) + std::abs(g * factor) * (by_up + std::abs(u) * (type == DType::kF32 ? 1e-6 : type == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048)) + 1e-7;
        keep_worst(v.error, std::abs(got[size_t(i) * c.rows + n] - g * factor * u) / allowed);
      }
  }
  return v;
}

std::vector<GateCase> gate_shapes() {
  std::vector<GateCase> cases;
  int i = 0;
  const auto add = [&](WeightType type, int rows, int cols, bool row_scale = false) {
    for (int tokens : {1, 2, 3, 8, 9, 40, 70}) cases.push_back({type, tokens, rows, cols, i % 2 ? Gate::kGelu : Gate::kSilu, i++ % 3 != 0, row_scale});
  };
  for (WeightType type : kAllTypes) add(type, 256, 512);
  for (WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBF16}) add(type, 64, 64), add(type, 384, 576), add(type, 192, 2048);
  for (WeightType type : {WeightType::kQ4_0, WeightType::kQ8_0}) add(type, 16 * 32, 1088), add(type, 320, 256);
  for (bool row_scale : {false, true}) add(WeightType::kFp8_128, 128, 128, row_scale), add(WeightType::kFp8_128, 384, 1152, row_scale);
  for (int tokens : {129, 300}) {
    for (WeightType type : {WeightType::kF16, WeightType::kBF16}) cases.push_back({type, tokens, 320, 576, i % 2 ? Gate::kGelu : Gate::kSilu, i++ % 3 != 0});
    cases.push_back({WeightType::kFp8_128, tokens, 384, 1152, i % 2 ? Gate::kGelu : Gate::kSilu, i++ % 3 != 0, true});
  }
  add(WeightType::kFp8_128, 2112, 128, true);  // two tiles at a time, as above
  return cases;
}

// Whole numbers with 127 in every block survive quantisation, so only float sums are left to differ.
Verdict whole_numbers(const KernelTable& t, WeightType type) {
  Verdict v;
  const ContextPtr context = make_context(t, 2);
  for (int tokens = 1; tokens <= 9; ++tokens) {
    const LinearCase c{type, tokens, 39, 768, Prologue::kNone, true, true};
    LinearData d(c, uint64_t(tokens) + 40);
    Rng rng(uint64_t(tokens) + 90);
    for (size_t i = 0; i < d.x.size(); ++i) d.x[i] = i % 32 == 5 ? 127.0f : float(int(rng.below(255)) - 127);
    keep_worst(v.error, truth(c, d).error(LinearRun(t, c, d).outputs(context.get(), d.before, c.tokens), false));
  }
  return v;
}

Verdict rows_stand_alone(const KernelTable& t, WeightType type) {
  const LinearCase c{type, 33, 72, 512, Prologue::kRmsNorm, true, true};
  const LinearData d(c, 77);
  const LinearRun run(t, c, d);
  const ContextPtr one = make_context(t, 1);
  const std::vector<float> want = run.outputs(one.get(), d.before, 1);
  for (int threads : {1, 2, 3}) {
    const ContextPtr context = make_context(t, threads);
    for (int tokens = 1; tokens <= 33; ++tokens)
      if (bits_differ(run.outputs(context.get(), d.before, tokens), want) != 0)
        return {0, "other bits with T=" + std::to_string(tokens) + " and " + std::to_string(threads) + " threads"};
  }
  return {};
}

// The largest quants against the largest inputs: nothing may saturate.
Verdict extreme_quants(const KernelTable& t) {
  Verdict v;
  for (int fill : {0x00, 0xFF})
    for (int zero : {0, 128, 255})
      for (float sign : {1.0f, -1.0f}) {
        const LinearCase c{WeightType::kInt8_64, 3, 16, 128, Prologue::kNone, false, false};
        LinearData d(c, 3);
        for (size_t i = 0; i < d.bytes.size(); ++i)
          if (i % 67 >= 2) d.bytes[i] = uint8_t(i % 67 == 2 ? zero : fill);
        for (float& x : d.x) x = sign;
        keep_worst(v.error, truth(c, d).error(LinearRun(t, c, d).outputs(make_context(t, 1).get(), d.before, c.tokens), false));
      }
  for (int fill : {0x00, 0x7F, 0x80, 0xFF})
    for (float sign : {1.0f, -1.0f}) {
      const LinearCase c{WeightType::kQ8_0, 3, 16, 64, Prologue::kNone, false, false};
      LinearData d(c, 3);
      for (size_t i = 0; i < d.bytes.size(); ++i)
        if (i % 34 >= 2) d.bytes[i] = uint8_t(fill);
      for (float& x : d.x) x = sign;
      keep_worst(v.error, truth(c, d).error(LinearRun(t, c, d).outputs(make_context(t, 1).get(), d.before, c.tokens), false));
    }
  for (int fill : {0x00, 0xFF})  // the table's ends, -127 and 113
    for (float sign : {1.0f, -1.0f}) {
      const LinearCase c{WeightType::kIQ4_NL, 3, 16, 64, Prologue::kNone, false, false};
      LinearData d(c, 3);
      for (size_t i = 0; i < d.bytes.size(); ++i)
        if (i % 18 >= 2) d.bytes[i] = uint8_t(fill);
      for (float& x : d.x) x = sign;
      keep_worst(v.error, truth(c, d).error(LinearRun(t, c, d).outputs(make_context(t, 1).get(), d.before, c.tokens), false));
    }
  return v;
}

Verdict several_outputs(const KernelTable& t) {
  const WeightType types[] = {WeightType::kQ4_K, WeightType::kF16, WeightType::kQ6_K};
  const int rows[] = {64, 17, 40}, tokens = 9, cols = 256;
  Rng rng(9);
  const OnBackend<float> x(t, random_floats(rng, size_t(tokens) * cols));
  const ContextPtr context = make_context(t, 2);
  std::vector<Packed> packed;
  std::vector<OnBackend<float>> apart, together;
  LinearArgs a;
  a.num_tokens = tokens;
  a.x = x.data();
  a.x_stride = cols;
  for (int i = 0; i < 3; ++i) {
    packed.push_back(pack_weight(t, types[i], rows[i], cols, random_weight(rng, types[i], rows[i], cols)));
    apart.emplace_back(t, std::vector<float>(size_t(tokens) * rows[i]));
    together.emplace_back(t, std::vector<float>(size_t(tokens) * rows[i]));
    a.num_outputs = 1;
    a.out[0] = {packed[i].weight, nullptr, apart[i].data(), rows[i], false};
    t.linear(context.get(), a);
  }
  a.num_outputs = 3;
  for (int i = 0; i < 3; ++i) a.out[i] = {packed[i].weight, nullptr, together[i].data(), rows[i], false};
  t.linear(context.get(), a);
  Verdict v;
  for (int i = 0; i < 3; ++i) keep_worst(v.error, bits_differ(apart[i].read(context.get()), together[i].read(context.get())));
  a.num_tokens = 0;
  t.linear(context.get(), a);  // nothing to do, and nothing goes wrong
  if (const char* wrong = t.synchronize(context.get())) v.fault = wrong;
  return v;
}

// Weights that read inputs in an order of their own give what they give for inputs that come in it. Two outputs: one order shared,
// then one of them without. A norm's sum is folded over other neighbours, so its bits may differ, and so may those of a context that is not
// deterministic, where inputs in order are made by another kernel.
Verdict reads_in_order(const KernelTable& t, WeightType type, Prologue prologue, int tokens, bool deterministic, int cols) {
  const LinearCase c{type, tokens, 40, cols, prologue, false, false};
  if (!deterministic && t.batch_invariant) return {};  // nothing else to see
  LinearData d(c, 21);
  Rng rng(22);
  std::vector<int32_t> order(size_t(c.cols));
  for (int k = 0; k < c.cols; ++k) order[size_t(k)] = k;
  for (int k = c.cols - 1; k > 0; --k) std::swap(order[size_t(k)], order[rng.below(uint32_t(k + 1))]);
  const ContextPtr context = make_context(t, 2, 64, std::max(2048, cols), deterministic);
  const LinearRun straight(t, c, d);
  LinearData turned = d;  // the inputs that the straight weights would have to get
  for (int i = 0; i < c.tokens; ++i)
    for (int k = 0; k < d.x_cols; ++k) turned.x[size_t(i * d.x_cols + k)] = d.x[size_t(i * d.x_cols + k / c.cols * c.cols + order[size_t(k % c.cols)])];
  for (int k = 0; k < c.cols; ++k) turned.norm[size_t(k)] = d.norm[size_t(order[size_t(k)])];
  const std::vector<float> want = LinearRun(t, c, turned).outputs(context.get(), d.before, c.tokens), plain = straight.outputs(context.get(), d.before, c.tokens);
  const Truth turned_truth = truth(c, turned), plain_truth = truth(c, d);
  const OnBackend<int32_t> in_order(t, order);
  Verdict v;
  const auto compare = [&](const std::vector<float>& got, const std::vector<float>& bits, const Truth& near, bool may_differ) {
    const double float_error = !deterministic && t.half_products ? 2.5e-3 : 1e-5;
    keep_worst(v.error, may_differ || !deterministic ? near.error(got, t.int8_inputs && !is_fp8(type), float_error) : bits_differ(got, bits));
  };
  for (const bool both : {true, false}) {
    const OnBackend<float> y0(t, d.before), y1(t, d.before);
    LinearArgs a;
    a.num_tokens = c.tokens;
    a.x = straight.x.data();
    a.x_stride = d.x_cols;
    a.prologue = prologue;
    a.norm_weight = straight.norm.data();
    a.eps = 1e-5f;
    a.num_outputs = 2;
    a.out[0] = {straight.w.weight, nullptr, y0.data(), c.rows, false};
    a.out[1] = {straight.w.weight, nullptr, y1.data(), c.rows, false};
    a.out[0].weight.input_order = in_order.data();
    if (both) a.out[1].weight.input_order = in_order.data();
    t.linear(context.get(), a);
    compare(y0.read(context.get()), want, turned_truth, prologue == Prologue::kRmsNorm);
    if (both) compare(y1.read(context.get()), want, turned_truth, prologue == Prologue::kRmsNorm);
    else compare(y1.read(context.get()), plain, plain_truth, false);
  }
  return v;
}

std::vector<KernelCase> cases() {
  std::vector<KernelCase> out;
  uint64_t seed = 1;
  for (const LinearCase& c : shapes()) out.push_back({describe(c), [c, s = seed++](const KernelTable& t) { return agrees(t, c, s); }});
  for (const LinearCase& c : half_shapes())
    out.push_back({"halves " + describe(c), [c, s = seed++](const KernelTable& t) { return halves_agree(t, c, s); }});
  for (const GateCase& c : gate_shapes())
    out.push_back({std::string("gate ") + quant::find_format(c.type)->name + " T=" + std::to_string(c.tokens) + " N=" + std::to_string(c.rows) + " K=" + std::to_string(c.cols) +
                       (c.gate == Gate::kGelu ? " gelu" : " silu") + (c.norm ? " norm" : "") + (c.row_scale ? " scales of rows" : ""),
                   [c, s = seed++](const KernelTable& t) { return gate_agrees(t, c, s); }});
  for (WeightType type : kAllTypes) {
    const std::string name = quant::find_format(type)->name;
    out.push_back({"whole numbers " + name, [type](const KernelTable& t) { return whole_numbers(t, type); }});
    out.push_back({"rows alone or together " + name, [type](const KernelTable& t) { return rows_stand_alone(t, type); }});
  }
  for (WeightType type : {WeightType::kInt4_64, WeightType::kInt8_128, WeightType::kFp8_128})
    for (Prologue p : {Prologue::kNone, Prologue::kRmsNorm, Prologue::kSiluMul, Prologue::kGeluMul})
      for (int tokens : {5, 40})
        for (bool deterministic : {true, false})
          out.push_back({std::string("inputs in order ") + quant::find_format(type)->name + " T=" + std::to_string(tokens) + " prologue=" + std::to_string(int(p)) +
                             (deterministic ? "" : " fast"),
                         [=](const KernelTable& t) { return reads_in_order(t, type, p, tokens, deterministic, 384); }});
  // Rows of which a device with 99 KB of shared memory holds no token's beside its weights.
  out.push_back({"inputs in order int8_128 T=5 K=16384 fast", [](const KernelTable& t) { return reads_in_order(t, WeightType::kInt8_128, Prologue::kNone, 5, false, 16384); }});
  out.push_back({"extreme quants", extreme_quants});
  out.push_back({"several outputs of one input", several_outputs});
  return out;
}

// One matrix many times over, so that a step's weights come from memory; or one that stays in caches.
SpeedRun prepare(const KernelTable& t, Context* context, WeightType type, int tokens, int rows, int cols, bool cold) {
  struct State {
    BackendBuffer weights;  // as a model has them: huge pages and all
    std::unique_ptr<OnBackend<float>> x, y, scales;
    LinearArgs args;
    size_t next = 0;
  };
  const size_t bytes = t.packed_bytes(type, rows, cols);
  if (bytes == 0) return {};
  constexpr size_t kColdBytes = size_t{192} << 20;
  auto s = std::make_shared<State>();
  Rng rng(1);
  const std::vector<uint8_t> file = random_weight(rng, type, rows, cols);
  const std::vector<uint8_t> packed = pack_rows(t, type, rows, cols, file);
  s->weights = BackendBuffer(t, bytes * (cold ? std::max<size_t>(2, kColdBytes / bytes) : 1));
  for (size_t at = 0; at < s->weights.bytes(); at += bytes)
    if (!s->weights.ok() || !t.load(t.device, s->weights.as<uint8_t>() + at, packed.data(), bytes)) return {};
  if (t.scales_apart && t.scales_apart(type)) {
    std::vector<float> scales(size_t(rows) * size_t(cols / side_unit(type)));
    quant::fp8_scales(type, file.data(), rows, cols, side_unit(type), scales.data());
    s->scales = std::make_unique<OnBackend<float>>(t, scales);
  }
  s->x = std::make_unique<OnBackend<float>>(t, random_floats(rng, size_t(tokens) * cols));
  s->y = std::make_unique<OnBackend<float>>(t, std::vector<float>(size_t(tokens) * rows));
  s->args.num_tokens = tokens;
  s->args.x = s->x->data();
  s->args.x_stride = cols;
  s->args.num_outputs = 1;
  SpeedRun run;
  run.bytes = double(bytes) + 4.0 * tokens * (rows + cols);
  run.flops = 2.0 * tokens * rows * cols;
  run.call = [s, &t, context, type, rows, cols, bytes] {
    const uint8_t* at = s->weights.as<uint8_t>() + s->next++ % (s->weights.bytes() / bytes) * bytes;
    s->args.out[0] = {{type, rows, cols, at, bytes}, nullptr, s->y->data(), rows, false};
    if (s->scales) s->args.out[0].weight.scales = s->scales->data(), s->args.out[0].weight.scale_cols = side_unit(type);
    t.linear(context, s->args);
  };
  return run;
}

std::vector<SpeedCase> speeds() {
  std::vector<SpeedCase> out;
  for (WeightType type : kAllTypes)
    for (const auto& [tokens, cold] : {std::pair{1, true}, {4, true}, {16, true}, {1, false}, {4, false}, {16, false}, {512, false}}) {
      const int rows = 1536, cols = 768;
      out.push_back({quant::find_format(type)->name + std::string(" T=") + std::to_string(tokens) + (cold ? " cold" : ""), cold,
                     [=, tokens = tokens, cold = cold](const KernelTable& t, Context* c) { return prepare(t, c, type, tokens, rows, cols, cold); }});
    }
  return out;
}

}  // namespace

extern const KernelCheck check_linear{
    "linear",
    "float sums: 1e-5 of the terms' root sum of squares; int8 inputs: six deviations of an error uniform in half a quant; half "
    "products: six deviations of 2^-11 a factor, bf16 inputs of 2^-8, fp8 inputs of 2^-4, half results what they are rounded by; whole numbers as float sums; rows alone, together and shared: no bit",
    cases, speeds};

}  // namespace sluice::lab
