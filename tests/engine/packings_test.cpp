// Quantised folders: what the layouts of GPTQ, AWQ and FP8 are written with comes back to the bit, and runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/fp8.h"
#include "base/half.h"
#include "format/hf_layouts.h"
#include "format/hf_packing.h"
#include "tests/engine/complete.h"
#include "tests/engine/tiny_model.h"

namespace sluice::testing {
namespace {

using format::TensorEntry;

class Folder {
 public:
  explicit Folder(const std::string& name) : path_("/tmp/sluice_packed_" + std::to_string(::getpid()) + "_" + name) {}
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<float> floats(const TensorEntry& t) {
  std::vector<float> w(size_t(t.elements()));
  format::decode_rows(t, 0, t.rows(), w.data());
  return w;
}

// Codes for groups that any columns may belong to, of random scales and zeros: a layout must not care.
quant::GroupedMatrix random_groups(const TensorEntry& t, int bits, int group, bool symmetric, bool ordered) {
  Rng rng(std::hash<std::string>()(t.name));
  quant::GroupedMatrix m{int(t.rows()), int(t.cols()), bits, group, {}, {}, {}, {}};
  m.codes.resize(size_t(t.elements()));
  for (uint8_t& c : m.codes) c = uint8_t(rng.below(1u << bits));
  m.scales.resize(size_t(m.rows * m.groups()));
  m.zeros.resize(m.scales.size());
  for (float& s : m.scales) s = half_to_float(float_to_half((0.5f + rng.uniform()) * 0.2f / float(1 << bits)));
  for (uint8_t& z : m.zeros) z = symmetric ? uint8_t(1 << (bits - 1)) : uint8_t(rng.below(1u << bits));
  if (ordered) {
    for (int k = 0; k < m.cols; ++k) m.group_of.push_back(k / group);
    for (int k = m.cols - 1; k > 0; --k) std::swap(m.group_of[size_t(k)], m.group_of[rng.below(uint32_t(k + 1))]);
  }
  return m;
}

TinyShape shape_of(const char* architecture = "llama") {
  TinyShape s;
  s.architecture = architecture;
  s.quantised = false;
  s.dim = 128;
  s.ffn = 256;
  return s;
}

using Rows = std::function<std::vector<float>(const TensorEntry&)>;

// Writes the model in a layout, reads it back, holds every matrix against `wanted`, and every run against one of the same weights as floats.
void check(const std::string& name, const char* architecture, const format::HfMatrixLayout& layout, const Rows& wanted, double cpu_error) {
  SCOPED_TRACE(name);
  const TinyModel gguf(shape_of(architecture), 11);
  const Folder packed(name), plain(name + "_plain");
  const auto source = *format::open_model(gguf.path());
  format::HfWriteOptions options;
  options.layout = &layout;
  const Status s = format::write_hf_folder(packed.path(), source->metadata(), source->tensors(), options);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const auto opened = format::open_model(packed.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  int quantised = 0;
  std::vector<TensorEntry> dequantised;
  std::vector<std::vector<float>> memory;
  for (const TensorEntry& t : (*opened)->tensors()) {
    TensorEntry flat = t;
    if (is_own_type(t.type_id)) {
      ++quantised;
      const std::vector<float>& w = memory.emplace_back(floats(t));
      EXPECT_EQ(w, wanted(*source->find(t.name))) << t.name;
      // Rows one by one are the rows of the whole.
      std::vector<float> row(size_t(t.cols()));
      format::decode_rows(t, t.rows() - 1, t.rows(), row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), w.end() - t.cols()));
      flat = *source->find(t.name);
      flat.bytes = {reinterpret_cast<const uint8_t*>(w.data()), w.size() * 4};
    }
    dequantised.push_back(flat);
  }
  EXPECT_EQ(quantised, 2 * 7);
  ASSERT_TRUE(format::write_hf_folder(plain.path(), source->metadata(), dequantised, {}).ok());
  const lab::Completion want = complete(plain.path(), "reference"), ref = complete(packed.path(), "reference"), cpu = complete(packed.path(), "");
  ASSERT_EQ(want.nll.size(), ref.nll.size());
  // Columns in an order of their own are summed in it; all others are the same floats in the same order.
  const bool ordered = std::any_of((*opened)->tensors().begin(), (*opened)->tensors().end(), [](const TensorEntry& t) { return t.input_order != nullptr; });
  if (!ordered) {
    EXPECT_EQ(want.nll, ref.nll);
  }
  for (size_t i = 0; i < want.nll.size(); ++i) {
    EXPECT_NEAR(want.nll[i], ref.nll[i], 1e-3);
    EXPECT_NEAR(want.nll[i], cpu.nll[i], cpu_error);
  }
}

TEST(Packings, GptqOfEveryWidthComesBackAndRuns) {
  for (int bits = 2; bits <= 8; ++bits)
    for (const bool symmetric : {true, false}) {
      const bool ordered = bits % 2 == 0;
      const int group = bits % 3 == 0 ? 32 : 64;
      const auto make = [=](const TensorEntry& t) { return random_groups(t, bits, group, symmetric, ordered); };
      format::GptqLayout l{bits, group, symmetric, ordered};
      check("gptq" + std::to_string(bits) + (symmetric ? "s" : "a"), bits == 4 ? "gemma3" : "llama",
            format::gptq_layout(l, [](const TensorEntry&) { return true; }, make), [&](const TensorEntry& t) {
              const quant::GroupedMatrix m = make(t);
              std::vector<float> w(size_t(t.elements()));
              for (int n = 0; n < m.rows; ++n) quant::decode_row(m, n, w.data() + size_t(n) * size_t(m.cols));
              return w;
            }, 0.3);
    }
}

TEST(Packings, AwqComesBackAndRuns) {
  for (const char* architecture : {"llama", "qwen2"}) {
    const auto make = [](const TensorEntry& t) { return random_groups(t, 4, 128, false, false); };
    check(std::string("awq_") + architecture, architecture, format::awq_layout(128, [](const TensorEntry&) { return true; }, make), [&](const TensorEntry& t) {
      const quant::GroupedMatrix m = make(t);
      std::vector<float> w(size_t(t.elements()));
      for (int n = 0; n < m.rows; ++n) quant::decode_row(m, n, w.data() + size_t(n) * size_t(m.cols));
      return w;
    }, 0.3);
  }
}

TEST(Packings, Fp8OfEveryScaleComesBackAndRuns) {
  for (const format::Fp8Scales scales : {format::Fp8Scales::kTensor, format::Fp8Scales::kChannel, format::Fp8Scales::kBlock}) {
    const auto make = [scales](const TensorEntry& t) {
      const std::vector<float> w = floats(t);
      const int n = int(t.rows()), k = int(t.cols());
      const bool grid = scales == format::Fp8Scales::kBlock;
      return quant::round_fp8(w.data(), n, k, grid ? 128 : scales == format::Fp8Scales::kChannel ? 1 : n, grid ? 128 : k);
    };
    // qwen2's rows stay where they are, so blocks are of the rows that `make` sees.
    check("fp8_" + std::to_string(int(scales)), "qwen2", format::fp8_layout(scales, [](const TensorEntry&) { return true; }, make), [&](const TensorEntry& t) {
      const quant::Fp8Matrix m = make(t);
      std::vector<float> w(size_t(t.elements()));
      for (int n = 0; n < m.rows; ++n) quant::decode_row(m, n, w.data() + size_t(n) * size_t(m.cols));
      return w;
    }, 1e-3);
  }
}

// Blocks of rows are formed in the file's order of rows, which for llama's q and k is another than ours. Heads of 32 only move rows within
// blocks of 128; heads of 96 move some across, and who made blocks of our order is refused there.
TEST(Packings, Fp8BlocksFollowTheRowsOfTheFile) {
  for (const int head_dim : {32, 96}) {
    TinyShape shape = shape_of();
    shape.head_dim = head_dim;
    const TinyModel gguf(shape, uint64_t(12 + head_dim));
    const auto source = *format::open_model(gguf.path());
    for (const bool model_order : {false, true}) {
      const Folder folder("fp8_rows" + std::to_string(head_dim) + (model_order ? "m" : "f"));
      const auto layout = format::fp8_layout(format::Fp8Scales::kBlock, [](const TensorEntry&) { return true; }, [](const TensorEntry& t) -> Result<quant::Fp8Matrix> {
        const std::vector<float> w = floats(t);
        return quant::round_fp8(w.data(), int(t.rows()), int(t.cols()), 128, 128);
      }, model_order);
      format::HfWriteOptions options;
      options.layout = &layout;
      const Status written = format::write_hf_folder(folder.path(), source->metadata(), source->tensors(), options);
      ASSERT_EQ(written.ok(), head_dim == 32 || !model_order) << written.error().message;
      if (!written.ok()) continue;
      const auto back = *format::open_model(folder.path());
      for (const char* name : {"blk.0.attn_q.weight", "blk.1.attn_k.weight", "blk.0.ffn_up.weight"}) {
        const std::vector<float> want = floats(*source->find(name)), got = floats(*back->find(name));
        for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], std::abs(want[i]) / 15 + 1e-3) << name << " " << i;
      }
    }
  }
}

// A file made by hand, word by word, from the public description of the layouts.
struct ByHand {
  format::HfShards shards;
  std::vector<std::vector<uint8_t>> memory;
  std::set<std::string> used;
  template <class T>
  void add(const std::string& name, format::StDtype dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    std::vector<uint8_t>& bytes = memory.emplace_back(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    shards.tensors[name] = {name, dtype, std::move(shape), bytes};
  }
  Result<std::optional<TensorEntry>> read(const format::Json& config, const std::string& module = "m") {
    for (const format::HfPacking* p : format::packings_table())
      if (p->reads(config)) return p->read(config, {shards, module, used});
    return bad_file("no packing");
  }
};

TEST(Packings, GptqWordsByHand) {
  // 32 inputs, 8 outputs, one group of 32. Input k of output n is (k + n) % 16; zeros are n in the second version of the format.
  ByHand f;
  std::vector<uint32_t> codes(4 * 8), zeros(1, 0);
  for (uint32_t k = 0; k < 32; ++k)
    for (uint32_t n = 0; n < 8; ++n) codes[k / 8 * 8 + n] |= ((k + n) % 16) << (k % 8 * 4);
  for (uint32_t n = 0; n < 8; ++n) zeros[0] |= n << (4 * n);
  f.add("m.qweight", format::StDtype::kI32, {4, 8}, codes);
  f.add("m.qzeros", format::StDtype::kI32, {1, 1}, zeros);
  f.add("m.scales", format::StDtype::kF16, {1, 8}, std::vector<uint16_t>(8, float_to_half(0.5f)));
  const auto check_values = [&](const format::Json& config, uint32_t zero_of_first, uint32_t more) {
    const auto t = f.read(config);
    ASSERT_TRUE(t.ok()) << t.error().message;
    const std::vector<float> w = floats(**t);
    for (int n = 0; n < 8; ++n)
      for (int k = 0; k < 32; ++k) {
        const int zero = n == 0 ? int(zero_of_first) : int((uint32_t(n) + more) % 16);
        EXPECT_EQ(w[size_t(n * 32 + k)], 0.5f * float((k + n) % 16 - zero)) << n << " " << k;
      }
  };
  check_values({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"checkpoint_format", "gptq_v2"}}, 0, 0);
  check_values({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}}, 1, 1);
  // A stored 15 wraps to a zero of 0, as whoever adds 1 and masks has it.
  zeros[0] |= 15;
  f.add("m.qzeros", format::StDtype::kI32, {1, 1}, zeros);
  check_values({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}}, 0, 1);
}

TEST(Packings, AwqWordsByHand) {
  // The order that the format is known for: outputs 0, 2, 4, 6, 1, 3, 5, 7 from the lowest nibble up.
  ByHand f;
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<uint32_t> codes(32), zeros(1, 0);
  for (uint32_t k = 0; k < 32; ++k)
    for (int i = 0; i < 8; ++i) codes[k] |= ((k + uint32_t(kOrder[i]) * 3) % 16) << (4 * i);
  for (int i = 0; i < 8; ++i) zeros[0] |= uint32_t(kOrder[i] + 5) << (4 * i);
  f.add("m.qweight", format::StDtype::kI32, {32, 1}, codes);
  f.add("m.qzeros", format::StDtype::kI32, {1, 1}, zeros);
  f.add("m.scales", format::StDtype::kF16, {1, 8}, std::vector<uint16_t>(8, float_to_half(0.25f)));
  const auto t = f.read({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"version", "gemm"}});
  ASSERT_TRUE(t.ok()) << t.error().message;
  const std::vector<float> w = floats(**t);
  for (int n = 0; n < 8; ++n)
    for (int k = 0; k < 32; ++k) EXPECT_EQ(w[size_t(n * 32 + k)], 0.25f * float((k + n * 3) % 16 - (n + 5)));
}

TEST(Packings, CompressedTensorsByHand) {
  const auto config = [](int bits) {
    return format::Json{{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", {{"num_bits", bits}}}}}}}};
  };
  ByHand f;  // 2 outputs, 64 inputs in 2 groups: packed above 0 by 8
  std::vector<uint32_t> codes(16);
  for (uint32_t n = 0; n < 2; ++n)
    for (uint32_t k = 0; k < 64; ++k) codes[n * 8 + k / 8] |= ((k * 3 + n) % 16) << (k % 8 * 4);
  f.add("p.weight_packed", format::StDtype::kI32, {2, 8}, codes);
  f.add("p.weight_scale", format::StDtype::kBF16, {2, 2}, std::vector<uint16_t>{float_to_bf16(0.5f), float_to_bf16(0.25f), float_to_bf16(2), float_to_bf16(1)});
  f.add("p.weight_shape", format::StDtype::kI64, {2}, std::vector<int64_t>{2, 64});
  const auto p = f.read(config(4), "p");
  ASSERT_TRUE(p.ok()) << p.error().message;
  const float scales[2][2] = {{0.5f, 0.25f}, {2, 1}};
  const std::vector<float> w = floats(**p);
  for (int n = 0; n < 2; ++n)
    for (int k = 0; k < 64; ++k) EXPECT_EQ(w[size_t(n * 64 + k)], scales[n][k / 32] * float((k * 3 + n) % 16 - 8));
  // int8 of one scale a row, and FP8 of one scale.
  std::vector<int8_t> bytes(64);
  for (int i = 0; i < 64; ++i) bytes[size_t(i)] = int8_t(i * 5 - 128);
  f.add("i.weight", format::StDtype::kI8, {2, 32}, bytes);
  f.add("i.weight_scale", format::StDtype::kF32, {2, 1}, std::vector<float>{0.5f, 2});
  const auto i = f.read(config(8), "i");
  ASSERT_TRUE(i.ok()) << i.error().message;
  const std::vector<float> wi = floats(**i);
  for (size_t j = 0; j < 64; ++j) EXPECT_EQ(wi[j], (j < 32 ? 0.5f : 2.0f) * float(bytes[j]));
  std::vector<uint8_t> e4m3(64);
  for (size_t j = 0; j < 64; ++j) e4m3[j] = uint8_t(j * 2);
  f.add("e.weight", format::StDtype::kF8E4M3, {2, 32}, e4m3);
  f.add("e.weight_scale", format::StDtype::kF32, {1}, std::vector<float>{3});
  const auto e = f.read(config(8), "e");
  ASSERT_TRUE(e.ok()) << e.error().message;
  const std::vector<float> we = floats(**e);
  for (size_t j = 0; j < 64; ++j) EXPECT_EQ(we[j], 3 * e4m3_to_float(e4m3[j]));
  f.add("none.weight", format::StDtype::kBF16, {2, 32}, std::vector<uint16_t>(64));
  const auto none = f.read(config(8), "none");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST(Packings, ShapesThatDoNotFitAreNamed) {
  const format::Json gptq{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
  const auto broken = [&](const std::function<void(ByHand&)>& change) {
    ByHand f;
    f.add("m.qweight", format::StDtype::kI32, {4, 8}, std::vector<uint32_t>(32));
    f.add("m.qzeros", format::StDtype::kI32, {1, 1}, std::vector<uint32_t>(1));
    f.add("m.scales", format::StDtype::kF16, {1, 8}, std::vector<uint16_t>(8));
    change(f);
    const auto r = f.read(gptq);
    return r.ok() ? std::string() : r.error().message;
  };
  using format::StDtype;
  EXPECT_EQ(broken([](ByHand&) {}), "");
  EXPECT_NE(broken([](ByHand& f) { f.shards.tensors.erase("m.scales"); }).find("m.scales: the tensor is missing"), std::string::npos);
  EXPECT_NE(broken([](ByHand& f) { f.add("m.scales", StDtype::kF16, {1, 7}, std::vector<uint16_t>(7)); }).find("m.scales: F16 [1, 7]"), std::string::npos);
  EXPECT_NE(broken([](ByHand& f) { f.add("m.qzeros", StDtype::kI32, {1, 2}, std::vector<uint32_t>(2)); }).find("m.qzeros"), std::string::npos);
  EXPECT_NE(broken([](ByHand& f) { f.add("m.qweight", StDtype::kF32, {4, 8}, std::vector<float>(32)); }).find("m.qweight"), std::string::npos);
  EXPECT_NE(broken([](ByHand& f) { f.add("m.g_idx", StDtype::kI32, {32}, std::vector<int32_t>(32, 1)); }).find("group 1 is outside 0..0"), std::string::npos);
  EXPECT_NE(broken([](ByHand& f) { f.add("m.g_idx", StDtype::kI32, {31}, std::vector<int32_t>(31)); }).find("m.g_idx"), std::string::npos);
  // Groups of 16: well-formed, and nothing here multiplies them.
  EXPECT_NE(broken([](ByHand& f) {
    f.add("m.qzeros", StDtype::kI32, {2, 1}, std::vector<uint32_t>(2));
    f.add("m.scales", StDtype::kF16, {2, 8}, std::vector<uint16_t>(16));
    std::vector<int32_t> groups(32);
    for (size_t k = 16; k < 32; ++k) groups[k] = 1;
    f.add("m.g_idx", StDtype::kI32, {32}, groups);
  }).find("no multiples of 32"), std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
