// Why the CPU's products look as they do: the same y = W x, five times, each step undoing one cost of the one before. W is Q4_0
// [N, K], far larger than the caches; times are of one thread, per pass over W for T tokens.
//   ninja -C build linear_steps && build/bench/linear_steps [rows] [cols]
//
//   1 floats        every weight becomes a float, every product is one: the arithmetic of the definition
//   2 integers      inputs become int8 once (a scale for 32), a block's products are integers: 4 times less arithmetic, but a row
//                   is summed across its lanes at every block, and its 18-byte blocks align with nothing
//   3 lanes = rows  16 rows lie interleaved, so that a lane is a row: no sum across lanes, scales are one vector
//   4 kernel, T=1   the backend's own: the same layout in one stream, asked for ahead, in the widest dot products there are;
//                   called once for each token, so that T tokens read W T times
//   5 kernel, T     all tokens at once: W is read once, each register of weights meets up to eight tokens
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/abi.h"
#include "kernels/backend_buffer.h"
#include "quant/weight_format.h"

namespace {

using namespace sluice;
using namespace sluice::kernels;

constexpr int kBlock = 32, kBlockBytes = 18, kLanes = 16;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Problem {
  int rows, cols, tokens;
  std::vector<uint8_t> file;       // Q4_0 as in a file: f16 scale, then 16 bytes of two quants
  std::vector<float> x;            // [T, K]
  std::vector<int8_t> q;           // x as int8, [T, K]
  std::vector<float> q_scale;      // [T, K / 32]
  std::vector<int8_t> lanes;       // W - 8, [N / 16][K][16]
  std::vector<float> lane_scale;   // [N / 16][K / 32][16]
  const uint8_t* block(int row, int b) const { return file.data() + (size_t(row) * size_t(cols / kBlock) + size_t(b)) * kBlockBytes; }
};

int quant_at(const uint8_t* block, int i) { return (block[2 + i % 16] >> (i / 16 * 4) & 15) - 8; }
float scale_of(const uint8_t* block) {
  uint16_t h;
  std::memcpy(&h, block, 2);
  return half_to_float(h);
}

Problem make(int rows, int cols, int tokens) {
  Problem p{rows, cols, tokens, {}, {}, {}, {}, {}, {}};
  Rng rng(1);
  std::vector<float> w(size_t(rows) * size_t(cols));
  for (float& v : w) v = rng.normalish() * 0.05f;
  const quant::WeightFormat* f = quant::find_format(WeightType::kQ4_0);
  p.file.resize(size_t(rows) * quant::row_bytes(*f, size_t(cols)));
  f->encode(w.data(), p.file.data(), w.size());
  for (int i = 0; i < tokens * cols; ++i) p.x.push_back(rng.normalish());
  for (int b = 0; b < tokens * cols / kBlock; ++b) {
    const float* x = p.x.data() + b * kBlock;
    float most = 0;
    for (int i = 0; i < kBlock; ++i) most = std::max(most, std::abs(x[i]));
    p.q_scale.push_back(most / 127);
    for (int i = 0; i < kBlock; ++i) p.q.push_back(int8_t(std::lrintf(x[i] * 127 / most)));
  }
  p.lanes.resize(w.size());
  p.lane_scale.resize(w.size() / kBlock);
  for (int r = 0; r < rows; ++r)
    for (int b = 0; b < cols / kBlock; ++b) {
      const size_t tile = size_t(r / kLanes) * size_t(cols);
      p.lane_scale[(tile / kBlock + size_t(b)) * kLanes + size_t(r % kLanes)] = scale_of(p.block(r, b));
      for (int i = 0; i < kBlock; ++i)
        p.lanes[(tile + size_t(b * kBlock + i)) * kLanes + size_t(r % kLanes)] = int8_t(quant_at(p.block(r, b), i));
    }
  return p;
}

void floats(const Problem& p, float* y) {
  const quant::WeightFormat* f = quant::find_format(WeightType::kQ4_0);
  std::vector<float> w(size_t(p.cols));
  for (int r = 0; r < p.rows; ++r) {
    f->decode(p.block(r, 0), w.data(), w.size());
    for (int t = 0; t < p.tokens; ++t) {
      float sum = 0;
      for (int k = 0; k < p.cols; ++k) sum += w[size_t(k)] * p.x[size_t(t) * size_t(p.cols) + size_t(k)];
      y[size_t(t) * size_t(p.rows) + size_t(r)] = sum;
    }
  }
}

void integers(const Problem& p, float* y) {
  for (int r = 0; r < p.rows; ++r)
    for (int t = 0; t < p.tokens; ++t) {
      float sum = 0;
      for (int b = 0; b < p.cols / kBlock; ++b) {
        const uint8_t* block = p.block(r, b);
        const int8_t* q = p.q.data() + size_t(t) * size_t(p.cols) + size_t(b) * kBlock;
        int dot = 0;
        for (int i = 0; i < 16; ++i) dot += ((block[2 + i] & 15) - 8) * q[i] + ((block[2 + i] >> 4) - 8) * q[16 + i];
        sum += float(dot) * scale_of(block) * p.q_scale[size_t(t) * size_t(p.cols / kBlock) + size_t(b)];
      }
      y[size_t(t) * size_t(p.rows) + size_t(r)] = sum;
    }
}

void rows_in_lanes(const Problem& p, float* y) {
  for (int tile = 0; tile < p.rows / kLanes; ++tile)
    for (int t = 0; t < p.tokens; ++t) {
      float sum[kLanes] = {};
      for (int b = 0; b < p.cols / kBlock; ++b) {
        const int8_t* w = p.lanes.data() + (size_t(tile) * size_t(p.cols) + size_t(b) * kBlock) * kLanes;
        const int8_t* q = p.q.data() + size_t(t) * size_t(p.cols) + size_t(b) * kBlock;
        int dot[kLanes] = {};
        for (int i = 0; i < kBlock; ++i)
          for (int l = 0; l < kLanes; ++l) dot[l] += w[i * kLanes + l] * q[i];
        const float* scale = p.lane_scale.data() + (size_t(tile) * size_t(p.cols / kBlock) + size_t(b)) * kLanes;
        const float x_scale = p.q_scale[size_t(t) * size_t(p.cols / kBlock) + size_t(b)];
        for (int l = 0; l < kLanes; ++l) sum[l] += float(dot[l]) * scale[l] * x_scale;
      }
      std::memcpy(y + size_t(t) * size_t(p.rows) + size_t(tile) * kLanes, sum, sizeof sum);
    }
}

void kernel(const Problem& p, const KernelTable& table, Context* context, const PackedWeight& w, int tokens_a_call, float* y) {
  for (int t = 0; t < p.tokens; t += tokens_a_call) {
    LinearArgs a;
    a.num_tokens = tokens_a_call;
    a.x = p.x.data() + size_t(t) * size_t(p.cols);
    a.x_stride = p.cols;
    a.num_outputs = 1;
    a.out[0] = {w, nullptr, y + size_t(t) * size_t(p.rows), p.rows, false};
    table.linear(context, a);
  }
}

void report(const char* name, const Problem& p, const std::vector<float>& want, const std::function<void(float*)>& fn) {
  std::vector<float> y(want.size());
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    const double begin = now();
    fn(y.data());
    best = std::min(best, now() - begin);
  }
  double error = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    error += std::pow(double(y[i]) - want[i], 2);
    size += std::pow(double(want[i]), 2);
  }
  std::printf("%-16s T=%-3d %9.2f ms %8.1f GOP/s %8.1f GB/s of W   error %.4f\n", name, p.tokens, best * 1e3, 2.0 * p.rows * p.cols * p.tokens / best * 1e-9,
              double(p.file.size()) / best * 1e-9, want.empty() || size == 0 ? 0 : std::sqrt(error / size));
}

}  // namespace

int main(int argc, char** argv) {
  const int rows = (argc > 1 ? std::atoi(argv[1]) : 65536) / kLanes * kLanes, cols = (argc > 2 ? std::atoi(argv[2]) : 2048) / kBlock * kBlock;
  const char* why = nullptr;
  const KernelTable* table = cpu_kernels("", &why);
  if (!table || rows <= 0 || cols <= 0) return std::fprintf(stderr, "linear_steps: %s\n", why ? why : "sizes must be above 0"), 1;
  std::printf("Q4_0 %d x %d, one thread, %s\n", rows, cols, table->name);
  for (int tokens : {1, 16}) {
    const Problem p = make(rows, cols, tokens);
    std::vector<float> want(size_t(tokens) * size_t(rows));
    floats(p, want.data());
    const BackendBuffer packed(*table, table->packed_bytes(WeightType::kQ4_0, rows, cols));
    table->pack(WeightType::kQ4_0, rows, cols, p.file.data(), packed.data(), 0, rows);
    const PackedWeight w{WeightType::kQ4_0, rows, cols, packed.data(), packed.bytes()};
    Context* context = table->create({.threads = 1, .pin = false, .max_tokens = tokens, .max_dim = cols});
    if (!context) return std::fprintf(stderr, "linear_steps: no memory\n"), 1;
    report("1 floats", p, want, [&](float* y) { floats(p, y); });
    report("2 integers", p, want, [&](float* y) { integers(p, y); });
    report("3 lanes = rows", p, want, [&](float* y) { rows_in_lanes(p, y); });
    report("4 kernel, T=1", p, want, [&](float* y) { kernel(p, *table, context, w, 1, y); });
    report("5 kernel, T", p, want, [&](float* y) { kernel(p, *table, context, w, tokens, y); });
    table->destroy(context);
  }
}
