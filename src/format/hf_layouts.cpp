#include "format/hf_layouts.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/half.h"
#include "format/packings/awq_order.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

using RowMap = std::function<int64_t(int64_t)>;

constexpr int kFp8Block = 128;

// A matrix that is computed for the first of its tensors and kept for the others.
template <class Matrix>
class Once {
 public:
  Once(const TensorEntry& t, std::function<Result<Matrix>(const TensorEntry&)> source, std::function<std::string(const Matrix&)> check)
      : tensor_(t), source_(std::move(source)), check_(std::move(check)) {}
  // last: nobody asks after this.
  Result<std::shared_ptr<const Matrix>> get(bool last) {
    if (!matrix_) {
      SLUICE_ASSIGN(Matrix made, source_(tensor_));
      std::string wrong = quant::fault(made);
      if (wrong.empty() && (made.rows != tensor_.rows() || made.cols != tensor_.cols())) wrong = "rows and cols are not the tensor's";
      if (wrong.empty()) wrong = check_(made);
      if (!wrong.empty()) return Error{ErrorCode::kInternal, shown(tensor_.name) + ": " + wrong, {}};
      matrix_ = std::make_shared<const Matrix>(std::move(made));
    }
    std::shared_ptr<const Matrix> out = matrix_;
    if (last) matrix_.reset();
    return out;
  }

 private:
  const TensorEntry& tensor_;
  std::function<Result<Matrix>(const TensorEntry&)> source_;
  std::function<std::string(const Matrix&)> check_;
  std::shared_ptr<const Matrix> matrix_;
};

// An output that turns the matrix into its bytes.
template <class Matrix, class Make>
StOutput part(const std::string& name, StDtype dtype, std::vector<int64_t> shape, const std::shared_ptr<Once<Matrix>>& matrix, bool last, Make make) {
  return {name, dtype, std::move(shape), [matrix, last, make](const StSink& sink) -> Status {
    SLUICE_ASSIGN(const auto m, matrix->get(last));
    const auto values = make(*m);
    sink({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof values[0]});
    return {};
  }};
}

// Adds element i's bits to a stream whose words lie `stride` apart.
void put_packed(uint32_t* words, int64_t stride, int bits, int64_t i, uint32_t value) {
  const int64_t bit = i * bits;
  const int shift = int(bit % 32);
  words[bit / 32 * stride] |= value << shift;
  if (shift + bits > 32) words[(bit / 32 + 1) * stride] |= value >> (32 - shift);
}

// [groups, rows], from [rows, groups].
std::vector<uint16_t> turned_scales(const quant::GroupedMatrix& m, const RowMap& rows) {
  std::vector<uint16_t> out(m.scales.size());
  for (int64_t n = 0; n < m.rows; ++n)
    for (int64_t g = 0; g < m.groups(); ++g) out[size_t(g * m.rows + n)] = float_to_half(m.scales[size_t(rows(n) * m.groups() + g)]);
  return out;
}

std::string check_grouped(const quant::GroupedMatrix& m, int bits, int group) {
  if (m.bits != bits) return "bits: " + std::to_string(m.bits) + ", and the layout has " + std::to_string(bits);
  if (m.group != group) return "group: " + std::to_string(m.group) + ", and the layout has " + std::to_string(group);
  return {};
}

std::vector<StOutput> gptq_outputs(const GptqLayout& l, const TensorEntry& t, const std::string& module, const RowMap& rows, const GroupedSource& source) {
  const int64_t n = t.rows(), k = t.cols(), groups = k / l.group;
  auto matrix = std::make_shared<Once<quant::GroupedMatrix>>(t, source, [l](const quant::GroupedMatrix& m) {
    std::string wrong = check_grouped(m, l.bits, l.group);
    if (wrong.empty() && l.symmetric && std::any_of(m.zeros.begin(), m.zeros.end(), [&](uint8_t z) { return z != 1 << (l.bits - 1); }))
      wrong = "zeros: not the middle, and the layout is symmetric";
    if (wrong.empty() && !l.activation_order && !m.group_of.empty()) wrong = "group_of: there, and the layout has no activation order";
    return wrong;
  });
  std::vector<StOutput> out;
  out.push_back(part(module + ".g_idx", StDtype::kI32, {k}, matrix, false, [](const quant::GroupedMatrix& m) {
    std::vector<int32_t> list = m.group_of;
    for (int i = int(list.size()); i < m.cols; ++i) list.push_back(i / m.group);
    return list;
  }));
  out.push_back(part(module + ".qweight", StDtype::kI32, {k * l.bits / 32, n}, matrix, false, [rows](const quant::GroupedMatrix& m) {
    std::vector<uint32_t> words(size_t(m.rows) * size_t(m.cols) / 32 * size_t(m.bits));
    for (int64_t i = 0; i < m.rows; ++i) {
      const uint8_t* codes = m.codes.data() + rows(i) * m.cols;
      for (int64_t j = 0; j < m.cols; ++j) put_packed(words.data() + i, m.rows, m.bits, j, codes[j]);
    }
    return words;
  }));
  out.push_back(part(module + ".qzeros", StDtype::kI32, {groups, n * l.bits / 32}, matrix, false, [rows, less = l.symmetric ? 1u : 0u](const quant::GroupedMatrix& m) {
    const int64_t row_words = int64_t(m.rows) * m.bits / 32;
    std::vector<uint32_t> words(size_t(row_words * m.groups()));
    for (int64_t g = 0; g < m.groups(); ++g)
      for (int64_t i = 0; i < m.rows; ++i) put_packed(words.data() + g * row_words, 1, m.bits, i, m.zeros[size_t(rows(i) * m.groups() + g)] - less);
    return words;
  }));
  out.push_back(part(module + ".scales", StDtype::kF16, {groups, n}, matrix, true, [rows](const quant::GroupedMatrix& m) { return turned_scales(m, rows); }));
  return out;
}

std::vector<StOutput> awq_outputs(int group, const TensorEntry& t, const std::string& module, const RowMap& rows, const GroupedSource& source) {
  const int64_t n = t.rows(), k = t.cols(), groups = k / group;
  auto matrix = std::make_shared<Once<quant::GroupedMatrix>>(t, source, [group](const quant::GroupedMatrix& m) {
    return m.group_of.empty() ? check_grouped(m, 4, group) : std::string("group_of: AWQ has no activation order");
  });
  // [count, rows / 8] of what [rows, count] holds.
  const auto words = [rows](int64_t num_rows, int64_t count, const std::vector<uint8_t>& values) {
    std::vector<uint32_t> out(size_t(num_rows / 8 * count));
    for (int64_t i = 0; i < num_rows; ++i)
      for (int64_t j = 0; j < count; ++j) out[size_t(j * (num_rows / 8) + i / 8)] |= uint32_t(values[size_t(rows(i) * count + j)]) << (4 * kAwqPlace[i % 8]);
    return out;
  };
  std::vector<StOutput> out;
  out.push_back(part(module + ".qweight", StDtype::kI32, {k, n / 8}, matrix, false, [words](const quant::GroupedMatrix& m) { return words(m.rows, m.cols, m.codes); }));
  out.push_back(part(module + ".qzeros", StDtype::kI32, {groups, n / 8}, matrix, false, [words](const quant::GroupedMatrix& m) { return words(m.rows, m.groups(), m.zeros); }));
  out.push_back(part(module + ".scales", StDtype::kF16, {groups, n}, matrix, true, [rows](const quant::GroupedMatrix& m) { return turned_scales(m, rows); }));
  return out;
}

std::vector<StOutput> fp8_outputs(Fp8Scales scales, const TensorEntry& t, const std::string& module, const RowMap& rows, const Fp8Source& source) {
  const int64_t n = t.rows(), k = t.cols();
  const bool grid = scales == Fp8Scales::kBlock;
  const Fp8Block block = fp8_block(scales, int(n), int(k));
  auto matrix = std::make_shared<Once<quant::Fp8Matrix>>(t, source, [=](const quant::Fp8Matrix& m) {
    return m.block_rows == block.rows && m.block_cols == block.cols ? std::string() : std::string("blocks: not those of the layout");
  });
  const std::vector<int64_t> shape = grid ? std::vector<int64_t>{(n + kFp8Block - 1) / kFp8Block, (k + kFp8Block - 1) / kFp8Block} : scales == Fp8Scales::kChannel ? std::vector<int64_t>{n, 1} : std::vector<int64_t>{1};
  // The scales first. Rows stay within their blocks, or blocks were asked for in that order: see fp8_layout.
  std::vector<StOutput> out;
  out.push_back(part(module + (grid ? ".weight_scale_inv" : ".weight_scale"), StDtype::kF32, shape, matrix, false, [rows, scales](const quant::Fp8Matrix& m) {
    if (scales != Fp8Scales::kChannel) return m.scales;
    std::vector<float> turned(m.scales.size());
    for (size_t i = 0; i < turned.size(); ++i) turned[i] = m.scales[size_t(rows(int64_t(i)))];
    return turned;
  }));
  out.push_back(part(module + ".weight", StDtype::kF8E4M3, {n, k}, matrix, true, [rows](const quant::Fp8Matrix& m) {
    std::vector<uint8_t> codes(m.codes.size());
    for (int64_t i = 0; i < m.rows; ++i) std::memcpy(codes.data() + i * m.cols, m.codes.data() + rows(i) * m.cols, size_t(m.cols));
    return codes;
  }));
  return out;
}

Json fp8_config(Fp8Scales scales) {
  if (scales == Fp8Scales::kBlock) return {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {kFp8Block, kFp8Block}}};
  const Json weights{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", scales == Fp8Scales::kChannel ? "channel" : "tensor"}, {"dynamic", false}};
  const Json inputs{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
  return {{"quant_method", "compressed-tensors"}, {"format", "float-quantized"}, {"quantization_status", "compressed"}, {"ignore", {"lm_head"}},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", inputs}, {"output_activations", nullptr}}}}}};
}

// A matrix with its rows where the file has them: blocks of rows share scales, so they are formed after the rows have moved.
TensorEntry moved_rows(const TensorEntry& t, const RowMap& rows) {
  TensorEntry out = t;
  out.bytes = {};
  out.made_from_bytes = t.file_bytes();
  const size_t row = quant::row_bytes(*t.weight_format, size_t(t.cols()));
  out.make_rows = [&t, rows, row](int64_t begin, int64_t end, uint8_t* to) {
    for (int64_t i = begin; i < end; ++i) read_rows(t, rows(i), rows(i) + 1, to + size_t(i - begin) * row);
  };
  return out;
}

bool stay_in_blocks(const RowMap& rows, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (rows(i) / kFp8Block != i / kFp8Block) return false;
  return true;
}

}  // namespace

int common_group(std::span<const TensorEntry> tensors, int wanted, const TensorChoice& chosen) {
  for (const int group : {wanted, 64, 32}) {
    if (group > wanted) continue;
    const auto divides = [&](const TensorEntry& t) { return t.dims.size() != 2 || !t.name.starts_with("blk.") || !chosen(t) || t.cols() % group == 0; };
    if (group > 0 && std::all_of(tensors.begin(), tensors.end(), divides)) return group;
  }
  return 0;
}

HfMatrixLayout gptq_layout(const GptqLayout& l, TensorChoice chosen, GroupedSource source) {
  HfMatrixLayout out;
  out.quantization_config = {{"quant_method", "gptq"}, {"bits", l.bits}, {"group_size", l.group}, {"desc_act", l.activation_order}, {"sym", l.symmetric},
                             {"lm_head", false}, {"true_sequential", true}, {"pack_dtype", "int32"}, {"checkpoint_format", l.symmetric ? "gptq" : "gptq_v2"},
                             {"damp_percent", 0.01}, {"static_groups", false}, {"meta", {{"quantizer", {"sluice:1.0"}}}}};
  out.outputs = [l, chosen, source](const TensorEntry& t, const std::string& module, const RowMap& rows) {
    const bool holds = t.cols() % l.group == 0 && t.cols() % 32 == 0 && t.rows() % 32 == 0;
    return holds && chosen(t) ? gptq_outputs(l, t, module, rows, source) : std::vector<StOutput>();
  };
  return out;
}

HfMatrixLayout awq_layout(int group, TensorChoice chosen, GroupedSource source) {
  HfMatrixLayout out;
  out.quantization_config = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"zero_point", true}, {"version", "gemm"}, {"modules_to_not_convert", nullptr}};
  out.outputs = [group, chosen, source](const TensorEntry& t, const std::string& module, const RowMap& rows) {
    const bool holds = t.cols() % group == 0 && t.rows() % 8 == 0;
    return holds && chosen(t) ? awq_outputs(group, t, module, rows, source) : std::vector<StOutput>();
  };
  return out;
}

Fp8Block fp8_block(Fp8Scales scales, int rows, int cols) {
  if (scales == Fp8Scales::kBlock) return {kFp8Block, kFp8Block};
  return {scales == Fp8Scales::kChannel ? 1 : rows, cols};
}

HfMatrixLayout fp8_layout(Fp8Scales scales, TensorChoice chosen, Fp8Source source, bool model_order) {
  HfMatrixLayout out;
  out.quantization_config = fp8_config(scales);
  out.outputs = [scales, chosen, source, model_order](const TensorEntry& t, const std::string& module, const RowMap& rows) {
    if (t.cols() % 32 != 0 || !chosen(t)) return std::vector<StOutput>();
    if (scales != Fp8Scales::kBlock || stay_in_blocks(rows, t.rows())) return fp8_outputs(scales, t, module, rows, source);
    const Fp8Source moved = [source, rows, model_order](const TensorEntry& tensor) -> Result<quant::Fp8Matrix> {
      if (model_order) return Error{ErrorCode::kUnsupported, tensor.name + ": its rows in the file's order mix blocks of 128, which were made in the model's; take rtn, or scales a row", {}};
      return source(moved_rows(tensor, rows));
    };
    return fp8_outputs(scales, t, module, [](int64_t i) { return i; }, moved);
  };
  return out;
}

}  // namespace sluice::format
