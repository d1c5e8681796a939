#include "kernels/context.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/thread_pool.h"
#include "quant/weight_format.h"
#include "sample/sampler.h"
#include "tensor/buffer.h"

namespace sluice::kernels {
namespace {

constexpr size_t kPartialsFloats = size_t{1} << 20;

size_t max_dim_of(const ContextOptions& o) { return size_t(std::max(1, o.max_dim) + 31) / 32 * 32; }
size_t act_elements(const ContextOptions& o) { return size_t(std::max(1, o.max_tokens)) * max_dim_of(o); }
void* scratch(size_t bytes) { return std::aligned_alloc(64, (bytes + 127) / 64 * 64); }

}  // namespace

// What steps touch: quantised inputs and attention's partial results. Inputs as floats or pairs are for float weights alone.
size_t host_context_bytes(const ContextOptions& o) noexcept {
  return act_elements(o) / 32 * kActBlockBytes + kPartialsFloats * sizeof(float);
}

Context* create_context(const ContextOptions& options) noexcept {
  auto* c = new (std::nothrow) Context{};
  if (!c) return nullptr;
  c->threads = std::max(1, options.threads);
  c->max_tokens = std::max(1, options.max_tokens);
  c->max_dim = int(max_dim_of(options));
  c->partials_floats = kPartialsFloats;
  const size_t elements = act_elements(options);
  c->act_quant = static_cast<uint8_t*>(scratch(elements / 32 * kActBlockBytes));
  c->act_float = static_cast<float*>(scratch(elements * sizeof(float)));
  c->act_pairs = static_cast<uint32_t*>(scratch(elements / 2 * sizeof(uint32_t)));
  c->partials = static_cast<float*>(scratch(c->partials_floats * sizeof(float)));
  try {
    c->pool = new ThreadPool(c->threads, options.pin);
    c->threads = c->pool->size();
    c->sampling = new sample::Scratch[size_t(c->threads)];
  } catch (...) {
    delete c->pool;
    c->pool = nullptr;
  }
  if (!c->pool || !c->sampling || !c->act_quant || !c->act_float || !c->act_pairs || !c->partials) {
    destroy_context(c);
    return nullptr;
  }
  return c;
}

void destroy_context(Context* c) noexcept {
  if (!c) return;
  delete c->pool;
  delete[] c->sampling;
  std::free(c->act_quant);
  std::free(c->act_float);
  std::free(c->act_pairs);
  std::free(c->partials);
  delete c;
}

void run_tasks(Context* c, int count, void (*fn)(void*, int, int) noexcept, void* arg) noexcept {
  c->pool->run(count, fn, arg);
}

bool orders_differ(const LinearArgs& a) noexcept {
  for (int i = 1; i < a.num_outputs; ++i)
    if (a.out[i].weight.input_order != a.out[0].weight.input_order) return true;
  return false;
}
void one_output_at_a_time(Context* c, const LinearArgs& a, void (*linear)(Context*, const LinearArgs&) noexcept) noexcept {
  for (int i = 0; i < a.num_outputs; ++i) {
    LinearArgs one = a;
    one.num_outputs = 1;
    one.out[0] = a.out[i];
    linear(c, one);
  }
}

void* host_allocate(int, size_t bytes) noexcept { return Buffer(bytes).release(); }
void host_release(int, void* memory, size_t bytes) noexcept { Buffer::adopt(memory, bytes); }
uint64_t host_free_bytes(int) noexcept { return 0; }
bool host_load(int, void* to, const void* from, size_t bytes) noexcept { return std::memcpy(to, from, bytes) != nullptr; }
void host_copy(Context*, void* to, const void* from, size_t bytes) noexcept { std::memcpy(to, from, bytes); }
const char* host_synchronize(Context*) noexcept { return nullptr; }
void host_mark(Context*, int) noexcept {}
const char* host_wait(Context*, int) noexcept { return nullptr; }
bool host_begin_graph(Context*) noexcept { return false; }
Graph* host_end_graph(Context*) noexcept { return nullptr; }
void host_launch_graph(Context*, Graph*) noexcept {}

void sample_rows(Context* c, const SampleArgs& args, const sample::Scan& scan) noexcept {
  struct Job { const SampleArgs& args; const sample::Scan& scan; sample::Scratch* scratch; } job{args, scan, c->sampling};
  for (int w = 0; w < c->threads; ++w) c->sampling[w].reserve(size_t(args.vocab));  // nothing but a look, after the first step
  run_tasks(c, args.num_rows, [](void* p, int i, int worker) noexcept {
    const Job& job = *static_cast<const Job*>(p);
    const SampleArgs& a = job.args;
    const sample::SampleRow& row = a.rows[i];
    const std::span<sample::LogitChange> changes(a.changes + row.changes_begin, size_t(row.changes_end - row.changes_begin));
    a.results[i] = sample::sample_row({a.logits + size_t(i) * size_t(a.vocab), size_t(a.vocab)}, row, changes,
                                      a.top + size_t(i) * sample::kMaxLogprobs, job.scan, job.scratch[worker]);
    a.tokens[i] = a.results[i].token;
  }, &job);
}
void plain_sample_rows(Context* c, const SampleArgs& a) noexcept { sample_rows(c, a, sample::plain_scan); }

void gather_rows(Context*, const GatherArgs& a) noexcept {
  for (int i = 0; i < a.num_rows; ++i)
    std::memcpy(a.y + size_t(i) * a.dim, a.x + size_t(a.rows[i]) * a.dim, size_t(a.dim) * sizeof(float));
}

void embed_rows(Context* c, const EmbedArgs& a) noexcept {
  // A call looks the format up once; few tokens are not worth waking anyone for.
  struct Job { const EmbedArgs* a; const quant::WeightFormat* f; int step; } job{&a, quant::find_format(a.type), 8};
  const auto rows = [](void* p, int i, int) noexcept {
    const Job& j = *static_cast<const Job*>(p);
    const EmbedArgs& a = *j.a;
    for (int t = i * j.step; t < std::min(a.num_tokens, (i + 1) * j.step); ++t) {
      float* y = a.y + size_t(t) * a.dim;
      const int32_t id = a.ids[t] >= 0 ? a.ids[t] : a.sampled[-1 - a.ids[t]];
      j.f->decode(static_cast<const uint8_t*>(a.table) + size_t(id) * a.row_bytes, y, size_t(a.dim));
      if (a.scale != 1.0f)
        for (int k = 0; k < a.dim; ++k) y[k] *= a.scale;
    }
  };
  run_tasks(c, (a.num_tokens + job.step - 1) / job.step, rows, &job);
}

bool any_cache_type(CacheType) noexcept { return true; }

void copy_block(Context*, const CopyBlockArgs& a) noexcept {
  const auto copy = [&](void* to, const void* from, size_t n) {
    std::memcpy(static_cast<uint8_t*>(to) + size_t(a.to) * n, static_cast<const uint8_t*>(from) + size_t(a.from) * n, n);
  };
  copy(a.to_cache.keys, a.from_cache.keys, a.from_cache.key_stride);
  copy(a.to_cache.values, a.from_cache.values, a.from_cache.value_stride);
}

void parallel_for(Context* c, int n, void (*fn)(void*, int) noexcept, void* arg) noexcept {
  struct Job { void (*fn)(void*, int) noexcept; void* arg; } job{fn, arg};
  run_tasks(c, n, [](void* p, int i, int) noexcept {
    const Job& j = *static_cast<const Job*>(p);
    j.fn(j.arg, i);
  }, &job);
}

}  // namespace sluice::kernels
