// Sampling: a cluster of blocks (ranks) draws a row's token, each over its own slice of the vocabulary, so that one row alone is
// read by eight multiprocessors; where rows are many, two do, and one where there are no clusters. Sums are of integers and extremes have one order, so
// the token is exactly that of sample/sampler.cpp. Truncation finds the last kept token by selection: first in 2048 steps of 1/64 below the maximum,
// which spread logits evenly; then among the tokens of one step, by comparing each with each where they are few, else digit by digit in (logit, id).
#include <cooperative_groups.h>

#include "base/portable_log.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "sample/token_mass.h"

namespace sluice::kernels::cuda {
namespace {

namespace cg = cooperative_groups;
using sample::LogitChange;
using sample::SampleRow;

constexpr int kThreads = 512, kWarpCount = kThreads / 32;
constexpr int kManyRows = 48;  // from here on two ranks a row fill the device
constexpr int kSteps = 2048;
constexpr int kCached = 16384;         // scaled logits of a slice that shared memory holds
constexpr int kListed = 512, kFew = 1024;  // tokens of one step: that a block lists, that are compared
constexpr float kMaxGumbel = 17.0f, kMinGumbel = -2.9f;  // as in sample/sampler.cpp

// A value and the token it belongs to. The larger value wins, then the smaller token; NaN never wins.
struct Best {
  float value;
  int32_t token;
};
__device__ inline Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && uint32_t(b.token) < uint32_t(a.token)) ? b : a;
}

// A token's place in falling order of (logit, -id), smaller first, and its weight.
struct Candidate {
  unsigned long long place, weight;
};

struct Shared {
  float scaled[kCached];
  union {
    struct {
      unsigned long long bins[kSteps];    // this block's histogram
      unsigned long long totals[kSteps];  // the cluster's
    };
    struct {
      Candidate listed[kListed];          // this block's
      Candidate all[kFew];                // the cluster's
    };
  };
  int num_listed;
  unsigned long long cut;
  Best best[kWarpCount], best_of_block;
  unsigned long long sums[kWarpCount], sum_of_block;
  double parts[kWarpCount], part_of_block;
  int chosen;
  unsigned long long before;
};
static_assert(sizeof(Shared) <= 99 * 1024);  // what the least of devices have
static_assert(sizeof(Candidate) * (kListed + kFew) <= sizeof(unsigned long long) * 2 * kSteps);

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

// At least gumbel(bits), at a fraction of its cost: of a uniform u, -log(-log(u)) <= -log(1 - u), and 1 - u is within a factor of
// two of a power of two.
__device__ inline float gumbel_bound(uint32_t bits) { return 1e-3f + 0.69321f * float(__clz(int((1u << 23) - (bits >> 9))) - 7); }
__device__ inline uint4 noise_of(const SampleRow& r, int token) {
  return philox(make_uint4(uint32_t(token) / 4, r.position, uint32_t(r.choice), 0x5A17C0DEu), make_uint2(r.seed_low, r.seed_high));
}

__device__ inline unsigned long long mass(float x, float max) { return sample::token_mass(x, max); }

// The blocks of a row: a cluster, or one alone.
template <int kRanks>
struct Ranks {
  __device__ int mine() const { return int(cg::this_cluster().block_rank()); }
  __device__ void sync() const { cg::this_cluster().sync(); }
  template <class T> __device__ T* at(T* shared, int rank) const { return cg::this_cluster().map_shared_rank(shared, rank); }
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <>
struct Ranks<1> {
  __device__ int mine() const { return 0; }
  __device__ void sync() const { __syncthreads(); }
  template <class T> __device__ T* at(T* shared, int) const { return shared; }
};
#endif

// What the threads of one row share: the slice of this block, and reductions over the cluster.
template <int kRanks>
class Row {
 public:
  __device__ Row(const SampleArgs& a, Shared& shared)
      : shared_(shared), vocab_(a.vocab),
        x_(a.logits + size_t(blockIdx.x / kRanks) * a.vocab) {
    const int slice = ((a.vocab + kRanks - 1) / kRanks + 3) / 4 * 4, rank = cluster_.mine();
    begin_ = min(vocab_, rank * slice);
    end_ = min(vocab_, begin_ + slice);
  }
  __device__ bool leads() const { return cluster_.mine() == 0 && threadIdx.x == 0; }
  __device__ float* logits() const { return x_; }
  __device__ bool mine(int token) const { return token >= begin_ && token < end_; }
  __device__ void sync() const { cluster_.sync(); }

  template <class F>
  __device__ void each(F f) const {
    if (vocab_ % 4 != 0) {
#pragma unroll 4
      for (int t = begin_ + int(threadIdx.x); t < end_; t += kThreads) f(t, x_[t]);
      return;
    }
#pragma unroll 4
    for (int t = begin_ + 4 * int(threadIdx.x); t < end_; t += 4 * kThreads) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(x_ + t));
      f(t, v.x), f(t + 1, v.y), f(t + 2, v.z), f(t + 3, v.w);
    }
  }
  // Keeps the scaled logits at hand for each_scaled; where a slice is too long they are scaled again each time.
  __device__ void scale(float by) {
    scale_ = by;
    if (end_ - begin_ > kCached) return;
    each([&](int t, float x) { shared_.scaled[t - begin_] = __fmul_rn(x, by); });
    __syncthreads();
  }
  __device__ float scaled(int t) const { return end_ - begin_ > kCached ? __fmul_rn(x_[t], scale_) : shared_.scaled[t - begin_]; }
  template <class F>
  __device__ void each_scaled(F f) const {
#pragma unroll 4
    for (int t = begin_ + int(threadIdx.x); t < end_; t += kThreads) f(t, scaled(t));
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
    b = *cluster_.at(&shared_.best_of_block, 0);
    for (int r = 1; r < kRanks; ++r) b = better(b, *cluster_.at(&shared_.best_of_block, r));
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
    for (int r = 0; r < kRanks; ++r) s += *cluster_.at(block, r);
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
      for (int r = 0; r < kRanks; ++r) n += cluster_.at(shared_.bins, r)[i];
      shared_.totals[i] = n;
    }
    cluster_.sync();
    scan(bins, wanted, before);
    before = shared_.before;
    const int bin = shared_.chosen;
    __syncthreads();
    return bin;
  }

  // Lists the tokens that fill(list(place, weight)) gives, of the whole cluster; where they are few, finds the one at which the
  // weights in order of place, from `before` on, first reach `wanted`.
  template <class F>
  __device__ bool find_among_few(double wanted, unsigned long long before, unsigned long long& place, F fill) const {
    if (threadIdx.x == 0) shared_.num_listed = 0, shared_.cut = 0;
    __syncthreads();
    fill([&](unsigned long long at, unsigned long long weight) {
      const int i = atomicAdd(&shared_.num_listed, 1);
      if (i < kListed) shared_.listed[i] = {at, weight};
    });
    cluster_.sync();
    int n = 0;
    bool fits = true;
    for (int r = 0; r < kRanks; ++r) {
      const int count = *cluster_.at(&shared_.num_listed, r);
      fits = fits && count <= kListed && n + count <= kFew;
      for (int i = threadIdx.x; fits && i < count; i += kThreads) shared_.all[n + i] = cluster_.at(shared_.listed, r)[i];
      n += count;
    }
    cluster_.sync();
    if (!fits) return false;
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const Candidate own = shared_.all[i];
      unsigned long long sum = before;
      for (int j = 0; j < n; ++j) sum += shared_.all[j].place < own.place ? shared_.all[j].weight : 0;
      if (double(sum) < wanted && double(sum + own.weight) >= wanted) shared_.cut = own.place;
    }
    __syncthreads();
    place = shared_.cut;
    return true;
  }

 private:
  // Where the running sum of totals, from `before` on, first reaches `wanted`: a thread looks at a run of bins.
  __device__ void scan(int bins, double wanted, unsigned long long before) const {
    const int each = (bins + kThreads - 1) / kThreads, first = int(threadIdx.x) * each, last = min(bins, first + each);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned long long own = 0;
    for (int i = first; i < last; ++i) own += shared_.totals[i];
    unsigned long long through = own;
    for (int step = 1; step < 32; step *= 2) {
      const unsigned long long other = __shfl_up_sync(~0u, through, step);
      if (lane >= step) through += other;
    }
    if (lane == 31) shared_.sums[warp] = through;
    if (threadIdx.x == 0) shared_.chosen = bins - 1, shared_.before = before;  // nothing has any weight
    __syncthreads();
    for (int w = 0; w < warp; ++w) before += shared_.sums[w];
    unsigned long long at = before + through - own;
    if (own > 0 && double(at) < wanted && double(at + own) >= wanted)
      for (int i = first; i < last; at += shared_.totals[i++])
        if (double(at + shared_.totals[i]) >= wanted) {
          shared_.chosen = i, shared_.before = at;
          break;
        }
    __syncthreads();
  }

  Ranks<kRanks> cluster_;
  Shared& shared_;
  int vocab_, begin_, end_;
  float* x_;
  float scale_ = 1;
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

__device__ inline unsigned long long place_of(float v, int t) { return static_cast<unsigned long long>(~order_key(v)) << 24 | uint32_t(t); }

// The cut at which the weights of the kept, in falling order, first reach `wanted`. weight(x scaled, token): 0 where an
// earlier cut dropped the token.
template <int ranks, class W>
__device__ Cut select(const Row<ranks>& row, float max, double wanted, W weight) {
  unsigned long long before = 0;
  const int step = row.find_bin(kSteps, wanted, before, [&](auto add) {
    row.each_scaled([&](int t, float v) {
      if (const unsigned long long w = weight(v, t)) add(step_of(v, max), w);
    });
  });
  unsigned long long prefix = 0;
  const bool few = row.find_among_few(wanted, before, prefix, [&](auto list) {
    row.each_scaled([&](int t, float v) {
      if (step_of(v, max) != step) return;
      if (const unsigned long long w = weight(v, t)) list(place_of(v, t), w);
    });
  });
  // 32 bits of key, most significant first and inverted so that larger comes first; then 24 bits of id.
  for (int shift = few ? -1 : 48; shift >= 0; shift -= 8) {
    const unsigned long long seen = shift == 48 ? 0 : prefix >> (shift + 8);
    const int digit = row.find_bin(256, wanted, before, [&](auto add) {
      row.each_scaled([&](int t, float v) {
        if (step_of(v, max) != step) return;
        const unsigned long long place = place_of(v, t);
        if (shift < 48 && place >> (shift + 8) != seen) return;
        if (const unsigned long long w = weight(v, t)) add(int(place >> shift & 255), w);
      });
    });
    prefix |= static_cast<unsigned long long>(digit) << shift;
  }
  return {~uint32_t(prefix >> 24), uint32_t(prefix & 0xFFFFFFu)};
}

template <int ranks>
__device__ Cut truncate(const Row<ranks>& row, const SampleRow& r, int vocab, float max) {
  Cut cut;
  if (r.top_k > 0 && r.top_k < vocab)
    cut = select(row, max, double(r.top_k), [](float, int) { return 1ull; });
  if (r.top_p < 1) {
    unsigned long long total = 0;
    row.each_scaled([&](int t, float v) {
      if (cut.keeps(v, t)) total += mass(v, max);
    });
    const double wanted = double(r.top_p) * double(row.sum(total));
    const Cut by_k = cut;
    cut = select(row, max, wanted, [&](float v, int t) { return by_k.keeps(v, t) ? mass(v, max) : 0ull; });
  }
  return cut;
}

template <int ranks>
__device__ int32_t choose(Row<ranks>& row, const SampleRow& r, int vocab) {
  if (r.inverse_temperature == 0) return max(0, row.largest(1.0f).token);
  const float scale = r.inverse_temperature;
  const Best top = row.largest(scale);
  const bool truncates = (r.top_k > 0 && r.top_k < vocab) || r.top_p < 1 || r.log_min_p < 0;
  float floor = top.value - (kMaxGumbel - kMinGumbel);  // no noise can lift a token from below this one over the leader
  Cut cut;
  if (truncates) {
    row.scale(scale);
    cut = truncate(row, r, vocab, top.value);
    floor = r.log_min_p < 0 ? top.value + r.log_min_p : -INFINITY;
  }
  // The leader is kept whatever the cut: what it comes to is a bound for all.
  const int leader = max(0, top.token);
  const uint4 lead = noise_of(r, leader);
  Best b{top.value + gumbel(leader % 4 == 0 ? lead.x : leader % 4 == 1 ? lead.y : leader % 4 == 2 ? lead.z : lead.w), top.token};
  if (top.token < 0) b.value = -INFINITY;  // every logit is NaN
  row.each_four([&](int t, int n) {
    bool any = false;
    float v[4];
    for (int i = 0; i < 4; ++i) {
      v[i] = i < n ? __fmul_rn(row.logits()[t + i], scale) : -INFINITY;
      if (i < n && !(v[i] >= floor && (!truncates || cut.keeps(v[i], t + i)))) v[i] = -INFINITY;
      any |= v[i] > -INFINITY;
    }
    if (!any) return;
    const uint4 bits = noise_of(r, t);
    const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
    for (int i = 0; i < 4; ++i)
      if (v[i] + gumbel_bound(word[i]) >= b.value && v[i] > -INFINITY) b = better(b, {v[i] + gumbel(word[i]), t + i});
  });
  b = row.best(b);
  return b.token >= 0 ? b.token : max(0, top.token);
}

// Of raw logits: log(sum(exp)) and the num_top most likely, one after another.
template <int ranks>
__device__ double log_probabilities(const Row<ranks>& row, int num_top, sample::TokenLogprob* top) {
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

template <int ranks>
__device__ inline void sample_row(const SampleArgs& a) {
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared());
  let_next_begin();
  wait_for_previous();
  const int index = blockIdx.x / ranks;
  const SampleRow r = a.rows[index];
  Row<ranks> row(a, shared);
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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SLUICE_CLUSTER(blocks)
#else
#define SLUICE_CLUSTER(blocks) __cluster_dims__(blocks)
#endif
template <int ranks>
__global__ void SLUICE_CLUSTER(ranks) __launch_bounds__(kThreads, ranks == 2 ? 2 : 1) sample_kernel(const __grid_constant__ SampleArgs a) {
  if constexpr (kHopper) sample_row<ranks>(a);
}
#undef SLUICE_CLUSTER
__global__ void __launch_bounds__(kThreads, 1) alone_kernel(const __grid_constant__ SampleArgs a) {
  if constexpr (!kHopper) sample_row<1>(a);
}

cudaError_t launch(const CudaContext* c, const SampleArgs& a, int ranks, void (*kernel)(SampleArgs)) {
  const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  return e != cudaSuccess ? e : launch_early(c, dim3(unsigned(a.num_rows * ranks)), kThreads, sizeof(Shared), kernel, a);
}

}  // namespace

void sample_rows(Context* context, const SampleArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.num_rows <= 0 || !begin(c)) return;
  if (!c->can.hopper) note(c, launch(c, a, 1, alone_kernel));
  else note(c, a.num_rows < kManyRows ? launch(c, a, 8, sample_kernel<8>) : launch(c, a, 2, sample_kernel<2>));
}

}  // namespace sluice::kernels::cuda
