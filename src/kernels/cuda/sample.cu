// Sampling: a cluster of kRanks blocks draws a row's token, each over its own slice of the vocabulary, so that one row alone
// is read by eight multiprocessors. Sums are of integers and extremes have one order, so the token is exactly that of
// sample/sampler.cpp. Truncation finds the last kept token by selection: first in 2048 steps of 1/64 below the maximum, which
// spread logits evenly, then digit by digit in (logit, id) among the tokens of one step.
#include <cooperative_groups.h>

#include "base/portable_log.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/reduce.cuh"
#include "sample/token_mass.h"

namespace sluice::kernels::cuda {
namespace {

namespace cg = cooperative_groups;
using sample::LogitChange;
using sample::SampleRow;

constexpr int kRanks = 8, kThreads = 512, kWarpCount = kThreads / 32;
constexpr int kSteps = 2048;
constexpr float kMaxGumbel = 17.0f, kMinGumbel = -2.9f;  // as in sample/sampler.cpp

// A value and the token it belongs to. The larger value wins, then the smaller token; NaN never wins.
struct Best {
  float value;
  int32_t token;
};
__device__ inline Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && uint32_t(b.token) < uint32_t(a.token)) ? b : a;
}

struct Shared {
  unsigned long long bins[kSteps];    // this block's histogram
  unsigned long long totals[kSteps];  // the cluster's, of the bins this thread block looks at
  Best best[kWarpCount], best_of_block;
  unsigned long long sums[kWarpCount], sum_of_block;
  double parts[kWarpCount], part_of_block;
  int chosen;
  unsigned long long before;
};

// Order of floats as unsigned integers, larger first is larger; -0 counts as 0.
__device__ inline uint32_t order_key(float x) {
  const uint32_t u = __float_as_uint(__fadd_rn(x, 0.0f));
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

__device__ inline uint4 philox(uint4 ctr, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t h0 = __umulhi(0xD2511F53u, ctr.x), l0 = 0xD2511F53u * ctr.x;
    const uint32_t h1 = __umulhi(0xCD9E8D57u, ctr.z), l1 = 0xCD9E8D57u * ctr.z;
    ctr = make_uint4(h1 ^ ctr.y ^ key.x, l1, h0 ^ ctr.w ^ key.y, l0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return ctr;
}
__device__ inline float gumbel(uint32_t bits) {
  const float u = (float(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
  return -portable_log(-portable_log(u));
}

__device__ inline unsigned long long mass(float x, float max) { return sample::token_mass(x, max); }

// What the threads of one row share: the slice of this block, and reductions over the cluster.
class Row {
 public:
  __device__ Row(const SampleArgs& a, Shared& shared)
      : cluster_(cg::this_cluster()), shared_(shared), vocab_(a.vocab),
        x_(a.logits + size_t(blockIdx.x / kRanks) * a.vocab) {
    const int slice = ((a.vocab + kRanks - 1) / kRanks + 3) / 4 * 4, rank = int(cluster_.block_rank());
    begin_ = min(vocab_, rank * slice);
    end_ = min(vocab_, begin_ + slice);
  }
  __device__ bool leads() const { return cluster_.block_rank() == 0 && threadIdx.x == 0; }
  __device__ float* logits() const { return x_; }
  __device__ bool mine(int token) const { return token >= begin_ && token < end_; }
  __device__ void sync() const { cluster_.sync(); }

  template <class F>
  __device__ void each(F f) const {
#pragma unroll 4
    for (int t = begin_ + int(threadIdx.x); t < end_; t += kThreads) f(t, x_[t]);
  }
  // Four neighbours a call, for what is made four at a time; begin_ is a multiple of 4.
  template <class F>
  __device__ void each_four(F f) const {
    for (int t = begin_ + 4 * int(threadIdx.x); t < end_; t += 4 * kThreads) f(t, min(4, end_ - t));
  }

  __device__ Best best(Best b) const {
    for (int step = 16; step; step /= 2)
      b = better(b, {__shfl_xor_sync(~0u, b.value, step), __shfl_xor_sync(~0u, b.token, step)});
    if (threadIdx.x % 32 == 0) shared_.best[threadIdx.x / 32] = b;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 1; w < kWarpCount; ++w) b = better(b, shared_.best[w]);
      shared_.best_of_block = b;
    }
    cluster_.sync();
    b = *cluster_.map_shared_rank(&shared_.best_of_block, 0);
    for (int r = 1; r < kRanks; ++r) b = better(b, *cluster_.map_shared_rank(&shared_.best_of_block, r));
    cluster_.sync();
    return b;
  }
  template <class T>
  __device__ T sum(T v, T* warps, T* block) const {
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
      T s = 0;
      for (int w = 0; w < kWarpCount; ++w) s += warps[w];
      *block = s;
    }
    cluster_.sync();
    T s = 0;
    for (int r = 0; r < kRanks; ++r) s += *cluster_.map_shared_rank(block, r);
    cluster_.sync();
    return s;
  }
  __device__ unsigned long long sum(unsigned long long v) const { return sum(v, shared_.sums, &shared_.sum_of_block); }
  __device__ double sum(double v) const { return sum(v, shared_.parts, &shared_.part_of_block); }
  __device__ Best largest(float scale) const {
    Best b{-INFINITY, -1};
    each([&](int t, float x) { b = better(b, {__fmul_rn(x, scale), t}); });
    return best(b);
  }

  // Histogram of fill(add(bin, weight)) over the cluster; then the first bin, from 0 on, at which `before` plus the bins so
  // far reach `wanted`. Adds to `before` the bins passed over. The last bin that is not empty where nothing reaches it.
  template <class F>
  __device__ int find_bin(int bins, double wanted, unsigned long long& before, F fill) const {
    for (int i = threadIdx.x; i < bins; i += kThreads) shared_.bins[i] = 0;
    __syncthreads();
    fill([&](int bin, unsigned long long weight) { atomicAdd(&shared_.bins[bin], weight); });
    cluster_.sync();
    for (int i = threadIdx.x; i < bins; i += kThreads) {
      unsigned long long n = 0;
      for (int r = 0; r < kRanks; ++r) n += cluster_.map_shared_rank(shared_.bins, r)[i];
      shared_.totals[i] = n;
    }
    cluster_.sync();
    if (threadIdx.x < 32) scan(bins, wanted, before);
    __syncthreads();
    before = shared_.before;
    const int bin = shared_.chosen;
    __syncthreads();
    return bin;
  }

 private:
  // One warp: 32 bins at a time.
  __device__ void scan(int bins, double wanted, unsigned long long before) const {
    const int lane = threadIdx.x;
    int last = 0;
    unsigned long long before_last = before;
    for (int base = 0; base < bins; base += 32) {
      const unsigned long long own = base + lane < bins ? shared_.totals[base + lane] : 0;
      unsigned long long through = own;
      for (int step = 1; step < 32; step *= 2) {
        const unsigned long long other = __shfl_up_sync(~0u, through, step);
        if (lane >= step) through += other;
      }
      const unsigned reached = __ballot_sync(~0u, own > 0 && double(before + through) >= wanted);
      const unsigned used = __ballot_sync(~0u, own > 0);
      const int at = reached ? __ffs(int(reached)) - 1 : used ? 31 - __clz(int(used)) : -1;
      if (at >= 0) {
        last = base + at;
        before_last = before + __shfl_sync(~0u, through - own, at);
      }
      if (reached) break;
      before += __shfl_sync(~0u, through, 31);
    }
    if (lane == 0) shared_.chosen = last, shared_.before = before_last;
  }

  cg::cluster_group cluster_;
  Shared& shared_;
  int vocab_, begin_, end_;
  float* x_;
};

// Tokens from the most likely to a last one, which is kept: (step, key, id) in falling order of logit, rising id.
struct Cut {
  uint32_t key = 0;               // everything is kept
  uint32_t token = 0xFFFFFFFFu;
  __device__ bool keeps(float scaled, int t) const {
    const uint32_t k = order_key(scaled);
    return k > key || (k == key && uint32_t(t) <= token);
  }
};

__device__ inline int step_of(float x, float max) {
  const float below = __fmul_rn(max - x, 64.0f);
  return below < float(kSteps - 1) ? int(below) : kSteps - 1;  // a NaN goes to the end
}

// The cut at which the weights of the kept, in falling order, first reach `wanted`. weight(x scaled, token): 0 where an
// earlier cut dropped the token.
template <class W>
__device__ Cut select(const Row& row, float scale, float max, double wanted, W weight) {
  unsigned long long before = 0;
  const int step = row.find_bin(kSteps, wanted, before, [&](auto add) {
    row.each([&](int t, float x) {
      const float v = __fmul_rn(x, scale);
      if (const unsigned long long w = weight(v, t)) add(step_of(v, max), w);
    });
  });
  // 32 bits of key, most significant first and inverted so that larger comes first; then 24 bits of id.
  uint64_t prefix = 0;
  for (int shift = 48; shift >= 0; shift -= 8) {
    const uint64_t seen = shift == 48 ? 0 : prefix >> (shift + 8);
    const int digit = row.find_bin(256, wanted, before, [&](auto add) {
      row.each([&](int t, float x) {
        const float v = __fmul_rn(x, scale);
        if (step_of(v, max) != step) return;
        const uint64_t place = uint64_t(~order_key(v)) << 24 | uint32_t(t);
        if (shift < 48 && place >> (shift + 8) != seen) return;
        if (const unsigned long long w = weight(v, t)) add(int(place >> shift & 255), w);
      });
    });
    prefix |= uint64_t(digit) << shift;
  }
  return {~uint32_t(prefix >> 24), uint32_t(prefix & 0xFFFFFFu)};
}

__device__ Cut truncate(const Row& row, const SampleRow& r, int vocab, float max) {
  const float scale = r.inverse_temperature;
  Cut cut;
  if (r.top_k > 0 && r.top_k < vocab)
    cut = select(row, scale, max, double(r.top_k), [](float, int) { return 1ull; });
  if (r.top_p < 1) {
    unsigned long long total = 0;
    row.each([&](int t, float x) {
      const float v = __fmul_rn(x, scale);
      if (cut.keeps(v, t)) total += mass(v, max);
    });
    const double wanted = double(r.top_p) * double(row.sum(total));
    const Cut by_k = cut;
    cut = select(row, scale, max, wanted, [&](float v, int t) { return by_k.keeps(v, t) ? mass(v, max) : 0ull; });
  }
  return cut;
}

__device__ int32_t choose(const Row& row, const SampleRow& r, int vocab) {
  if (r.inverse_temperature == 0) return max(0, row.largest(1.0f).token);
  const float scale = r.inverse_temperature;
  const Best top = row.largest(scale);
  const bool truncates = (r.top_k > 0 && r.top_k < vocab) || r.top_p < 1 || r.log_min_p < 0;
  float floor = top.value - (kMaxGumbel - kMinGumbel);  // no noise can lift a token from below this one over the leader
  Cut cut;
  if (truncates) {
    cut = truncate(row, r, vocab, top.value);
    floor = r.log_min_p < 0 ? top.value + r.log_min_p : -INFINITY;
  }
  Best b{-INFINITY, -1};
  row.each_four([&](int t, int n) {
    bool any = false;
    float v[4];
    for (int i = 0; i < 4; ++i) {
      v[i] = i < n ? __fmul_rn(row.logits()[t + i], scale) : -INFINITY;
      if (i < n && !(v[i] >= floor && (!truncates || cut.keeps(v[i], t + i)))) v[i] = -INFINITY;
      any |= v[i] > -INFINITY;
    }
    if (!any) return;
    const uint4 bits = philox(make_uint4(uint32_t(t) / 4, r.position, uint32_t(r.choice), 0x5A17C0DEu), make_uint2(r.seed_low, r.seed_high));
    const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
    for (int i = 0; i < 4; ++i)
      if (v[i] > -INFINITY) b = better(b, {v[i] + gumbel(word[i]), t + i});
  });
  b = row.best(b);
  return b.token >= 0 ? b.token : max(0, top.token);
}

// Of raw logits: log(sum(exp)) and the num_top most likely, one after another.
__device__ double log_probabilities(const Row& row, int num_top, sample::TokenLogprob* top) {
  const Best first = row.largest(1.0f);
  double part = 0;
  row.each([&](int, float x) { part += exp(double(x - first.value)); });
  const double lse = double(first.value) + log(row.sum(part));
  Best last = first;
  for (int i = 0; i < num_top; ++i) {
    if (i > 0) {
      Best next{-INFINITY, -1};
      row.each([&](int t, float x) {
        if (x < last.value || (x == last.value && t > last.token)) next = better(next, {x, t});
      });
      last = row.best(next);
    }
    if (row.leads()) top[i] = {last.token, float(double(last.value) - lse)};
  }
  return lse;
}

__global__ void __cluster_dims__(kRanks) __launch_bounds__(kThreads) sample_kernel(const __grid_constant__ SampleArgs a) {
  __shared__ Shared shared;
  const int index = blockIdx.x / kRanks;
  const SampleRow r = a.rows[index];
  const Row row(a, shared);
  const bool scores = r.target >= 0, wants = scores || r.num_logprobs >= 0;
  double lse = 0;
  if (wants) lse = log_probabilities(row, r.num_logprobs, a.top + size_t(index) * sample::kMaxLogprobs);
  int32_t token = r.target;
  if (!scores) {
    for (int i = r.changes_begin + int(threadIdx.x); i < r.changes_end; i += kThreads) {
      LogitChange& c = a.changes[i];
      if (!row.mine(c.token)) continue;
      float v = row.logits()[c.token];
      c.raw = v;
      if (c.divide != 1) v = v > 0 ? __fdiv_rn(v, c.divide) : __fmul_rn(v, c.divide);
      row.logits()[c.token] = __fadd_rn(__fsub_rn(v, c.subtract), c.add);
    }
    __syncthreads();
    token = choose(row, r, a.vocab);
  }
  if (wants) row.sync();  // changes of other blocks' slices
  if (!row.leads()) return;
  float logprob = 0;
  if (wants) {
    float raw = row.logits()[token];
    for (int i = scores ? r.changes_end : r.changes_begin; i < r.changes_end; ++i)
      if (a.changes[i].token == token) raw = a.changes[i].raw;
    logprob = float(double(raw) - lse);
  }
  a.tokens[index] = token;
  a.results[index] = {token, logprob};
}

}  // namespace

void sample_rows(Context* context, const SampleArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.num_rows <= 0 || !begin(c)) return;
  sample_kernel<<<a.num_rows * kRanks, kThreads, 0, c->stream>>>(a);
  note(c, cudaGetLastError());
}

}  // namespace sluice::kernels::cuda
