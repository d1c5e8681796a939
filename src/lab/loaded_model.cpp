#include "lab/loaded_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sched.h>

#include "format/gguf_writer.h"
#include "format/hf_writer.h"
#include "model/random_model.h"

namespace sluice::lab {

Result<std::unique_ptr<exec::DeviceExecutor>> LoadedModel::make_executor() const {
  auto executor = std::make_unique<exec::DeviceExecutor>(model, device);
  SLUICE_TRY(executor->ready());
  return executor;
}

std::string home_folder() {
  if (const char* home = std::getenv("SLUICE_HOME"); home && *home) return home;
  const char* user = std::getenv("HOME");
  return std::string(user && *user ? user : ".") + "/.cache/sluice";
}

std::string resolve_model(const std::string& model) {
  std::error_code ec;
  if (std::filesystem::exists(model, ec)) return model;
  const std::string store = home_folder();
  for (const char* suffix : {"", ".gguf"})
    if (const std::string path = store + "/" + model + suffix; std::filesystem::exists(path, ec)) return path;
  return model;
}

// A file's name less its ending; a folder's whole name, whatever dots are in it.
static std::string model_name(const std::string& path) {
  std::error_code ec;
  std::filesystem::path p(path);
  if (!p.has_filename()) p = p.parent_path();
  return (std::filesystem::is_directory(p, ec) ? p.filename() : p.stem()).string();
}

Result<uint64_t> parse_bytes(const std::string& text, const std::string& field) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end ? end : "";
  static constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [name, factor] : kUnits)
    if (unit == name && end != text.c_str() && std::isfinite(value) && value >= 0 && value * factor < 0x1p60)
      return uint64_t(value * factor);
  return invalid("'" + text + "' is no size such as 512MiB or 80GB", field);
}

Result<CacheType> parse_kv_type(const std::string& text) {
  if (const auto type = find_cache_type(text)) return *type;
  return invalid("'" + text + "' is none of f32, f16, bf16, fp8, int8, int4, KEYS/VALUES of these, or k8v4 and the like", "--kv-type");
}

Result<CacheType> cache_type_of(const LoadOptions& o, const kernels::KernelTable& kernels) {
  SLUICE_ASSIGN(const CacheType type, parse_kv_type(o.kv_type));
  if (kernels.cache_type(type)) return type;
  return Error{ErrorCode::kUnsupported, "there are no kernels for a cache of " + cache_type_name(type) + " on '" + kernels.name + "' (one of f32, f16, bf16, fp8 and int8 for keys and values alike runs there)", "--kv-type"};
}

int block_tokens_of(const LoadOptions& o) {
  const auto type = find_cache_type(o.kv_type);
  return o.block_tokens != 0 ? o.block_tokens : type && keys_in_groups(type->keys) ? 4 * kKeyGroup : 16;
}

int default_step_tokens(bool host, const std::string& objective) { return host ? 512 : objective == "throughput" ? 4096 : 2048; }

int step_tokens(const LoadOptions& o, const kernels::KernelTable& kernels) {
  if (o.max_step_tokens > 0) return o.max_step_tokens;
  return std::max(default_step_tokens(kernels.host_memory, o.objective), o.max_sequences);
}

int default_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Result<const kernels::KernelTable*> choose_kernels(const LoadOptions& o) {
  if (o.device == "cuda" || o.device.starts_with("cuda:")) {
    int index = 0;
    const char* const end = o.device.data() + o.device.size();
    if (o.device.size() > 4)
      if (const auto [at, ec] = std::from_chars(o.device.data() + 5, end, index); ec != std::errc{} || at != end || index < 0)
        return invalid("'" + o.device + "' is no device such as cuda or cuda:1", "--device");
    const char* why = "";
    if (const kernels::KernelTable* table = kernels::cuda_kernels(index, &why)) return table;
    return Error{ErrorCode::kUnsupported, "'" + o.device + "' is not available: " + why, "--device"};
  }
  if (o.device != "cpu") return invalid("'" + o.device + "' is no device (cpu, cuda and cuda:N are)", "--device");
  if (o.isa == "reference") return kernels::reference_kernels();
  const char* why = "";
  if (const kernels::KernelTable* table = kernels::cpu_kernels(o.isa.c_str(), &why)) return table;
  return Error{ErrorCode::kUnsupported, std::string(why) + " (--isa reference runs anywhere)", "--isa"};
}

// All but the number of blocks.
static exec::DeviceOptions device_options(const LoadOptions& o, const kernels::KernelTable& kernels, CacheType kv_type) {
  exec::DeviceOptions d;
  d.threads = o.threads > 0 ? o.threads : default_threads();
  d.pin_threads = o.pin_threads;
  d.kv_type = kv_type;
  d.block_tokens = block_tokens_of(o);
  d.max_step_tokens = step_tokens(o, kernels);
  d.max_sequences = o.max_sequences;
  d.depth = o.depth;
  d.graphs = !o.no_graphs;
  d.deterministic = o.deterministic;
  d.max_context = o.context;
  return d;
}

// Of a host's process beside what is planned by sizes, as measured: code, libraries, threads and some open requests; a token's
// strings and their index; a merge.
static constexpr uint64_t kProcessBytes = 16'500'000, kTokenBytes = 165, kMergeBytes = 45;
uint64_t vocabulary_bytes(uint64_t tokens, uint64_t merges) { return tokens * kTokenBytes + merges * kMergeBytes; }

uint64_t available_memory(const kernels::KernelTable& kernels) {
  if (!kernels.host_memory) return kernels.free_bytes(kernels.device);
  uint64_t kib = 0;
  if (std::FILE* f = std::fopen("/proc/meminfo", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, f))
      if (std::sscanf(line, "MemAvailable: %lu", &kib) == 1) break;
    std::fclose(f);
  }
  return kib * 1024;
}

uint64_t used_memory(const LoadedModel& m) {
  const uint64_t free = m.memory.free_before ? available_memory(m.model->kernels()) : 0;
  return m.memory.free_before > free ? m.memory.free_before - free : 0;
}

static WeightSizes weight_sizes(const format::WeightFile& file, const kernels::KernelTable& kernels) {
  WeightSizes w;
  w.file_bytes = file.file_bytes();
  const auto length = [&](const char* key) {
    const auto list = file.metadata().array<std::string>(key);
    return list.ok() ? uint64_t((*list)->size()) : 0;
  };
  w.vocabulary_bytes = vocabulary_bytes(length("tokenizer.ggml.tokens"), length("tokenizer.ggml.merges"));
  bool tied = true;
  for (const format::TensorEntry& t : file.tensors()) {
    if (!t.weight_format) continue;
    if (t.name == "output.weight") tied = false;
    if (t.dims.size() == 2 && t.name != "token_embd.weight" && t.rows() < (1 << 30) && t.cols() < (1 << 30))
      w.packed_bytes += model::packed_bytes(kernels, t);
  }
  const format::TensorEntry* e = file.find("token_embd.weight");
  if (!e || !e->weight_format) return w;
  if (tied) w.packed_bytes += model::packed_bytes(kernels, *e);
  (kernels.host_memory ? w.mapped_bytes : w.packed_bytes) += e->bytes.size();
  return w;
}

static Result<ModelShape> shape_of(const format::WeightFile& file, const kernels::KernelTable& kernels) {
  ModelShape s;
  SLUICE_ASSIGN(s.spec, model::read_spec(file.metadata()));
  if (const format::TensorEntry* e = file.find("token_embd.weight")) s.spec.vocab = int(std::min<int64_t>(e->rows(), model::kMaxVocab));
  s.weights = weight_sizes(file, kernels);
  return s;
}

Result<ModelShape> read_shape(const LoadOptions& o, const kernels::KernelTable& kernels) {
  SLUICE_ASSIGN(const auto file, open_weights(o, false));
  return shape_of(*file, kernels);
}

Result<MemoryPlan> plan_without_cache(const ModelShape& s, const kernels::KernelTable& kernels, LoadOptions o) {
  const uint64_t a_token = exec::DeviceExecutor::kv_bytes_per_token(s.spec, {CacheElement::kF32, CacheElement::kF32}, 16);
  o.kv_memory = std::to_string(4 * a_token * uint64_t(std::max(16, block_tokens_of(o))));
  SLUICE_ASSIGN(MemoryPlan p, plan_memory(s.weights, s.spec, kernels, o, 0));
  p.kv_bytes = 0;
  return p;
}

Result<MemoryPlan> plan_memory(const WeightSizes& weights, const model::ModelSpec& spec, const kernels::KernelTable& kernels, const LoadOptions& o,
                               uint64_t available, const DraftNeeds& draft) {
  const int block_tokens = block_tokens_of(o);
  if (block_tokens < 16 || block_tokens > 256 || block_tokens % 16)
    return invalid(std::to_string(block_tokens) + " is no multiple of 16 in 16..256", "--block-tokens");
  if (o.depth < 0 || o.depth > 2) return invalid(std::to_string(o.depth) + " is outside 0..2", "--depth");
  if (o.max_sequences < 1 || o.max_sequences > 4096)
    return invalid(std::to_string(o.max_sequences) + " is outside 1..4096", "--max-sequences");
  const int max_step_tokens = step_tokens(o, kernels);
  if (max_step_tokens < o.max_sequences || max_step_tokens > 16384)
    return invalid(std::to_string(max_step_tokens) + " is outside max-sequences..16384", "--max-step-tokens");
  SLUICE_ASSIGN(const CacheType kv_type, cache_type_of(o, kernels));
  MemoryPlan p;
  p.file_bytes = weights.file_bytes;
  p.weights_bytes = weights.packed_bytes;
  p.mapped_bytes = weights.mapped_bytes;
  p.available_bytes = available;
  p.kv_bytes_per_token = exec::DeviceExecutor::kv_bytes_per_token(spec, kv_type, block_tokens);
  p.activation_bytes = exec::DeviceExecutor::step_bytes(spec, kernels, device_options(o, kernels, kv_type));
  const uint64_t block_bytes = p.kv_bytes_per_token * uint64_t(block_tokens);
  const int wanted_context = o.context > 0 ? std::min(o.context, spec.max_context) : spec.max_context;
  p.activation_bytes += model::rope_bytes(spec, wanted_context);
  if (kernels.host_memory) p.process_bytes = kProcessBytes + weights.vocabulary_bytes;
  p.draft_bytes = draft.weights_bytes + draft.step_bytes;
  CacheRoom room;
  room.available = available;
  room.fixed = p.fixed() + p.draft_bytes + (kernels.host_memory ? 0 : kDeviceReserve);
  room.block_bytes = block_bytes;
  room.draft_block_bytes = draft.kv_bytes_per_token * uint64_t(block_tokens);
  room.useful_blocks = uint64_t((wanted_context + block_tokens - 1) / block_tokens) * uint64_t(o.max_sequences);
  if (!o.kv_memory.empty()) {
    SLUICE_ASSIGN(room.told, parse_bytes(o.kv_memory, "--kv-memory"));
  } else if (kernels.host_memory) {  // at least one whole context where that fits
    const uint64_t left = available > room.fixed ? available - room.fixed : 0;
    const uint64_t context_bytes = uint64_t(wanted_context) * p.kv_bytes_per_token, useful = context_bytes * uint64_t(o.max_sequences);
    room.told = std::min({std::max(left / 4, std::min(context_bytes, left / 2)), useful, uint64_t{64} << 30});
  }
  SLUICE_ASSIGN(const CacheShare share, share_cache(room));
  p.total_blocks = int(share.blocks);
  p.draft_blocks = int(share.draft_blocks);
  p.draft_kv_bytes = share.draft_blocks * room.draft_block_bytes;
  if (!o.swap_memory.empty()) {
    SLUICE_ASSIGN(const uint64_t bytes, parse_bytes(o.swap_memory, "--swap-memory"));
    p.swap_blocks = int(std::min<uint64_t>(bytes / block_bytes, 1 << 24));
    p.swap_bytes = uint64_t(p.swap_blocks) * block_bytes;
  }
  p.kv_bytes = share.blocks * block_bytes;
  p.max_context = int(std::min<int64_t>(wanted_context, int64_t(share.blocks) * block_tokens));
  return p;
}

Result<std::shared_ptr<const format::WeightFile>> open_weights(const LoadOptions& o, bool fill) {
  if (o.random.empty()) {
    if (o.model.empty()) return invalid("a model is missing (a .gguf file or a folder of safetensors, or --random SHAPE)", "model");
    if (!o.save.empty()) return invalid("writes random weights: it needs --random", "--save");
    return format::open_model(resolve_model(o.model));
  }
  if (!o.model.empty()) return invalid("stands in a model's place, and '" + o.model + "' was given too", "--random");
  model::RandomModelOptions r;
  r.shape = o.random;
  r.weight_type = o.weight_type;
  r.seed = o.weight_seed;
  r.vocab = o.random_vocab;
  r.threads = o.threads > 0 ? o.threads : default_threads();
  r.fill = fill;
  SLUICE_ASSIGN(auto file, model::make_random_model(r));
  if (fill && o.save.ends_with(".gguf")) SLUICE_TRY(format::write_gguf(o.save, file->metadata(), file->tensors()));
  else if (fill && !o.save.empty()) SLUICE_TRY(format::write_hf_folder(o.save, file->metadata(), file->tensors(), {}));
  return file;
}

Status set_objective(const std::string& objective, double step_ms, bool host, sched::SchedulerOptions& out) {
  if (objective != "latency" && objective != "throughput") return invalid("'" + objective + "' is neither latency nor throughput", "--objective");
  if (!(step_ms >= 0 && step_ms <= 60000)) return invalid("must be from 0 to 60000", "--step-ms");
  out.step_us = TimeUs(step_ms * 1000);
  out.prompt_room = objective != "latency" || step_ms > 0 ? -1 : host ? kPromptRoom : kDevicePromptRoom;
  out.prompt_us = host ? 0 : kDevicePromptUs;
  return {};
}

// Bytes a microsecond of copies within a host's memory, and between it and a device: low ones, as both are shared.
constexpr double kHostCopyRate = 4e3, kBusCopyRate = 20e3;

// What follows from the memory plan and the options.
static Status apply_options(const LoadOptions& o, const kernels::KernelTable& kernels, int vocab, LoadedModel& m) {
  SLUICE_ASSIGN(const CacheType kv_type, cache_type_of(o, kernels));
  m.device = device_options(o, kernels, kv_type);
  m.device.total_blocks = m.memory.total_blocks;
  m.device.swap_blocks = m.memory.swap_blocks;
  m.scheduler = {};
  m.scheduler.total_blocks = m.memory.total_blocks;
  m.scheduler.swap_blocks = m.memory.swap_blocks;
  m.scheduler.swap_block_us = double(m.memory.kv_bytes_per_token) * m.device.block_tokens / (kernels.host_memory ? kHostCopyRate : kBusCopyRate);
  m.scheduler.block_tokens = m.device.block_tokens;
  m.scheduler.group_tokens = keys_in_groups(kv_type.keys) ? kKeyGroup : 1;
  m.scheduler.max_sequences = o.max_sequences;
  m.scheduler.max_step_tokens = step_tokens(o, kernels);
  SLUICE_TRY(set_objective(o.objective, o.step_ms, kernels.host_memory, m.scheduler));
  m.scheduler.tile_tokens = kernels.host_memory ? 1 : kDeviceTileTokens;
  m.scheduler.max_context = m.memory.max_context;
  m.scheduler.vocab = vocab;
  m.scheduler.prefix_cache = o.prefix_cache;
  return {};
}

Result<LoadedModel> reconfigure(const LoadedModel& loaded, const LoadOptions& o, uint64_t available, const DraftNeeds& draft) {
  LoadedModel m = loaded;
  const kernels::KernelTable& kernels = loaded.model->kernels();
  SLUICE_ASSIGN(m.memory, plan_memory(loaded.weights, loaded.model->spec(), kernels, o, available, draft));
  m.memory.free_before = loaded.memory.free_before;
  m.memory.max_context = std::min(m.memory.max_context, loaded.memory.max_context);  // the rotary tables end there
  SLUICE_TRY(apply_options(o, kernels, loaded.model->spec().vocab, m));
  return m;
}

Result<LoadedModel> load_model(const LoadOptions& o, const std::function<void(size_t, size_t)>& progress, const DraftNeeds& draft) {
  LoadedModel m;
  SLUICE_ASSIGN(const kernels::KernelTable* kernels, choose_kernels(o));
  const int threads = o.threads > 0 ? o.threads : default_threads();
  if (threads > 256) return invalid(std::to_string(threads) + " is over 256", "--threads");
  const std::string path = o.random.empty() ? resolve_model(o.model) : "random " + o.random;
  SLUICE_ASSIGN(auto file, open_weights(o, true));
  auto named = [&](const Error& e) { return Error{e.code, e.field.empty() ? path + ": " + e.message : e.message, e.field}; };
  const auto shape = shape_of(*file, *kernels);
  if (!shape.ok()) return named(shape.error());
  model::ModelSpec spec = shape->spec;
  auto tokenizer = model::build_tokenizer(file->metadata());
  if (!tokenizer.ok()) return named(tokenizer.error());
  m.tokenizer = *tokenizer;
  if (auto t = model::build_chat_template(file->metadata()); t.ok()) m.chat_template = *t;
  else m.chat_template_error = t.error().message;
  m.weights = shape->weights;
  auto memory = plan_memory(m.weights, spec, *kernels, o, available_memory(*kernels), draft);
  if (!memory.ok()) return named(memory.error());
  m.memory = *memory;
  if (!kernels->host_memory) {
    m.memory.free_before = available_memory(*kernels);
    if (m.memory.total() > m.memory.free_before)
      return Error{ErrorCode::kUnavailable, path + ": needs " + std::to_string(m.memory.total()) + " bytes on '" + o.device + "' (weights " +
                   std::to_string(m.memory.weights_bytes) + ", cache " + std::to_string(m.memory.kv_bytes) + ", a step " +
                   std::to_string(m.memory.activation_bytes) +
                   (draft.weights_bytes ? ", the draft model " + std::to_string(m.memory.draft_bytes + m.memory.draft_kv_bytes) : "") +
                   "), which has " + std::to_string(m.memory.free_before) + " free", "--device"};
  }
  auto weights = model::load_weights(file, spec, *kernels, threads, progress);
  if (!weights.ok()) return named(weights.error());
  if (m.tokenizer->size() > spec.vocab)
    return bad_file(path + ": tokenizer.ggml.tokens has " + std::to_string(m.tokenizer->size()) + " entries, token_embd.weight " + std::to_string(spec.vocab) + " rows");
  m.name = o.random.empty() ? model_name(path) : o.random;
  SLUICE_TRY(apply_options(o, *kernels, spec.vocab, m));
  m.model = std::make_shared<model::Model>(std::move(spec), std::move(*weights), kernels, m.memory.max_context, threads);
  if (!m.model->ok()) return Error{ErrorCode::kUnavailable, path + ": the device has no room for the rotary tables", "--device"};
  return m;
}

}  // namespace sluice::lab
