#include "lab/quantize_folder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <regex>
#include <thread>

#include "lab/folder_calibration.h"
#include "format/part_file.h"
#include "lab/loaded_model.h"
#include "lab/quantize_plan.h"
#include "quant/calibrate/grouped_fit.h"
#include "quant/fit.h"

namespace sluice::lab {
namespace {

constexpr int kGroup = 128, kBlockRows = 128;

struct NamedType { const char* name; FolderType type; };
using format::Fp8Scales;
using format::StDtype;
constexpr NamedType kTypes[] = {
    {"f32", {FolderType::kFloats, 32, StDtype::kF32, {}}},  {"f16", {FolderType::kFloats, 16, StDtype::kF16, {}}},
    {"bf16", {FolderType::kFloats, 16, StDtype::kBF16, {}}}, {"gptq2", {FolderType::kGptq, 2, StDtype::kF16, {}}},
    {"gptq3", {FolderType::kGptq, 3, StDtype::kF16, {}}},    {"gptq4", {FolderType::kGptq, 4, StDtype::kF16, {}}},
    {"gptq5", {FolderType::kGptq, 5, StDtype::kF16, {}}},    {"gptq6", {FolderType::kGptq, 6, StDtype::kF16, {}}},
    {"gptq7", {FolderType::kGptq, 7, StDtype::kF16, {}}},    {"gptq8", {FolderType::kGptq, 8, StDtype::kF16, {}}},
    {"awq4", {FolderType::kAwq, 4, StDtype::kF16, {}}},      {"fp8", {FolderType::kFp8, 8, StDtype::kF16, Fp8Scales::kChannel}},
    {"fp8_tensor", {FolderType::kFp8, 8, StDtype::kF16, Fp8Scales::kTensor}}, {"fp8_block", {FolderType::kFp8, 8, StDtype::kF16, Fp8Scales::kBlock}},
};

// fn(begin, end) over the rows in slices of whole blocks, by several threads; the first error counts.
Status over_rows(const format::TensorEntry& t, int threads, const std::function<Status(int64_t, int64_t)>& fn) {
  const int64_t rows = t.rows(), slice = (rows / threads + kBlockRows) / kBlockRows * kBlockRows;
  std::mutex mutex;
  Status status;
  const auto work = [&](int64_t begin) {
    Status s = fn(begin, std::min(rows, begin + slice));
    const std::lock_guard lock(mutex);
    if (!s.ok() && status.ok()) status = std::move(s);
  };
  std::vector<std::thread> pool;
  for (int64_t begin = slice; begin < rows; begin += slice) pool.emplace_back(work, begin);
  work(0);
  for (std::thread& p : pool) p.join();
  return status;
}

Result<std::vector<float>> finite_rows(const format::TensorEntry& t, int64_t begin, int64_t end) {
  std::vector<float> w(size_t((end - begin) * t.cols()));
  format::decode_rows(t, begin, end, w.data());
  if (const size_t bad = quant::first_unfit(w.data(), w.size()); bad < w.size())
    return bad_file(t.name + ": element " + std::to_string(begin * t.cols() + int64_t(bad)) + " is " + std::to_string(w[bad]) + "; weights must be finite and at most 65504 in size");
  return w;
}

template <class T>
void place(std::vector<T>& all, int64_t row, int64_t of_rows, int64_t total_rows, const std::vector<T>& part) {
  const size_t per_row = part.size() / size_t(of_rows);
  all.resize(per_row * size_t(total_rows));
  std::copy(part.begin(), part.end(), all.begin() + ptrdiff_t(per_row * size_t(row)));
}

Result<quant::GroupedMatrix> round_groups(const format::TensorEntry& t, int bits, int group, bool symmetric, int threads) {
  quant::GroupedMatrix m{int(t.rows()), int(t.cols()), bits, group, {}, {}, {}, {}};
  std::mutex mutex;
  SLUICE_TRY(over_rows(t, threads, [&](int64_t begin, int64_t end) -> Status {
    SLUICE_ASSIGN(const std::vector<float> w, finite_rows(t, begin, end));
    const quant::GroupedMatrix part = quant::fit_grouped(w.data(), int(end - begin), m.cols, bits, group, symmetric, nullptr, quant::serial);
    const std::lock_guard lock(mutex);
    place(m.codes, begin, end - begin, m.rows, part.codes);
    place(m.scales, begin, end - begin, m.rows, part.scales);
    place(m.zeros, begin, end - begin, m.rows, part.zeros);
    return {};
  }));
  return m;
}

Result<quant::Fp8Matrix> round_fp8_rows(const format::TensorEntry& t, Fp8Scales scales) {
  SLUICE_ASSIGN(const std::vector<float> w, finite_rows(t, 0, t.rows()));
  const format::Fp8Block block = format::fp8_block(scales, int(t.rows()), int(t.cols()));
  return quant::round_fp8(w.data(), int(t.rows()), int(t.cols()), block.rows, block.cols);
}

// Matrices that --keep leaves as floats.
Result<std::vector<std::regex>> parse_kept(const std::vector<std::string>& keeps) {
  std::vector<std::regex> out;
  for (const std::string& text : keeps) {
    const size_t equals = text.rfind('=');
    const std::string type = equals == std::string::npos ? "" : text.substr(equals + 1);
    const auto found = find_folder_type(type);
    if (!found || found->kind != FolderType::kFloats) return invalid("'" + text + "' is not REGEX=f16: in a folder, matrices can be kept as floats alone", "--keep");
    try {
      out.emplace_back(text.substr(0, equals));
    } catch (const std::regex_error&) {
      return invalid("'" + text.substr(0, equals) + "' is no regular expression", "--keep");
    }
  }
  return out;
}

bool is_layer_matrix(const format::TensorEntry& t) { return t.dims.size() == 2 && t.name.starts_with("blk."); }

// What is done of a run, and how far off it is.
struct Tally {
  int64_t all = 0, done = 0, before = -1;  // elements; before: by an earlier run, -1 while that is not known
  double error = 0, square = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

  template <class Matrix>
  void add(const format::TensorEntry& t, const Matrix& m) {
    std::vector<float> was(size_t(t.cols())), is(was.size());
    for (int64_t n = 0; n < t.rows(); ++n) {
      format::decode_rows(t, n, n + 1, was.data());
      quant::decode_row(m, int(n), is.data());
      for (size_t k = 0; k < was.size(); ++k) {
        error += double(is[k] - was[k]) * (is[k] - was[k]);
        square += double(was[k]) * was[k];
      }
    }
    done += t.elements();
  }
};

// Wraps a source: progress before each matrix, its error after, and an end where the user wants one.
template <class Source>
Source watched(Source source, const QuantizeOptions& o, Tally& tally, std::function<int64_t()> before) {
  return [source, &o, &tally, before](const format::TensorEntry& t) -> decltype(source(t)) {
    if (o.stop && o.stop->load(std::memory_order_relaxed)) return Error{ErrorCode::kCancelled, "interrupted; the same command goes on from here", {}};
    if (tally.before < 0) {
      tally.before = before();
      if (o.note && tally.before > 0) o.note("goes on with what an earlier run left in " + o.output);
    }
    const double all = double(tally.all), here = double(tally.done), done = here + double(tally.before);
    if (o.progress) o.progress({t.name, all > 0 ? done / all : 1, here > 0 ? tally.seconds() * (all - done) / here : -1});
    auto made = source(t);
    if (made.ok() && made->rows == t.rows() && made->cols == t.cols() && quant::fault(*made).empty()) tally.add(t, *made);
    return made;
  };
}

}  // namespace

std::optional<FolderType> find_folder_type(const std::string& name) {
  for (const NamedType& t : kTypes)
    if (name == t.name) return t.type;
  return std::nullopt;
}

std::string folder_type_names() {
  std::string names;
  for (const NamedType& t : kTypes) names += std::string(names.empty() ? "" : ", ") + t.name;
  return names;
}

uint64_t folder_fingerprint(const QuantizeOptions& o, const format::WeightFile& file, const std::string& method, int group, std::span<const int32_t> tokens) {
  std::string options = o.type + "\n" + method + "\n" + o.isa;
  for (const std::string& keep : o.keep) options += "\n" + keep;
  const uint64_t numbers[] = {input_fingerprint(o, file), uint64_t(group)};
  const uint64_t h = format::hash_bytes(options.data(), options.size(), format::hash_bytes(numbers, sizeof numbers));
  return format::hash_bytes(tokens.data(), tokens.size_bytes(), h);
}

FolderMatrices rounded_matrices(const FolderType& type, int group, int threads, uint64_t fingerprint) {
  FolderMatrices m;
  m.fingerprint = fingerprint;
  m.group = group;
  const bool symmetric = type.kind != FolderType::kAwq;
  m.grouped = [bits = type.bits, group, symmetric, threads](const format::TensorEntry& t) { return round_groups(t, bits, group, symmetric, threads); };
  m.fp8 = [scales = type.scales](const format::TensorEntry& t) { return round_fp8_rows(t, scales); };
  return m;
}

Result<QuantizeReport> write_folder(const QuantizeOptions& o, const FolderType& type, const format::WeightFile& file,
                                    std::span<const format::TensorEntry> tensors, const FolderMatrices& matrices) {
  Tally tally;
  SLUICE_ASSIGN(const std::vector<std::regex> kept, parse_kept(o.keep));
  const format::TensorChoice chosen = [&](const format::TensorEntry& t) {
    return std::none_of(kept.begin(), kept.end(), [&](const std::regex& r) { return std::regex_match(t.name, r); });
  };
  int64_t quantised = 0;
  for (const format::TensorEntry& t : tensors)
    if (is_layer_matrix(t) && chosen(t)) tally.all += t.elements();
  const auto before = [&] {
    int64_t n = 0;
    for (const format::TensorEntry& t : tensors)
      if (is_layer_matrix(t) && chosen(t) && matrices.progress->whole(t.name)) n += t.elements();
    return n;
  };
  QuantizedType matrix_type{o.type, 0, 0, 0}, rest{"floats", 0, 0, 0};
  format::HfMatrixLayout layout;
  if (type.kind == FolderType::kGptq) {
    layout = format::gptq_layout({type.bits, matrices.group, matrices.symmetric, matrices.activation_order}, chosen, watched(matrices.grouped, o, tally, before));
  } else if (type.kind == FolderType::kAwq) {
    layout = format::awq_layout(matrices.group, chosen, watched(matrices.grouped, o, tally, before));
  } else if (type.kind == FolderType::kFp8) {
    layout = format::fp8_layout(type.scales, chosen, watched(matrices.fp8, o, tally, before), matrices.method != "rtn");
  }
  format::HfWriteOptions w;
  w.fingerprint = matrices.fingerprint;
  w.progress = matrices.progress.get();
  w.dtype = type.dtype;
  w.convert_floats = type.kind == FolderType::kFloats;
  if (type.kind != FolderType::kFloats) {
    w.layout = &layout;
    layout.outputs = [inner = layout.outputs, &matrix_type, &quantised](const format::TensorEntry& t, const std::string& module, const std::function<int64_t(int64_t)>& rows) {
      std::vector<format::StOutput> out = inner(t, module, rows);
      for (const format::StOutput& part : out) matrix_type.bytes += int64_t(part.bytes());
      if (!out.empty()) ++matrix_type.tensors, matrix_type.parameters += t.elements(), quantised += t.elements();
      return out;
    };
  }
  SLUICE_TRY(format::write_hf_folder(o.output, file.metadata(), tensors, w));
  QuantizeReport r;
  r.method = matrices.method;
  r.in_bytes = file.file_bytes();
  int64_t elements = 0;
  for (const format::TensorEntry& t : tensors) ++rest.tensors, elements += t.elements();
  rest.tensors -= matrix_type.tensors;
  rest.parameters = elements - quantised;
  uint64_t weight_bytes = 0;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(o.output, ec)) {
    r.out_bytes += entry.file_size(ec);
    if (entry.path().extension() == ".safetensors") weight_bytes += entry.file_size(ec);
  }
  rest.bytes = int64_t(weight_bytes) - matrix_type.bytes;
  r.bits_per_weight = elements > 0 ? 8.0 * double(weight_bytes) / double(elements) : 0;
  r.types = matrix_type.tensors > 0 ? std::vector<QuantizedType>{matrix_type, rest} : std::vector<QuantizedType>{rest};
  r.relative_error = tally.square > 0 ? std::sqrt(tally.error / tally.square) : 0;
  r.seconds = tally.seconds();
  r.resumed = matrices.progress->resumed;
  return r;
}

Result<QuantizeReport> quantize_folder(const QuantizeOptions& o, const FolderType& type) {
  if (o.output.ends_with(".gguf")) return invalid("'" + o.type + "' is a type of folders of safetensors, and '" + o.output + "' names a .gguf file", "OUT");
  const char* const calibrated = type.kind == FolderType::kAwq ? "awq" : type.kind == FolderType::kFloats ? nullptr : "gptq";
  const std::string method = !o.method.empty() ? o.method : o.calibrate.empty() || !calibrated ? "rtn" : calibrated;
  if (method != "rtn" && (!calibrated || method != calibrated))
    return invalid("'" + method + "' does not make " + o.type + " (rtn" + (calibrated ? std::string(" and ") + calibrated + " do)" : " does)"), "--method");
  if (method != "rtn" && o.calibrate.empty()) return invalid("'" + method + "' needs a calibration text (--calibrate FILE)", "--method");
  if (method == "rtn" && !o.calibrate.empty()) return invalid("rtn takes no calibration text", "--calibrate");
  if (o.window < 16 || o.window > 8192) return invalid(std::to_string(o.window) + " is outside 16..8192", "--window");
  SLUICE_ASSIGN(const auto file, format::open_model(resolve_model(o.input)));
  for (const format::TensorEntry& t : file->tensors())
    if (type.kind != FolderType::kFloats && !o.requantize && is_layer_matrix(t) && t.weight_format && 8 * t.weight_format->block_bytes < 16 * t.weight_format->block_elements)
      return invalid(o.input + " is quantised already (" + t.name + " is " + t.weight_format->name +
                     "): rounding again adds to the error of before. Take the original, or pass --requantize", "IN");
  const int threads = o.threads > 0 ? o.threads : default_threads();
  const int group = format::common_group(file->tensors(), kGroup, [](const format::TensorEntry&) { return true; });
  if (group == 0 && (type.kind == FolderType::kGptq || type.kind == FolderType::kAwq))
    return Error{ErrorCode::kUnsupported, o.input + ": rows of its matrices are no multiples of 32 elements", {}};
  if (method == "rtn") return write_folder(o, type, *file, file->tensors(), rounded_matrices(type, std::max(group, 32), threads, folder_fingerprint(o, *file, method, group, {})));
  SLUICE_ASSIGN(const auto calibration, FolderCalibration::make(o, type, file, group));
  const std::vector<format::TensorEntry> tensors = FolderCalibration::tensors(calibration);
  SLUICE_ASSIGN(QuantizeReport r, write_folder(o, type, *file, tensors, FolderCalibration::matrices(calibration)));
  calibration->finish();
  r.calibration_tokens = calibration->num_tokens();
  r.calibration_seconds = calibration->seconds();
  return r;
}

}  // namespace sluice::lab
