// linear, norm and embed of every backend against double precision, and the bitwise contract.
#include <memory>

#include "tests/conformance/backends.h"

namespace sluice::kernels::testing {
namespace {

struct LinearCase {
  WeightType type;
  int tokens, rows, cols;
  Prologue prologue;
  bool bias, accumulate;
};

std::string describe(const KernelTable* t, const LinearCase& c) {
  return std::string(t->name) + " " + quant::find_format(c.type)->name + " T=" + std::to_string(c.tokens) +
         " N=" + std::to_string(c.rows) + " K=" + std::to_string(c.cols) + " prologue=" + std::to_string(int(c.prologue));
}

// Everything a case needs but the backend.
struct LinearData {
  std::vector<uint8_t> bytes;
  std::vector<float> x, norm, bias, before;
  int x_cols;
  LinearData(const LinearCase& c, uint64_t seed) {
    Rng rng(seed);
    bytes = random_weight(rng, c.type, c.rows, c.cols);
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
  // 4e-4, and again six; inputs rounded to bf16's 8 bits by 2^-8, a term by a deviation of 1.7e-3, and six of those.
  double error(const std::vector<float>& got, bool int8_inputs, double float_error = 1e-5) const {
    double worst = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double allowed = float_error * size[i] + (int8_inputs ? 6 / std::sqrt(3.0) * noise[i] : 0) + 1e-30;
      const double e = std::abs(got[i] - y[i]) / allowed;
      if (!(e <= worst)) worst = e;
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
  const KernelTable* t;
  const LinearCase& c;
  int x_cols;
  Packed w;
  OnBackend<float> x, norm, bias;
  LinearRun(const KernelTable* t, const LinearCase& c, const LinearData& d)
      : t(t), c(c), x_cols(d.x_cols), w(pack_weight(t, c.type, c.rows, c.cols, d.bytes)), x(t, d.x), norm(t, d.norm), bias(t, d.bias) {}

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
    t->linear(context, a);
  }
  // All of them, `chunk` a call.
  std::vector<float> outputs(Context* context, const std::vector<float>& before, int chunk) const {
    const OnBackend<float> y(t, before);
    for (int i = 0; i < c.tokens; i += chunk) call(context, y.data(), i, std::min(c.tokens, i + chunk));
    return y.read(context);
  }
};

std::vector<LinearCase> linear_cases() {
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
  return cases;
}

TEST(Linear, AgreesWithDoublePrecision) {
  for (const KernelTable* t : backends()) {
    for (bool deterministic : {false, true}) {
      if (deterministic && t->batch_invariant) continue;  // nothing else to see
      const ContextPtr context = make_context(t, 2, 320, 2048, deterministic);
      uint64_t seed = 1;
      for (const LinearCase& c : linear_cases()) {
        SCOPED_TRACE(describe(t, c));
        const LinearData d(c, seed++);
        const std::vector<float> y = LinearRun(t, c, d).outputs(context.get(), d.before, c.tokens);
        const bool int8_inputs = t->int8_inputs && quant::find_format(c.type)->block_elements != 1;
        const double float_error = !t->half_products || deterministic ? 1e-5 : c.type == WeightType::kBF16 ? 1e-2 : 2.5e-3;
        ASSERT_LE(truth(c, d).error(y, int8_inputs, float_error), 1);
      }
    }
  }
}

// Whole numbers with 127 in every block survive quantisation, so only float sums are left to differ.
TEST(Linear, WholeNumbersGiveExactProducts) {
  for (const KernelTable* t : backends()) {
    const ContextPtr context = make_context(t, 2);
    for (WeightType type : kAllTypes) {
      for (int tokens = 1; tokens <= 9; ++tokens) {
        const LinearCase c{type, tokens, 39, 768, Prologue::kNone, true, true};
        SCOPED_TRACE(describe(t, c));
        LinearData d(c, uint64_t(tokens) + 40);
        Rng rng(uint64_t(tokens) + 90);
        for (size_t i = 0; i < d.x.size(); ++i) d.x[i] = i % 32 == 5 ? 127.0f : float(int(rng.below(255)) - 127);
        ASSERT_LE(truth(c, d).error(LinearRun(t, c, d).outputs(context.get(), d.before, c.tokens), false), 1);
      }
    }
  }
}

TEST(Linear, RowsDoNotDependOnTheBatchOrTheThreads) {
  for (const KernelTable* t : backends()) {
    for (WeightType type : kAllTypes) {
      const LinearCase c{type, 33, 72, 512, Prologue::kRmsNorm, true, true};
      SCOPED_TRACE(describe(t, c));
      const LinearData d(c, 77);
      const LinearRun run(t, c, d);
      const ContextPtr one = make_context(t, 1);
      const std::vector<float> want = run.outputs(one.get(), d.before, 1);
      for (int threads : {1, 2, 3}) {
        const ContextPtr context = make_context(t, threads);
        for (int tokens = 1; tokens <= 33; ++tokens) {
          const std::vector<float> y = run.outputs(context.get(), d.before, tokens);
          ASSERT_EQ(0, std::memcmp(y.data(), want.data(), y.size() * sizeof(float))) << "T=" << tokens << " x" << threads;
        }
      }
    }
  }
}

TEST(Linear, InstructionSetsAgreeToTheBit) {
  const KernelTable *a = cpu_kernels("avx2", nullptr), *b = cpu_kernels("avx512", nullptr);
  if (!a || !b) GTEST_SKIP() << "needs both instruction sets";
  for (WeightType type : kAllTypes) {
    // No prologue: exp and the norm's sum are free to differ, products are not.
    const LinearCase c{type, 11, 40, 512, Prologue::kNone, true, false};
    const LinearData d(c, 5);
    std::vector<float> y[2];
    for (int i = 0; i < 2; ++i) {
      const KernelTable* t = i ? b : a;
      y[i] = LinearRun(t, c, d).outputs(make_context(t, 2).get(), d.before, c.tokens);
    }
    EXPECT_EQ(0, std::memcmp(y[0].data(), y[1].data(), y[0].size() * sizeof(float))) << quant::find_format(type)->name;
  }
}

// The largest quants against the largest inputs: nothing may saturate.
TEST(Linear, ExtremeQuantsDoNotSaturate) {
  for (const KernelTable* t : backends()) {
    for (int fill : {0x00, 0x7F, 0x80, 0xFF}) {
      for (float sign : {1.0f, -1.0f}) {
        const LinearCase c{WeightType::kQ8_0, 3, 16, 64, Prologue::kNone, false, false};
        LinearData d(c, 3);
        for (size_t i = 0; i < d.bytes.size(); ++i)
          if (i % 34 >= 2) d.bytes[i] = uint8_t(fill);
        for (float& x : d.x) x = sign;
        const std::vector<float> y = LinearRun(t, c, d).outputs(make_context(t, 1).get(), d.before, c.tokens);
        ASSERT_LE(truth(c, d).error(y, false), 1) << t->name << " " << fill;
      }
    }
  }
}

TEST(Linear, SeveralOutputsOfMixedTypesShareOneInput) {
  for (const KernelTable* t : backends()) {
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
      t->linear(context.get(), a);
    }
    a.num_outputs = 3;
    for (int i = 0; i < 3; ++i) a.out[i] = {packed[i].weight, nullptr, together[i].data(), rows[i], false};
    t->linear(context.get(), a);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(apart[i].read(context.get()), together[i].read(context.get())) << t->name << " output " << i;
    a.num_tokens = 0;
    t->linear(context.get(), a);  // nothing to do, and nothing goes wrong
    EXPECT_EQ(t->synchronize(context.get()), nullptr);
  }
}

TEST(Norm, AgreesWithDoublePrecision) {
  for (const KernelTable* t : backends()) {
    const ContextPtr context = make_context(t, 2);
    for (int dim : {1, 7, 16, 100, 576, 1030})
      for (int tokens : {1, 5, 50})
        for (bool accumulate : {false, true}) {
          Rng rng(uint64_t(dim) * 100 + tokens);
          const std::vector<float> x = random_floats(rng, size_t(tokens) * (dim + 3)), w = random_floats(rng, size_t(dim));
          const OnBackend<float> in(t, x), weight(t, w), out(t, std::vector<float>(size_t(tokens) * dim, 0.5f));
          t->norm(context.get(), {tokens, dim, in.data(), dim + 3, weight.data(), 1e-6f, out.data(), dim, accumulate});
          const std::vector<float> y = out.read(context.get());
          for (int i = 0; i < tokens; ++i) {
            double square = 0;
            for (int k = 0; k < dim; ++k) square += std::pow(double(x[size_t(i) * (dim + 3) + k]), 2);
            for (int k = 0; k < dim; ++k) {
              const double v = x[size_t(i) * (dim + 3) + k] / std::sqrt(square / dim + 1e-6) * w[k] + (accumulate ? 0.5 : 0);
              ASSERT_NEAR(y[size_t(i) * dim + k], v, 1e-6 * (1 + std::abs(v) * 4)) << t->name << " dim " << dim;
            }
          }
        }
  }
}

TEST(Embed, DecodesRowsOfEveryType) {
  for (const KernelTable* t : backends()) {
    const ContextPtr context = make_context(t, 2);
    for (WeightType type : kAllTypes) {
      Rng rng(4);
      const int vocab = 20, dim = 256, tokens = 19;
      const std::vector<uint8_t> table = random_weight(rng, type, vocab, dim);
      const std::vector<float> want = decode_weight(type, table, vocab, dim);
      std::vector<int32_t> ids(tokens);
      for (int32_t& id : ids) id = int32_t(rng.below(vocab));
      const OnBackend<float> out(t, std::vector<float>(size_t(tokens) * dim));
      const OnBackend<int32_t> where(t, ids);
      const OnBackend<uint8_t> rows(t, table);
      t->embed(context.get(), {tokens, where.data(), type, rows.data(), table.size() / vocab, dim, 1.5f, out.data()});
      const std::vector<float> y = out.read(context.get());
      for (int i = 0; i < tokens; ++i)
        for (int k = 0; k < dim; ++k) ASSERT_EQ(y[size_t(i) * dim + k], want[size_t(ids[i]) * dim + k] * 1.5f) << t->name;
    }
  }
}

TEST(Gather, TakesTheRowsThatAreAskedFor) {
  for (const KernelTable* t : backends()) {
    const ContextPtr context = make_context(t, 2);
    Rng rng(5);
    const int dim = 37;
    const std::vector<float> x = random_floats(rng, size_t(9) * dim);
    const std::vector<int32_t> rows{8, 0, 3, 3};
    const OnBackend<float> in(t, x), out(t, std::vector<float>(rows.size() * dim));
    const OnBackend<int32_t> which(t, rows);
    t->gather(context.get(), {int(rows.size()), dim, in.data(), which.data(), out.data()});
    const std::vector<float> y = out.read(context.get());
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(0, std::memcmp(y.data() + i * dim, x.data() + size_t(rows[i]) * dim, dim * sizeof(float))) << t->name;
  }
}

}  // namespace
}  // namespace sluice::kernels::testing
