#include "lab/planner.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

#include "lab/hardware.h"
#include "lab/machine.h"
#include "lab/speculation.h"
#include "quant/weight_format.h"

namespace sluice::lab {
namespace {

constexpr int64_t kShapeContext = 8192, kShapeVocab = 128256;

Result<double> bits_of(const std::string& weight_type) {
  for (const quant::WeightFormat* f : quant::formats_table())
    if (weight_type == f->name) return 8.0 * f->block_bytes / f->block_elements;
  return invalid("'" + weight_type + "' is no type of weights", "--weight-type");
}

Result<ModelShape> shape_of(const PlanRequest& r, const kernels::KernelTable& table) {
  if (r.shape.empty()) return read_shape(r.load, table);
  if (!r.load.model.empty() || !r.load.random.empty()) return invalid("stands in a model's place, and one was given too", "--shape");
  SLUICE_ASSIGN(const double bits, bits_of(r.load.weight_type));
  return parse_shape(r.shape, bits, table.host_memory);
}

// Of a cache of that type, all else alike.
int own_block_tokens(LoadOptions o, CacheType type) {
  o.kv_type = cache_type_name(type);
  return block_tokens_of(o);
}

void add_terms(PlanReport& out, const MemoryPlan& p, const kernels::KernelTable& table, const model::ModelSpec& spec, int context, const std::string& draft) {
  const uint64_t rope = model::rope_bytes(spec, context);
  const auto add = [&](const char* name, uint64_t bytes, const char* what) {
    if (bytes) out.terms.push_back({draft + name, bytes, what});
  };
  add("weights", p.weights_bytes, "packed for the kernels");
  add("embeddings", p.mapped_bytes, "read from the file's mapping");
  add("activations", p.activation_bytes - rope, "a step's arrays, logits and scratch");
  add("rotary tables", rope, "of every position");
  if (!draft.empty()) return;
  add("process", p.process_bytes, "code, libraries, vocabulary, threads");
  if (!table.host_memory) add("graphs", kDeviceReserve, "left for recorded steps, libraries and other processes");
}

Result<DraftNeeds> add_draft(PlanReport& out, const PlanRequest& r, const kernels::KernelTable& table, int vocab) {
  const LoadOptions o = draft_options(r.load, r.draft, vocab);
  SLUICE_ASSIGN(const ModelShape s, read_shape(o, table));
  SLUICE_ASSIGN(const MemoryPlan p, plan_without_cache(s, table, o));
  out.draft_kv_bytes_per_token = p.kv_bytes_per_token;
  add_terms(out, p, table, s.spec, int(std::min<int64_t>(out.context, s.spec.max_context)), "draft ");
  return draft_needs(p, 1);
}

Status add_speeds(PlanReport& out, const PlanRequest& r, const kernels::KernelTable& table, uint64_t weights_bytes) {
  out.bandwidth_gb_s = r.bandwidth_gb_s;
  out.bandwidth_source = "given";
  if (!(r.bandwidth_gb_s >= 0 && r.bandwidth_gb_s < 1e9)) return invalid("must be from 0 to 1e9", "--bandwidth");
  if (r.bandwidth_gb_s == 0 && r.hardware.empty() && !table.host_memory) {
    out.bandwidth_gb_s = measure_device(table).read_gb_s;
    out.bandwidth_source = "measured now, copies on the device";
  } else if (r.bandwidth_gb_s == 0 && r.hardware.empty()) {
    const MachineCeilings m = measure_machine(r.load.threads > 0 ? r.load.threads : default_threads(), size_t{256} << 20);
    out.bandwidth_gb_s = std::max(m.read_gb_s, m.read_gb_s_one);
    out.bandwidth_source = "reads measured now on this machine" + std::string(m.busy_fraction > 0.1 ? ", which others keep busy" : "");
  } else if (r.bandwidth_gb_s == 0) {
    SLUICE_ASSIGN(const Hardware h, find_hardware(r.hardware, r.load.threads > 0 ? r.load.threads : default_threads()));
    if (h.bandwidth_gb_s == 0) return invalid("'" + r.hardware + "' says no bandwidth", "--hardware");
    out.bandwidth_gb_s = h.bandwidth_gb_s;
    out.bandwidth_source = h.source;
  }
  std::vector<int64_t> counts{1, 4, 16, 64, 256};
  std::erase_if(counts, [&](int64_t n) { return n >= out.max_sequences; });
  if (out.max_sequences > 0) counts.push_back(out.max_sequences);
  for (int64_t n : counts) {
    const double bytes = double(weights_bytes) + double(n) * double(out.context) * double(out.kv_bytes_per_token);
    out.speeds.push_back({n, double(n) * out.bandwidth_gb_s * 1e9 / bytes});
  }
  return {};
}

}  // namespace

Result<ModelShape> parse_shape(const std::string& text, double bits_per_weight, bool host_memory) {
  std::map<std::string, std::pair<double, double>> keys{  // value, largest
      {"layers", {0, model::kMaxLayers}}, {"kv_heads", {0, model::kMaxHeads}}, {"head_dim", {0, model::kMaxHeadDim}}, {"params", {0, 1e14}},
      {"q_heads", {0, model::kMaxHeads}}, {"dim", {0, model::kMaxDim}}, {"ffn_dim", {0, model::kMaxFfnDim}}, {"vocab", {0, model::kMaxVocab}},
      {"context", {0, model::kMaxContext}}};
  std::stringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    const size_t at = part.find('=');
    const auto key = keys.find(part.substr(0, at));
    if (at == part.npos || key == keys.end())
      return invalid("'" + part + "' is none of layers=, kv_heads=, head_dim=, params=, q_heads=, dim=, ffn_dim=, vocab=, context=", "--shape");
    double v = 0;
    const char* const end = part.data() + part.size();
    const auto [stopped, failed] = std::from_chars(part.data() + at + 1, end, v);
    if (failed != std::errc{} || stopped != end || !(v >= 1 && v <= key->second.second))
      return invalid(key->first + " must be a number from 1 to " + std::to_string(int64_t(key->second.second)), "--shape");
    key->second.first = v;
  }
  for (const char* needed : {"layers", "kv_heads", "head_dim", "params"})
    if (keys[needed].first == 0) return invalid(std::string(needed) + "= is missing", "--shape");
  const auto value = [&](const char* key, double otherwise) { return keys[key].first > 0 ? keys[key].first : std::max(1.0, otherwise); };
  ModelShape s;
  s.spec.num_layers = int(value("layers", 0));
  s.spec.kv_heads = int(value("kv_heads", 0));
  s.spec.head_dim = s.spec.rope_dims = int(value("head_dim", 0));
  const double params = value("params", 0);
  // A layer has some 12 dim^2 parameters where nothing else is said.
  s.spec.dim = int(value("dim", std::min<double>(std::round(std::sqrt(params / (12.0 * s.spec.num_layers)) / 64) * 64, model::kMaxDim)));
  s.spec.q_heads = int(value("q_heads", std::min<double>(double(s.spec.dim) / s.spec.head_dim, model::kMaxHeads)));
  s.spec.ffn_dim = int(value("ffn_dim", std::min<double>(3.5 * s.spec.dim, model::kMaxFfnDim)));
  s.spec.vocab = int(value("vocab", kShapeVocab));
  s.spec.max_context = int(value("context", kShapeContext));
  s.weights.file_bytes = uint64_t(params * bits_per_weight / 8);
  const uint64_t embedding = uint64_t(std::min(params, double(s.spec.dim) * s.spec.vocab) * bits_per_weight / 8);
  s.weights.mapped_bytes = host_memory ? embedding : 0;
  s.weights.vocabulary_bytes = vocabulary_bytes(uint64_t(s.spec.vocab), uint64_t(s.spec.vocab));
  s.weights.packed_bytes = s.weights.file_bytes - s.weights.mapped_bytes;
  return s;
}

Result<PlanReport> plan_deployment(const PlanRequest& r) {
  if (r.sequences < 0) return invalid("must be at least 0", "--sequences");
  SLUICE_ASSIGN(const kernels::KernelTable* table, choose_kernels(r.load));
  PlanReport out;
  out.memory_bytes = available_memory(*table);
  if (!r.memory.empty()) {
    SLUICE_ASSIGN(out.memory_bytes, parse_bytes(r.memory, "--memory"));
  }
  SLUICE_ASSIGN(const ModelShape s, shape_of(r, *table));
  SLUICE_ASSIGN(const MemoryPlan p, plan_without_cache(s, *table, r.load));
  out.context = r.load.context > 0 ? std::min(r.load.context, s.spec.max_context) : s.spec.max_context;
  out.kv_bytes_per_token = p.kv_bytes_per_token;
  SLUICE_ASSIGN(const CacheType type, cache_type_of(r.load, *table));
  const int block_tokens = block_tokens_of(r.load);
  out.kv_parts = exec::DeviceExecutor::kv_bytes(s.spec, type, block_tokens);
  out.kv_type = cache_type_name(type);
  for (CacheElement e : kCacheElements)
    if (table->cache_type({e, e})) out.kv_by_type.emplace_back(cache_element_name(e), exec::DeviceExecutor::kv_bytes_per_token(s.spec, {e, e}, own_block_tokens(r.load, {e, e})));
  if (type.keys != type.values) out.kv_by_type.emplace_back(out.kv_type, out.kv_parts.total());
  add_terms(out, p, *table, s.spec, int(out.context), "");
  DraftNeeds draft;
  if (!r.draft.empty()) {
    SLUICE_ASSIGN(draft, add_draft(out, r, *table, s.spec.vocab));
  }
  for (const PlanTerm& t : out.terms) out.fixed_bytes += t.bytes;
  const uint64_t left = out.memory_bytes > out.fixed_bytes ? out.memory_bytes - out.fixed_bytes : 0;
  const uint64_t own = out.kv_bytes_per_token * uint64_t(block_tokens), both = own + out.draft_kv_bytes_per_token * uint64_t(block_tokens);
  uint64_t cache = left;  // of both models
  if (!r.load.kv_memory.empty()) {
    SLUICE_ASSIGN(const uint64_t told, parse_bytes(r.load.kv_memory, "--kv-memory"));
    cache = told / own * both;
  }
  const int64_t blocks = int64_t(std::min(cache, left) / both);
  out.max_tokens = blocks * block_tokens;
  out.max_sequences = blocks / ((out.context + block_tokens - 1) / block_tokens);
  out.fits = out.max_sequences >= std::max(1, r.sequences) && cache <= left;
  // A host's draft model takes its part of what is free when it is loaded.
  const auto served = plan_memory(s.weights, s.spec, *table, r.load, out.memory_bytes, table->host_memory ? DraftNeeds() : draft);
  out.served = served.ok() ? *served : p;
  SLUICE_TRY(add_speeds(out, r, *table, p.weights_bytes));
  return out;
}

}  // namespace sluice::lab
