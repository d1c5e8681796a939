#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/context.h"
#include "kernels/ref/ref.h"
#include "quant/weight_format.h"

namespace sluice::kernels::ref {
namespace {

constexpr int kRowsPerTask = 16;
constexpr int kTokensPerPass = 8;  // inputs that stay in the first-level cache while the rows of a task pass

float dot(const float* a, const float* b, int n) {
  float partial[16] = {};
  int k = 0;
  for (; k + 16 <= n; k += 16)
    for (int i = 0; i < 16; ++i) partial[i] += a[k + i] * b[k + i];
  for (int i = 0; k < n; ++k, ++i) partial[i] += a[k] * b[k];
  double sum = 0;
  for (float p : partial) sum += p;
  return float(sum);
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }
float gelu_tanh(float x) {
  const double u = 0.7978845608028654 * (double(x) + 0.044715 * double(x) * x * x);
  return float(0.5 * x * (1.0 + std::tanh(u)));
}

struct Job {
  const LinearArgs* args;
  float* inputs;  // [T, K]
  int cols;
};

void prologue_task(void* p, int t, int) noexcept {
  const Job& job = *static_cast<const Job*>(p);
  const LinearArgs& a = *job.args;
  const float* x = a.x.floats() + size_t(t) * a.x_stride;
  float* y = job.inputs + size_t(t) * job.cols;
  switch (a.prologue) {
    case Prologue::kNone: std::memcpy(y, x, size_t(job.cols) * sizeof(float)); break;
    case Prologue::kRmsNorm: rms_norm_row(x, a.norm_weight, a.eps, job.cols, y); break;
    case Prologue::kSiluMul:
      for (int k = 0; k < job.cols; ++k) y[k] = silu(x[k]) * x[job.cols + k];
      break;
    case Prologue::kGeluMul:
      for (int k = 0; k < job.cols; ++k) y[k] = gelu_tanh(x[k]) * x[job.cols + k];
      break;
  }
  if (const int32_t* order = a.out[0].weight.input_order) {
    thread_local std::vector<float> plain;
    plain.assign(y, y + job.cols);
    for (int k = 0; k < job.cols; ++k) y[k] = plain[size_t(order[k])];
  }
}

// Integers with side scales and FP8 stay as they are, and are decoded a task's rows at a time; the rest were decoded when packed.
bool stays_packed(WeightType type) { return is_grouped(type) || is_fp8(type); }
const float* rows_as_floats(const PackedWeight& w, int begin, int end, std::vector<float>& room) {
  if (!stays_packed(w.type)) return static_cast<const float*>(w.data) + size_t(begin) * size_t(w.cols);
  const quant::WeightFormat* f = quant::find_format(w.type);
  room.resize(size_t(end - begin) * size_t(w.cols));
  f->decode(static_cast<const uint8_t*>(w.data) + size_t(begin) * quant::row_bytes(*f, size_t(w.cols)), room.data(), room.size());
  return room.data();
}

int tasks_of(const LinearOutput& o) { return (o.weight.rows + kRowsPerTask - 1) / kRowsPerTask; }

void product_task(void* p, int i, int) noexcept {
  const Job& job = *static_cast<const Job*>(p);
  const LinearArgs& a = *job.args;
  const LinearOutput* o = a.out;
  for (; i >= tasks_of(*o); ++o) i -= tasks_of(*o);
  const int row_begin = i * kRowsPerTask, row_end = std::min(o->weight.rows, (i + 1) * kRowsPerTask);
  thread_local std::vector<float> decoded;
  const float* w = rows_as_floats(o->weight, row_begin, row_end, decoded);
  for (int t0 = 0; t0 < a.num_tokens; t0 += kTokensPerPass) {
    for (int n = row_begin; n < row_end; ++n) {
      for (int t = t0; t < std::min(a.num_tokens, t0 + kTokensPerPass); ++t) {
        float v = dot(w + size_t(n - row_begin) * size_t(job.cols), job.inputs + size_t(t) * job.cols, job.cols);
        if (o->bias) v += o->bias[n];
        float& y = o->y.floats()[size_t(t) * o->y_stride + n];
        y = o->accumulate ? y + v : v;
      }
    }
  }
}

// Rows of two weights side by side, and what the gate makes of them.
void gated_task(void* p, int i, int) noexcept {
  const Job& job = *static_cast<const Job*>(p);
  const LinearArgs& a = *job.args;
  const LinearOutput &gate = a.out[0], &up = a.out[1];
  const int row_begin = i * kRowsPerTask, row_end = std::min(gate.weight.rows, (i + 1) * kRowsPerTask);
  thread_local std::vector<float> decoded[2];
  const float *g = rows_as_floats(gate.weight, row_begin, row_end, decoded[0]), *u = rows_as_floats(up.weight, row_begin, row_end, decoded[1]);
  for (int n = row_begin; n < row_end; ++n) {
    for (int t = 0; t < a.num_tokens; ++t) {
      const float* x = job.inputs + size_t(t) * job.cols;
      const float v = dot(g + size_t(n - row_begin) * size_t(job.cols), x, job.cols);
      gate.y.floats()[size_t(t) * gate.y_stride + n] = (a.gate == Gate::kSilu ? silu(v) : gelu_tanh(v)) * dot(u + size_t(n - row_begin) * size_t(job.cols), x, job.cols);
    }
  }
}

void norm_task(void* p, int t, int) noexcept {
  const NormArgs& a = *static_cast<const NormArgs*>(p);
  const float* x = a.x + size_t(t) * a.x_stride;
  float* y = a.y + size_t(t) * a.y_stride;
  if (!a.accumulate) return rms_norm_row(x, a.weight, a.eps, a.dim, y);
  double sum = 0;
  for (int k = 0; k < a.dim; ++k) sum += double(x[k]) * x[k];
  const double inv = 1.0 / std::sqrt(sum / a.dim + a.eps);
  for (int k = 0; k < a.dim; ++k) y[k] += float(x[k] * inv * (a.weight ? a.weight[k] : 1.0f));
}

}  // namespace

void rms_norm_row(const float* x, const float* weight, float eps, int n, float* y) {
  double sum = 0;
  for (int k = 0; k < n; ++k) sum += double(x[k]) * x[k];
  const double inv = 1.0 / std::sqrt(sum / n + eps);
  for (int k = 0; k < n; ++k) y[k] = float(x[k] * inv * (weight ? weight[k] : 1.0f));
}

size_t packed_bytes(WeightType type, int rows, int cols) noexcept {
  const quant::WeightFormat* f = quant::find_format(type);
  if (!f || cols % f->block_elements != 0) return 0;
  return size_t(rows) * (stays_packed(type) ? quant::row_bytes(*f, size_t(cols)) : size_t(cols) * sizeof(float));
}

void pack(WeightType type, int, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept {
  const quant::WeightFormat* f = quant::find_format(type);
  const size_t stride = quant::row_bytes(*f, size_t(cols));
  if (stays_packed(type)) {
    std::memcpy(static_cast<uint8_t*>(dst) + size_t(row_begin) * stride, static_cast<const uint8_t*>(src) + size_t(row_begin) * stride, size_t(row_end - row_begin) * stride);
    return;
  }
  f->decode(static_cast<const uint8_t*>(src) + row_begin * stride, static_cast<float*>(dst) + size_t(row_begin) * cols,
            size_t(row_end - row_begin) * cols);
}

void linear(Context* c, const LinearArgs& a) noexcept {
  if (a.num_tokens <= 0 || a.num_outputs <= 0) return;
  if (orders_differ(a)) return one_output_at_a_time(c, a, linear);
  Job job{&a, c->act_float, a.out[0].weight.cols};
  run_tasks(c, a.num_tokens, prologue_task, &job);
  if (a.gate != Gate::kNone) return run_tasks(c, tasks_of(a.out[0]), gated_task, &job);
  int tasks = 0;
  for (int i = 0; i < a.num_outputs; ++i) tasks += tasks_of(a.out[i]);
  run_tasks(c, tasks, product_task, &job);
}

// Weights that read their inputs in different orders have no prepared inputs in common.
bool gates(const Context*, const PackedWeight& gate, const PackedWeight& up, const PackedWeight&, int, DType* y) noexcept {
  *y = DType::kF32;
  return gate.input_order == up.input_order;
}

void norm(Context* c, const NormArgs& a) noexcept {
  run_tasks(c, a.num_tokens, norm_task, const_cast<NormArgs*>(&a));
}

}  // namespace sluice::kernels::ref
