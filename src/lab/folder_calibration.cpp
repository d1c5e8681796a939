#include "lab/folder_calibration.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "lab/loaded_model.h"
#include "lab/quantize_plan.h"
#include "lab/site_inputs.h"
#include "quant/calibrate/grouped_fit.h"
#include "quant/fit.h"

namespace sluice::lab {
namespace {

constexpr int kSampleRows = 128;  // of each site's inputs, on which AWQ tries its scales

// "blk.3.attn_norm.weight" -> 3 and "attn_norm.weight".
int layer_of(const std::string& name, std::string& rest) {
  if (!name.starts_with("blk.")) return -1;
  const size_t dot = name.find('.', 4);
  if (dot == std::string::npos) return -1;
  rest = name.substr(dot + 1);
  return std::atoi(name.c_str() + 4);
}

}  // namespace

// What AWQ's search keeps of a site's inputs.
struct FolderCalibration::Sample {
  std::vector<double> sizes, squares;  // sums of |x| and x^2
  std::vector<float> rows;             // some, [count, cols]
  size_t seen = 0;

  void add(const float* x, int count, int cols, size_t every) {
    sizes.resize(size_t(cols)), squares.resize(size_t(cols));
    for (int r = 0; r < count; ++r, ++seen, x += cols) {
      for (size_t k = 0; k < size_t(cols); ++k) sizes[k] += std::fabs(x[k]), squares[k] += double(x[k]) * x[k];
      if (seen % every == 0) rows.insert(rows.end(), x, x + cols);
    }
  }
};

Result<std::shared_ptr<FolderCalibration>> FolderCalibration::make(const QuantizeOptions& o, const FolderType& type, std::shared_ptr<const format::WeightFile> file, int group) {
  SLUICE_ASSIGN(std::vector<int32_t> tokens, calibration_tokens(o, *file));
  LoadOptions load;
  load.isa = o.isa;
  SLUICE_ASSIGN(const kernels::KernelTable* kernels, choose_kernels(load));
  std::shared_ptr<FolderCalibration> c(new FolderCalibration(type, file, group, o.output));
  c->fingerprint_ = folder_fingerprint(o, *file, c->method(), group, tokens);
  SLUICE_ASSIGN(c->calibration_, Calibration::make(file, std::move(tokens), o.window, *kernels, o.threads > 0 ? o.threads : default_threads()));
  SLUICE_TRY(c->calibration_->follow_original());
  return c;
}

FolderMatrices FolderCalibration::matrices(const std::shared_ptr<FolderCalibration>& self) {
  FolderMatrices m;
  m.method = self->method();
  m.fingerprint = self->fingerprint_;
  m.progress = self->progress_;
  m.group = self->group_;
  m.symmetric = self->type_.kind == FolderType::kGptq;
  m.activation_order = self->type_.kind == FolderType::kGptq;
  m.grouped = [self](const format::TensorEntry& t) { return self->take(self->grouped_, t); };
  m.fp8 = [self](const format::TensorEntry& t) { return self->take(self->fp8_, t); };
  return m;
}

std::vector<format::TensorEntry> FolderCalibration::tensors(const std::shared_ptr<FolderCalibration>& self) {
  std::vector<format::TensorEntry> out;
  for (const format::TensorEntry& original : self->file_->tensors()) {
    std::string rest;
    Site site{};
    const bool changes = layer_of(original.name, rest) >= 0 && (site_of(original.name, site) >= 0 || rest == "attn_norm.weight" || rest == "ffn_norm.weight");
    out.push_back(original);
    if (self->type_.kind != FolderType::kAwq || !changes) continue;
    format::TensorEntry& t = out.back();
    t.weight_format = quant::find_format(WeightType::kF32);
    t.type_id = uint32_t(WeightType::kF32);
    t.bytes = {};
    t.input_order = nullptr;
    t.made_from_bytes = original.file_bytes();
    t.make_rows = [self, &original](int64_t begin, int64_t end, uint8_t* rows) { self->scaled_rows(original, begin, end, reinterpret_cast<float*>(rows)); };
  }
  // Layer by layer, whatever the file's order: else layers that are walked on the way to a later one would wait in memory.
  const auto layer = [](const format::TensorEntry& t) {
    std::string rest;
    return layer_of(t.name, rest);
  };
  std::stable_sort(out.begin(), out.end(), [&](const format::TensorEntry& a, const format::TensorEntry& b) { return layer(a) < layer(b); });
  return out;
}

Result<std::vector<float>> FolderCalibration::weights(const format::TensorEntry& t) const {
  std::vector<float> w(size_t(t.elements()));
  constexpr int64_t kRows = 64;
  calibration_->parallel(int((t.rows() + kRows - 1) / kRows), [&](int i) {
    const int64_t begin = i * kRows, end = std::min(t.rows(), begin + kRows);
    format::decode_rows(t, begin, end, &w[size_t(begin * t.cols())]);
  });
  if (const size_t bad = quant::first_unfit(w.data(), w.size()); bad < w.size())
    return bad_file(t.name + ": element " + std::to_string(bad) + " is " + std::to_string(w[bad]) + "; weights must be finite and at most 65504 in size");
  return w;
}

std::vector<const format::TensorEntry*> FolderCalibration::matrices_of(int layer, Site site) const {
  std::vector<const format::TensorEntry*> out;
  for (const format::TensorEntry& t : file_->tensors()) {
    Site s{};
    if (site_of(t.name, s) == layer && s == site) out.push_back(&t);
  }
  return out;
}

Status FolderCalibration::reach(int layer) {
  if (!status_.ok() || calibration_->next_layer() > layer) return status_;  // also from threads that make rows of a layer that is there
  const auto start = std::chrono::steady_clock::now();
  int from = 0;
  std::vector<float> state;
  if (!std::exchange(begun_, true) && progress_->resumed && format::load_state(state_path_, fingerprint_, from, state) && whole_before(from))
    calibration_->restore(from, state);
  while (status_.ok() && calibration_->next_layer() <= layer) {
    const int next = calibration_->next_layer();
    if (next > 0 && whole_before(next)) status_ = format::save_state(state_path_, fingerprint_, next, calibration_->state());
    if (status_.ok()) status_ = make_layer();
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status_;
}

bool FolderCalibration::whole_before(int layer) const {
  std::string rest;
  for (const auto& [name, missing] : progress_->missing) {
    const int of = layer_of(name, rest);
    if (missing > 0 && of >= 0 && of < layer) return false;
  }
  return true;
}

// A site's matrices are made from its inputs, with what the sites before it became; then the walk that they replace goes on.
Status FolderCalibration::make_layer() {
  const int layer = calibration_->next_layer();
  std::vector<std::vector<float>> values;
  std::vector<format::TensorEntry> rounded;
  if (type_.kind == FolderType::kAwq) SLUICE_TRY(search(layer));
  for (const Site site : kSites) {
    SLUICE_ASSIGN(auto inputs, learn_site(*calibration_, site, rounded));
    if (!inputs) continue;
    quant::FeedbackFactor& factor = inputs->factor;
    std::vector<std::pair<const format::TensorEntry*, std::vector<float>>> aims;
    for (const format::TensorEntry* t : matrices_of(layer, site)) {
      if (t->cols() != factor.cols) continue;
      SLUICE_ASSIGN(std::vector<float> w, weights(*t));
      inputs->drift.follow(w.data(), int(t->rows()), factor, quant::Drift::kShare, parallel());
      aims.emplace_back(t, std::move(w));
    }
    if (type_.kind == FolderType::kAwq) quant::scale_inputs(factor, scaled_[{layer, site}].scales);
    for (auto& [t, w] : aims) {
      SLUICE_TRY(round(*t, site, factor, w));
      format::TensorEntry r;
      r.name = t->name;
      r.dims = t->dims;
      r.weight_format = quant::find_format(WeightType::kF32);
      r.type_id = uint32_t(WeightType::kF32);
      values.push_back(std::move(w));
      r.bytes = {reinterpret_cast<const uint8_t*>(values.back().data()), values.back().size() * sizeof(float)};
      rounded.push_back(std::move(r));
    }
  }
  SLUICE_TRY(calibration_->run_layer(nullptr, rounded));
  file_->keep_only(nullptr);
  return {};
}

// Rounds w, and makes it what it became.
Status FolderCalibration::round(const format::TensorEntry& t, Site site, const quant::FeedbackFactor& factor, std::vector<float>& w) {
  const int rows = int(t.rows());
  const auto keep = [&](auto&& m, auto& made) {
    parallel()(m.rows, [&](int n) { quant::decode_row(m, n, &w[size_t(n) * size_t(m.cols)]); });
    made.insert_or_assign(t.name, std::move(m));
  };
  if (type_.kind == FolderType::kFp8) {
    const format::Fp8Block block = format::fp8_block(type_.scales, rows, factor.cols);
    keep(quant::feedback_fp8(w.data(), rows, block.rows, block.cols, factor, parallel()), fp8_);
  } else if (type_.kind == FolderType::kAwq) {
    std::string role;
    scale_rows(t, 0, rows, w.data(), false);
    quant::GroupedMatrix m = quant::fit_grouped(w.data(), rows, factor.cols, type_.bits, group_, false, scaled_[{layer_of(t.name, role), site}].importance.data(), parallel());
    quant::feedback_codes(m, w.data(), factor, parallel());
    keep(std::move(m), grouped_);
    scale_rows(t, 0, rows, w.data(), true);
  } else {
    SLUICE_ASSIGN(quant::GroupedMatrix m, quant::gptq(w.data(), rows, factor, {type_.bits, group_, true}, parallel()));
    keep(std::move(m), grouped_);
  }
  return {};
}

// The scales of all sites' columns: rows of one take in what another's columns are scaled by.
Status FolderCalibration::search(int layer) {
  const size_t every = std::max<size_t>(1, size_t(num_tokens()) / kSampleRows);
  std::map<Site, Sample> samples;
  SLUICE_TRY(calibration_->show_layer([&](Site site, const float*, const float* rows, int count, int cols) { samples[site].add(rows, count, cols, every); }, {}, {}, false));
  for (const auto& [site, s] : samples) SLUICE_TRY(search(layer, site, s));
  return {};
}

// The attention's output has nothing before it that could take scales in, where a value head feeds several query heads or has a
// bias: its columns stay as they are.
Status FolderCalibration::search(int layer, Site site, const Sample& s) {
  const size_t cols = s.sizes.size();
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const format::TensorEntry* values = file_->find(prefix + "attn_v.weight");
  const bool alone = site == Site::kAttentionOut && (!values || values->rows() != int64_t(cols) || file_->find(prefix + "attn_v.bias"));
  Scaled result{std::vector<float>(cols, 1.0f), std::vector<float>(cols)};
  const double seen = double(std::max<size_t>(1, s.seen));
  if (!alone) {
    std::vector<std::vector<float>> w;
    std::vector<quant::MatrixView> views;
    for (const format::TensorEntry* t : matrices_of(layer, site)) {
      if (t->cols() != int64_t(cols)) continue;
      SLUICE_ASSIGN(std::vector<float> values_of, weights(*t));
      w.push_back(std::move(values_of));
      views.push_back({w.back().data(), int(t->rows())});
    }
    std::vector<float> mean_abs(cols);
    for (size_t k = 0; k < cols; ++k) mean_abs[k] = float(s.sizes[k] / seen);
    result.scales = quant::awq_scales(views, mean_abs, s.rows.data(), int(s.rows.size() / cols), {type_.bits, group_}, parallel());
  }
  for (size_t k = 0; k < cols; ++k) result.importance[k] = float(s.squares[k] / seen) / (result.scales[k] * result.scales[k]);
  scaled_[{layer, site}] = std::move(result);
  return {};
}

void FolderCalibration::scaled_rows(const format::TensorEntry& t, int64_t begin, int64_t end, float* out) {
  format::decode_rows(t, begin, end, out);
  std::string role;
  if (reach(layer_of(t.name, role)).ok()) scale_rows(t, begin, end, out, false);  // else the matrices' source says so
}

void FolderCalibration::scale_rows(const format::TensorEntry& t, int64_t begin, int64_t end, float* out, bool back) const {
  std::string role;
  const int layer = layer_of(t.name, role);
  const size_t cols = size_t(t.cols());
  static const std::vector<float> kNone;
  const auto scales = [&](Site s) -> const std::vector<float>& {
    const auto at = scaled_.find({layer, s});
    return at == scaled_.end() ? kNone : at->second.scales;
  };
  if (role == "attn_norm.weight" || role == "ffn_norm.weight") {
    const std::vector<float>& s = scales(role == "attn_norm.weight" ? Site::kAttention : Site::kFfn);
    for (size_t k = 0; k < std::min(cols, s.size()); ++k) out[k] /= s[k];
    return;
  }
  Site site{};
  if (site_of(t.name, site) < 0) return;
  const std::vector<float>& columns = scales(site);
  const std::vector<float>* fed = role == "ffn_up.weight" ? &scales(Site::kFfnDown) : role == "attn_v.weight" ? &scales(Site::kAttentionOut) : nullptr;
  if (fed && int64_t(fed->size()) != t.rows()) fed = nullptr;
  for (int64_t r = begin; r < end; ++r) {
    float* row = out + size_t(r - begin) * cols;
    const float by = fed ? 1 / (*fed)[size_t(r)] : 1;
    for (size_t k = 0; k < cols; ++k) {
      const float scale = (k < columns.size() ? columns[k] : 1.0f) * by;
      row[k] = back ? row[k] / scale : row[k] * scale;
    }
  }
}

template <class Matrix>
Result<Matrix> FolderCalibration::take(std::map<std::string, Matrix>& from, const format::TensorEntry& t) {
  Site site{};
  const int layer = site_of(t.name, site);
  if (layer < 0) return Error{ErrorCode::kUnsupported, t.name + ": no matrix whose inputs calibration sees; keep it as floats (--keep)", {}};
  SLUICE_TRY(reach(layer));
  auto made = from.extract(t.name);
  if (made.empty()) return Error{ErrorCode::kInternal, t.name + ": was taken before", {}};
  return std::move(made.mapped());
}

}  // namespace sluice::lab
