#include "lab/quantize_plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>

#include "format/part_file.h"
#include "lab/loaded_model.h"
#include "model/vocab.h"
#include "quant/mixes.h"

namespace sluice::lab {
namespace {

struct Keep {
  std::regex names;
  const quant::WeightFormat* format;
  std::string text;
};

const quant::WeightFormat* format_named(const std::string& name) {
  for (const quant::WeightFormat* f : quant::formats_table())
    if (name == f->name) return f;
  return nullptr;
}

Result<std::vector<Keep>> parse_keeps(const std::vector<std::string>& texts) {
  std::vector<Keep> keeps;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0) return invalid("'" + text + "' is not REGEX=TYPE", "--keep");
    Keep k;
    k.text = text;
    k.format = format_named(text.substr(equals + 1));
    if (!k.format || is_own_type(uint32_t(k.format->type))) return invalid("'" + text.substr(equals + 1) + "' is no weight type (such as q8_0, q6_k, f16)", "--keep");
    try {
      k.names = std::regex(text.substr(0, equals));
    } catch (const std::regex_error&) {
      return invalid("'" + text.substr(0, equals) + "' is no regular expression", "--keep");
    }
    keeps.push_back(std::move(k));
  }
  return keeps;
}

// Matrices that hold rounded weights already.
int quantised_tensors(const format::WeightFile& file, std::string& example) {
  int n = 0;
  for (const format::TensorEntry& t : file.tensors())
    if (t.dims.size() >= 2 && t.weight_format && 8 * t.weight_format->block_bytes < 16 * t.weight_format->block_elements && n++ == 0) example = t.weight_format->name;
  return n;
}

Result<quant::MixedModel> describe_model(const format::WeightFile& file, bool calibrated) {
  SLUICE_ASSIGN(const model::ModelSpec spec, model::read_spec(file.metadata()));
  quant::MixedModel m;
  m.num_layers = spec.num_layers;
  m.heads_per_kv = spec.q_heads / spec.kv_heads;
  m.has_output = file.find("output.weight") != nullptr;
  m.calibrated = calibrated;
  return m;
}

Result<std::string> choose_method(const QuantizeOptions& o) {
  const std::string method = !o.method.empty() ? o.method : o.calibrate.empty() ? "rtn" : "imatrix";
  if (method != "rtn" && method != "imatrix" && method != "gptq") return invalid("'" + method + "' is none of rtn, imatrix and gptq", "--method");
  if (method != "rtn" && o.calibrate.empty()) return invalid("'" + method + "' needs a calibration text (--calibrate FILE)", "--method");
  if (method == "rtn" && !o.calibrate.empty()) return invalid("rtn takes no calibration text", "--calibrate");
  return method;
}

// Of each tensor: its own where neither the mix nor a --keep says another.
Result<std::vector<const quant::WeightFormat*>> choose_formats(const format::WeightFile& file, const quant::Mix& mix, const quant::MixedModel& described, const std::vector<Keep>& keeps) {
  std::vector<const quant::WeightFormat*> formats;
  std::vector<quant::MixedTensor> mixed;
  std::vector<size_t> places;  // of mixed in formats
  for (const format::TensorEntry& in : file.tensors()) {
    if (!in.weight_format) return Error{ErrorCode::kUnsupported, in.name + ": weight type " + std::to_string(in.type_id) + " is not supported", {}};
    formats.push_back(in.weight_format);
    const auto keep = std::find_if(keeps.begin(), keeps.end(), [&](const Keep& k) { return std::regex_match(in.name, k.names); });
    if (keep != keeps.end()) {
      if (in.cols() % keep->format->block_elements != 0)
        return invalid("'" + keep->text + "': rows of " + in.name + " have " + std::to_string(in.cols()) + " elements, no multiple of " + keep->format->name + "'s block", "--keep");
      formats.back() = keep->format;
    } else if (const auto type = quant::mixed_type(mix, described, in.name, int(in.dims.size()), in.cols())) {
      mixed.push_back({in.name, in.rows(), in.cols(), *type});
      places.push_back(formats.size() - 1);
    }
  }
  quant::spend_spare(mix, described, mixed);
  for (size_t i = 0; i < mixed.size(); ++i) formats[places[i]] = quant::find_format(mixed[i].type);
  return formats;
}

format::Metadata output_metadata(const format::Metadata& in, const quant::Mix& mix, const QuantizeOptions& o, const QuantizePlan& plan, size_t tokens) {
  format::Metadata m;
  m.insert("general.file_type", int64_t{mix.file_type});
  m.insert("general.quantization_version", int64_t{2});
  if (tokens > 0) {
    int64_t matrices = 0;
    for (size_t i = 0; i < plan.tensors.size(); ++i) matrices += !plan.copied[i];
    m.insert("quantize.imatrix.file", std::string("sluice"));
    m.insert("quantize.imatrix.dataset", std::filesystem::path(o.calibrate).filename().string());
    m.insert("quantize.imatrix.entries_count", matrices);
    m.insert("quantize.imatrix.chunks_count", int64_t(tokens) / o.window);
  }
  for (const auto& [key, value] : in.all())  // what stands there already stays, and the writer's alignment is 32
    if (key != "general.alignment" && !key.starts_with("quantize.imatrix.")) m.insert(key, value);
  return m;
}

}  // namespace

Result<QuantizePlan> plan_quantization(const QuantizeOptions& o) {
  QuantizePlan p;
  const quant::Mix* mix = quant::find_mix(o.type);
  if (!mix) return invalid("'" + o.type + "' is no type (" + quant::mix_names() + " are)", "--type");
  SLUICE_ASSIGN(p.method, choose_method(o));
  if (o.window < 16 || o.window > 8192) return invalid(std::to_string(o.window) + " is outside 16..8192", "--window");
  if (o.threads < 0 || o.threads > 256) return invalid(std::to_string(o.threads) + " is outside 0..256", "--threads");
  SLUICE_ASSIGN(const std::vector<Keep> keeps, parse_keeps(o.keep));
  SLUICE_ASSIGN(p.file, format::open_model(resolve_model(o.input)));
  SLUICE_ASSIGN(const quant::MixedModel described, describe_model(*p.file, p.method != "rtn"));
  std::string example;
  const int rounded = quantised_tensors(*p.file, example);
  if (rounded > 0 && !o.requantize)
    return invalid(std::to_string(rounded) + " matrices of it are quantised already (" + example + ", ...): their rounding stays in and this one comes on top, "
                   "so take the original; --requantize does it all the same", "IN");
  SLUICE_ASSIGN(const auto formats, choose_formats(*p.file, *mix, described, keeps));
  for (const format::TensorEntry& in : p.file->tensors()) {
    const quant::WeightFormat* to = formats[p.tensors.size()];
    format::TensorEntry t = in;
    t.bytes = {};
    t.make_rows = nullptr;
    t.input_order = nullptr;
    t.weight_format = to;
    t.type_id = uint32_t(to->type);
    p.copied.push_back(to == in.weight_format && !in.input_order);
    if (!p.copied.back()) p.weights += t.elements();
    p.tensors.push_back(std::move(t));
  }
  SLUICE_ASSIGN(const std::vector<int32_t> tokens, calibration_tokens(o, *p.file));
  p.metadata = output_metadata(p.file->metadata(), *mix, o, p, tokens.size());
  p.layout = format::gguf_layout(p.metadata, p.tensors);
  return p;
}

Result<std::vector<int32_t>> calibration_tokens(const QuantizeOptions& o, const format::WeightFile& file) {
  std::vector<int32_t> tokens;
  if (o.calibrate.empty()) return tokens;
  if (o.max_tokens < 0) return invalid(std::to_string(o.max_tokens) + " is negative", "--max-tokens");
  std::ifstream in(o.calibrate, std::ios::binary);
  if (!in) return Error{ErrorCode::kNotFound, o.calibrate + ": cannot be read", "--calibrate"};
  std::stringstream text;
  text << in.rdbuf();
  SLUICE_ASSIGN(const auto tokenizer, model::build_tokenizer(file.metadata()));
  tokens = tokenizer->encode(text.str(), {.parse_special = false, .add_bos = true});
  if (o.max_tokens > 0 && tokens.size() > size_t(o.max_tokens)) tokens.resize(size_t(o.max_tokens));
  tokens.resize(tokens.size() / size_t(o.window) * size_t(o.window));
  if (tokens.empty()) return invalid("the text has fewer tokens than one window of " + std::to_string(o.window), "--calibrate");
  if (tokenizer->add_bos() && tokenizer->bos() >= 0)
    for (size_t t = 0; t < tokens.size(); t += size_t(o.window)) tokens[t] = tokenizer->bos();
  return tokens;
}

uint64_t input_fingerprint(const QuantizeOptions& o, const format::WeightFile& file) {
  constexpr uint64_t kVersion = 2;  // of the arithmetic: another gives other bytes
  std::error_code ec;
  const std::string path = resolve_model(o.input);
  const uint64_t numbers[] = {kVersion, file.file_bytes(), uint64_t(std::filesystem::last_write_time(path, ec).time_since_epoch().count()), uint64_t(o.window)};
  const std::string absolute = std::filesystem::absolute(path, ec).string();
  return format::hash_bytes(absolute.data(), absolute.size(), format::hash_bytes(numbers, sizeof numbers));
}

uint64_t fingerprint_of(const QuantizeOptions& o, const QuantizePlan& plan, const std::vector<int32_t>& tokens) {
  const std::string method = plan.method + "\n" + o.isa;
  uint64_t h = format::hash_bytes(method.data(), method.size(), input_fingerprint(o, *plan.file));
  h = format::hash_bytes(plan.layout.head.data(), plan.layout.head.size(), h);
  return format::hash_bytes(tokens.data(), tokens.size() * sizeof(int32_t), h);
}

}  // namespace sluice::lab
