// norm, embed, gather, copy_block and parallel_for: operations on rows and blocks that stand alone; then what a step is driven
// with: uploads beside kernels, marks, recorded calls.
#include "kernels/backend_buffer.h"
#include "lab/kernel_check.h"
#include "lab/on_backend.h"

namespace sluice::lab {
namespace {

Verdict norm(const KernelTable& t, int dim, int tokens, bool accumulate) {
  const ContextPtr context = make_context(t, 2);
  Rng rng(uint64_t(dim) * 100 + uint64_t(tokens));
  const int stride = dim + 3;
  const std::vector<float> x = random_floats(rng, size_t(tokens) * stride), w = random_floats(rng, size_t(dim));
  const OnBackend<float> in(t, x), weight(t, w), out(t, std::vector<float>(size_t(tokens) * dim, 0.5f));
  t.norm(context.get(), {tokens, dim, in.data(), stride, weight.data(), 1e-6f, out.data(), dim, accumulate});
  const std::vector<float> y = out.read(context.get());
  Verdict v;
  for (int i = 0; i < tokens; ++i) {
    const float* row = x.data() + size_t(i) * stride;
    double square = 0;
    for (int k = 0; k < dim; ++k) square += double(row[k]) * row[k];
    for (int k = 0; k < dim; ++k) {
      const double want = row[k] / std::sqrt(square / dim + 1e-6) * w[k] + (accumulate ? 0.5 : 0);
      keep_worst(v.error, std::abs(y[size_t(i) * dim + k] - want) / (1e-6 * (1 + std::abs(want) * 4)));
    }
  }
  return v;
}

// Every other id refers to a token that an earlier step drew.
Verdict embed(const KernelTable& t, WeightType type) {
  const ContextPtr context = make_context(t, 2);
  Rng rng(4);
  const int vocab = 20, dim = 256, tokens = 19;
  const std::vector<uint8_t> table = random_weight(rng, type, vocab, dim);
  const std::vector<float> rows = decode_weight(type, table, vocab, dim);
  std::vector<int32_t> ids(tokens), drawn(tokens);
  std::vector<float> want;
  for (int i = 0; i < tokens; ++i) {
    drawn[size_t(tokens - 1 - i)] = int32_t(rng.below(vocab));
    ids[size_t(i)] = i % 2 ? -1 - (tokens - 1 - i) : drawn[size_t(tokens - 1 - i)];
    for (int k = 0; k < dim; ++k) want.push_back(rows[size_t(drawn[size_t(tokens - 1 - i)]) * dim + k] * 1.5f);
  }
  const OnBackend<float> out(t, std::vector<float>(want.size()));
  const OnBackend<int32_t> where(t, ids), sampled(t, drawn);
  const OnBackend<uint8_t> file(t, table);
  t.embed(context.get(), {tokens, where.data(), type, file.data(), table.size() / vocab, dim, 1.5f, out.data(), sampled.data()});
  return {bits_differ(out.read(context.get()), want), {}};
}

Verdict gather(const KernelTable& t) {
  const ContextPtr context = make_context(t, 2);
  Rng rng(5);
  const int dim = 37;
  const std::vector<float> x = random_floats(rng, size_t(9) * dim);
  const std::vector<int32_t> rows{8, 0, 3, 3};
  const OnBackend<float> in(t, x), out(t, std::vector<float>(rows.size() * dim));
  const OnBackend<int32_t> which(t, rows);
  t.gather(context.get(), {int(rows.size()), dim, in.data(), which.data(), out.data()});
  std::vector<float> want;
  for (int32_t r : rows) want.insert(want.end(), x.begin() + r * dim, x.begin() + (r + 1) * dim);
  return {bits_differ(out.read(context.get()), want), {}};
}

Verdict copy_block(const KernelTable& t) {
  const ContextPtr context = make_context(t, 1);
  std::vector<uint8_t> keys(4 * 128), values(4 * 64);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = uint8_t(i / 128), values[i / 2] = uint8_t(10 + i / 128);
  const OnBackend<uint8_t> k(t, keys), v(t, values);
  const CacheView cache{CacheType{}, k.data(), v.data(), 128, 64};
  t.copy_block(context.get(), {cache, cache, 2, 1});
  for (size_t i = 128; i < 256; ++i) keys[i] = 2, values[i / 2] = 12;
  if (k.read(context.get()) != keys) return {0, "wrong keys"};
  if (v.read(context.get()) != values) return {0, "wrong values"};
  // Out to staging memory and back to another place.
  const BackendBuffer aside(t, 4 * 128, MemoryKind::kStaging);
  const CacheView kept{CacheType{}, aside.as<uint8_t>(), aside.as<uint8_t>() + 256, 128, 64};
  t.copy_block(context.get(), {cache, kept, 3, 1});
  t.copy_block(context.get(), {kept, cache, 1, 0});
  for (size_t i = 0; i < 128; ++i) keys[i] = 3, values[i / 2] = 13;
  if (k.read(context.get()) != keys || v.read(context.get()) != values) return {0, "wrong after being kept aside"};
  return {};
}

Verdict parallel_for(const KernelTable& t) {
  const ContextPtr context = make_context(t, 3);
  std::vector<int> hits(77, 0);
  t.parallel_for(context.get(), 77, [](void* p, int i) noexcept { ++(*static_cast<std::vector<int>*>(p))[size_t(i)]; }, &hits);
  for (int hit : hits)
    if (hit != 1) return {0, "an index was called " + std::to_string(hit) + " times"};
  return {};
}

// Two steps in flight as an executor has them: each step's rows are sent while the one before may run, and read by the same
// recorded calls where the backend has any.
Verdict steps(const KernelTable& t) {
  const ContextPtr context = make_context(t, 2);
  Rng rng(6);
  const int dim = 40, rows = 5, steps = 6;
  const std::vector<float> x = random_floats(rng, size_t(9) * dim);
  const OnBackend<float> in(t, x);
  struct Slot {
    OnBackend<int32_t> which;
    OnBackend<float> out;
    BackendBuffer staged;
    Graph* graph = nullptr;
    Slot(const KernelTable& t) : which(t, std::vector<int32_t>(rows)), out(t, std::vector<float>(size_t(rows) * dim)), staged(t, rows * 4, MemoryKind::kStaging) {}
  } slots[2] = {Slot(t), Slot(t)};
  Verdict v;
  std::vector<std::vector<float>> want(steps);
  for (int i = 0; i <= steps; ++i) {
    if (i > 0) {  // the step before
      if (const char* what = t.wait(context.get(), (i - 1) % 2)) return {0, what};
      keep_worst(v.error, bits_differ(slots[(i - 1) % 2].out.read(context.get()), want[size_t(i) - 1]));
    }
    if (i == steps) break;
    Slot& s = slots[i % 2];
    for (int r = 0; r < rows; ++r) {
      const int row = int(rng.below(9));
      s.staged.as<int32_t>()[r] = row;
      want[size_t(i)].insert(want[size_t(i)].end(), x.begin() + row * dim, x.begin() + (row + 1) * dim);
    }
    t.prefetch(context.get(), s.which.data(), s.staged.data(), rows * 4);
    const auto run = [&] { t.gather(context.get(), {rows, dim, in.data(), s.which.data(), s.out.data()}); };
    if (!s.graph && i >= 2 && t.begin_graph(context.get())) {
      run();
      s.graph = t.end_graph(context.get());
      if (!s.graph) return {0, "a recording gave nothing"};
    }
    if (s.graph) t.launch_graph(context.get(), s.graph);
    else run();
    t.mark(context.get(), i % 2);
  }
  for (Slot& s : slots)
    if (s.graph) t.destroy_graph(context.get(), s.graph);
  return v;
}

std::vector<KernelCase> cases() {
  std::vector<KernelCase> out;
  for (int dim : {1, 7, 16, 100, 576, 1030})
    for (int tokens : {1, 5, 50})
      for (bool accumulate : {false, true})
        out.push_back({"norm dim=" + std::to_string(dim) + " T=" + std::to_string(tokens) + (accumulate ? " accumulate" : ""),
                       [=](const KernelTable& t) { return norm(t, dim, tokens, accumulate); }});
  for (WeightType type : kAllTypes)
    out.push_back({std::string("embed ") + quant::find_format(type)->name, [type](const KernelTable& t) { return embed(t, type); }});
  out.push_back({"gather", gather});
  out.push_back({"copy_block", copy_block});
  out.push_back({"parallel_for", parallel_for});
  out.push_back({"steps in flight", steps});
  return out;
}

}  // namespace

extern const KernelCheck check_rows{"rows", "norm: a few float roundings of 1 and of the value; all else moves bits and may change none", cases, nullptr};

}  // namespace sluice::lab
