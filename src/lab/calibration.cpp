#include "lab/calibration.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "lab/layer_inputs.h"

namespace sluice::lab {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kRowsPerTask = 16;

// A tensor in memory of its own, as layer_file makes them.
struct OwnedTensors {
  std::vector<std::vector<uint8_t>> bytes;
};

}  // namespace

int site_of(std::string_view name, Site& site) {
  if (!name.starts_with("blk.") || !name.ends_with(".weight")) return -1;
  name.remove_prefix(4);
  name.remove_suffix(7);
  int layer = -1;
  const auto [at, ec] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (ec != std::errc{} || layer < 0 || at == name.data() + name.size() || *at != '.') return -1;
  const std::string_view role(at + 1, size_t(name.data() + name.size() - at - 1));
  if (role == "attn_q" || role == "attn_k" || role == "attn_v" || role == "attn_qkv") site = Site::kAttention;
  else if (role == "attn_output") site = Site::kAttentionOut;
  else if (role == "ffn_gate" || role == "ffn_up") site = Site::kFfn;
  else if (role == "ffn_down") site = Site::kFfnDown;
  else return -1;
  return layer;
}

struct Calibration::Layer {
  explicit Layer(model::Model&& m) : model(std::move(m)) {}
  model::Model model;
  int number = 0;
};

Calibration::Calibration(std::shared_ptr<const format::WeightFile> file, std::vector<int32_t> tokens, int window, const kernels::KernelTable& kernels, int threads)
    : file_(std::move(file)), tokens_(std::move(tokens)), window_(window), kernels_(kernels), threads_(threads) {}

Result<std::unique_ptr<Calibration>> Calibration::make(std::shared_ptr<const format::WeightFile> file, std::vector<int32_t> tokens, int window,
                                                       const kernels::KernelTable& kernels, int threads) {
  if (!kernels.host_memory) return Error{ErrorCode::kUnsupported, std::string("calibration runs on the host, not on ") + kernels.name, "--device"};
  SLUICE_CHECK(window > 0 && !tokens.empty() && tokens.size() % size_t(window) == 0);
  std::unique_ptr<Calibration> c(new Calibration(std::move(file), std::move(tokens), window, kernels, threads));
  SLUICE_TRY(c->start());
  return c;
}

Calibration::~Calibration() {
  if (context_) kernels_.destroy(context_);
}

Status Calibration::start() {
  SLUICE_ASSIGN(spec_, model::read_spec(file_->metadata()));
  const format::TensorEntry* table = file_->find("token_embd.weight");
  if (!table || !table->weight_format || table->cols() != spec_.dim || table->rows() > model::kMaxVocab)
    return bad_file("token_embd.weight: missing, or of another shape than [vocabulary, " + std::to_string(spec_.dim) + "]");
  spec_.vocab = int(table->rows());
  for (int32_t id : tokens_)
    if (id < 0 || id >= spec_.vocab) return bad_file("token " + std::to_string(id) + " of the calibration text is outside the vocabulary");
  const int largest = std::max({spec_.dim, spec_.ffn_dim, spec_.q_heads * spec_.head_dim});
  kernels::ContextOptions c;
  c.threads = threads_;
  c.max_tokens = window_;
  c.max_dim = largest;
  context_ = kernels_.create(c);
  if (!context_) return Error{ErrorCode::kUnavailable, "no memory for calibration's scratch", {}};
  activations_ = std::make_unique<model::Activations>(kernels_, spec_, window_, 1);
  inputs_ = Buffer(size_t(window_) * size_t(largest) * sizeof(float));
  residual_ = Buffer(tokens_.size() * size_t(spec_.dim) * sizeof(float));
  const int blocks = (window_ + kBlockTokens - 1) / kBlockTokens;
  const size_t cache = size_t(blocks) * kBlockTokens * size_t(spec_.kv_heads) * size_t(spec_.head_dim) * 2;
  keys_ = kernels::BackendBuffer(kernels_, cache);
  values_ = kernels::BackendBuffer(kernels_, cache);
  if (!activations_->ok() || !keys_.ok() || !values_.ok()) return Error{ErrorCode::kUnavailable, "no memory for calibration's activations", {}};
  for (int t = 0; t < window_; ++t) positions_.push_back(t);
  for (int b = 0; b < blocks; ++b) block_ids_.push_back(b);
  sequence_of_.assign(size_t(window_), 0);
  query_begin_ = {0, window_};
  kv_len_ = {window_};
  block_begin_ = {0, blocks};
  embed();
  return {};
}

void Calibration::embed() {
  const format::TensorEntry& table = *file_->find("token_embd.weight");
  parallel(int(tokens_.size()), [&](int t) {
    float* x = residual_.as<float>() + size_t(t) * size_t(spec_.dim);
    format::decode_rows(table, tokens_[size_t(t)], tokens_[size_t(t)] + 1, x);
    for (int k = 0; k < spec_.dim; ++k) x[k] *= spec_.embed_scale;
  });
}

void Calibration::parallel(int n, const std::function<void(int)>& fn) const {
  auto* const task = const_cast<std::function<void(int)>*>(&fn);
  kernels_.parallel_for(context_, n, [](void* f, int i) noexcept { (*static_cast<std::function<void(int)>*>(f))(i); }, task);
}

// The layer's tensors alone, matrices of floats (or of types that the kernels do not know) as Q8_0.
Result<std::shared_ptr<const format::WeightFile>> Calibration::layer_file(int layer, std::span<const format::TensorEntry> replaced) const {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  auto owned = std::make_shared<OwnedTensors>();
  std::vector<format::TensorEntry> tensors;
  for (const format::TensorEntry& original : file_->tensors()) {
    const bool factors = original.name == "rope_freqs.weight";
    if (!factors && !original.name.starts_with(prefix)) continue;
    const auto other = std::find_if(replaced.begin(), replaced.end(), [&](const format::TensorEntry& r) { return r.name == original.name; });
    format::TensorEntry t = other == replaced.end() ? original : *other;
    if (!t.weight_format) return Error{ErrorCode::kUnsupported, t.name + ": weight type " + std::to_string(t.type_id) + " is not supported", {}};
    const bool matrix = t.dims.size() >= 2 && t.rows() < (1 << 30) && t.cols() < (1 << 30);
    const bool kernel = matrix && kernels_.packed_bytes(t.weight_format->type, int(t.rows()), int(t.cols())) > 0;
    if (matrix && (!t.weight_format->shape || !kernel)) {
      const quant::WeightFormat* f = quant::find_format(t.cols() % 32 == 0 ? WeightType::kQ8_0 : WeightType::kF32);
      const size_t cols = size_t(t.cols()), to = quant::row_bytes(*f, cols);
      std::vector<uint8_t>& bytes = owned->bytes.emplace_back(size_t(t.rows()) * to);
      const int chunks = int((t.rows() + kRowsPerTask - 1) / kRowsPerTask);
      parallel(chunks, [&](int i) {
        std::vector<float> row(cols);
        for (int64_t r = int64_t(i) * kRowsPerTask; r < std::min<int64_t>(t.rows(), int64_t(i + 1) * kRowsPerTask); ++r) {
          format::decode_rows(t, r, r + 1, row.data());
          f->encode(row.data(), bytes.data() + size_t(r) * to, cols);
        }
      });
      t.weight_format = f;
      t.type_id = uint32_t(f->type);
      t.bytes = bytes;
      t.make_rows = nullptr;
      t.input_order = nullptr;
    }
    tensors.push_back(std::move(t));
  }
  return std::shared_ptr<const format::WeightFile>(std::make_shared<format::WeightFile>(format::Metadata{}, std::move(tensors), owned));
}

void Calibration::show(Site site, const kernels::LinearArgs& args, const Collector& collect) {
  const int cols = args.out[0].weight.cols;
  auto* rows = inputs_.as<float>();
  parallel(args.num_tokens, [&](int t) { layer_input_row(args, t, rows + size_t(t) * size_t(cols)); });
  collect(site, rows, args.num_tokens, cols);
}

Result<std::unique_ptr<Calibration::Layer>> Calibration::load_layer(std::span<const format::TensorEntry> replaced) const {
  SLUICE_CHECK(next_layer_ < spec_.num_layers);
  SLUICE_ASSIGN(auto file, layer_file(next_layer_, replaced));
  model::ModelSpec spec = spec_;
  SLUICE_ASSIGN(model::Weights weights, model::load_layer_weights(file, spec, kernels_, threads_, next_layer_));
  auto layer = std::make_unique<Layer>(model::Model(std::move(spec), std::move(weights), &kernels_, window_, threads_));
  if (!layer->model.ok()) return Error{ErrorCode::kUnavailable, "no memory for rotary tables", {}};
  layer->number = next_layer_;
  return layer;
}

void Calibration::run_window(const Layer& layer, float* residual, bool keep_outputs, const Collector& collect, std::optional<Site> only) {
  const model::LayerWeights& weights = layer.model.weights().layers[size_t(layer.number)];
  const model::LinearTap tap = [&](const kernels::LinearArgs& args) {
    const void* first = args.out[0].weight.data;
    const Site site = first == weights.q.data ? Site::kAttention : first == weights.o.data ? Site::kAttentionOut : first == weights.gate.data ? Site::kFfn : Site::kFfnDown;
    if (!only || *only == site) show(site, args, collect);
    return keep_outputs || !only || site < *only;  // what comes of the products from there on nobody looks at
  };
  kernels::BatchView batch;
  batch.num_tokens = window_;
  batch.num_sequences = 1;
  batch.positions = positions_.data();
  batch.sequence_of = sequence_of_.data();
  batch.query_begin = query_begin_.data();
  batch.kv_len = kv_len_.data();
  batch.block_begin = block_begin_.data();
  batch.block_ids = block_ids_.data();
  batch.block_tokens = kBlockTokens;
  kernels::CacheView cache;
  cache.keys = keys_.data();
  cache.values = values_.data();
  cache.key_stride = cache.value_stride = size_t(kBlockTokens) * size_t(spec_.kv_heads) * cache_row_bytes(cache.type.keys, spec_.head_dim);
  const size_t bytes = size_t(window_) * size_t(spec_.dim) * sizeof(float);
  std::memcpy(activations_->x, residual, bytes);
  layer.model.run_layer(context_, *activations_, layer.number, batch, cache, collect ? &tap : nullptr);
  if (keep_outputs) std::memcpy(residual, activations_->x, bytes);
}

Status Calibration::run_layer(const Collector& collect, std::span<const format::TensorEntry> replaced) {
  SLUICE_ASSIGN(const auto layer, load_layer(replaced));
  for (size_t t = 0; t < tokens_.size(); t += size_t(window_)) run_window(*layer, stream(0) + t * size_t(spec_.dim), true, collect);
  ++next_layer_;
  return {};
}

Status Calibration::follow_original() {
  SLUICE_CHECK(next_layer_ == 0 && !follows_);
  follows_ = true;
  const size_t bytes = residual_.bytes();
  Buffer both(2 * bytes);
  for (size_t i = 0; i < 2; ++i) std::memcpy(both.as<uint8_t>() + i * bytes, residual_.data(), bytes);
  residual_ = std::move(both);
  return {};
}

Status Calibration::show_layer(const PairCollector& collect, std::optional<Site> only, std::span<const format::TensorEntry> replaced, bool last) {
  SLUICE_CHECK(follows_);
  if (!original_) {
    SLUICE_ASSIGN(original_, load_layer({}));
  }
  std::unique_ptr<Layer> other;
  if (!replaced.empty()) {
    SLUICE_ASSIGN(other, load_layer(replaced));
  }
  std::array<std::vector<float>, kNumSites> before;
  for (size_t t = 0; t < tokens_.size(); t += size_t(window_)) {
    const size_t at = t * size_t(spec_.dim);
    run_window(*original_, stream(1) + at, last,
               [&](Site site, const float* rows, int count, int cols) { before[size_t(site)].assign(rows, rows + size_t(count) * size_t(cols)); }, only);
    run_window(other ? *other : *original_, stream(0) + at, false,
               [&](Site site, const float* rows, int count, int cols) { collect(site, before[size_t(site)].data(), rows, count, cols); }, only);
  }
  if (last) original_.reset();
  return {};
}

Status Calibration::run_head(const std::function<void(const float* rows, int count)>& collect) {
  SLUICE_CHECK(next_layer_ == spec_.num_layers);
  const format::TensorEntry* norm = file_->find("output_norm.weight");
  if (!norm || !norm->weight_format || norm->elements() != spec_.dim) return bad_file("output_norm.weight: missing, or of another shape");
  std::vector<float> weight(static_cast<size_t>(spec_.dim));
  format::decode_rows(*norm, 0, 1, weight.data());
  auto* rows = inputs_.as<float>();
  for (size_t begin = 0; begin < tokens_.size(); begin += size_t(window_)) {
    parallel(window_, [&](int t) {
      norm_row(residual_.as<float>() + (begin + size_t(t)) * size_t(spec_.dim), weight.data(), spec_.norm_eps, spec_.dim, rows + size_t(t) * size_t(spec_.dim));
    });
    collect(rows, window_);
  }
  return {};
}

bool Calibration::restore(int layer, std::span<const float> state) {
  if (layer < 0 || layer > spec_.num_layers || state.size() * sizeof(float) != residual_.bytes()) return false;
  std::memcpy(residual_.data(), state.data(), residual_.bytes());
  next_layer_ = layer;
  return true;
}

}  // namespace sluice::lab
