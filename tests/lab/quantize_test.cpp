#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/half.h"
#include "format/gguf_writer.h"
#include "lab/calibration.h"
#include "lab/quantize.h"
#include "lab/quantize_plan.h"
#include "model/random_model.h"
#include "quant/calibrate/column_squares.h"
#include "quant/fit.h"

namespace sluice::lab {
namespace {

class Quantize : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 200; ++i) text << (i % 3 ? "the time of people and way " : "Number ") << i << (i % 7 ? " " : ".\n");
    make("in.gguf", "f16");
    o_.input = path("in.gguf");
    o_.output = path("out.gguf");
    o_.threads = 2;
    o_.window = 32;
    o_.max_tokens = 128;
    o_.isa = "avx2";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::shared_ptr<const format::WeightFile> random(const std::string& type) const {
    auto file = model::make_random_model({.shape = "llama-tiny", .weight_type = type, .seed = 3, .threads = 2});
    EXPECT_TRUE(file.ok());
    return *file;
  }
  void make(const std::string& name, const std::string& type) const {
    const auto file = random(type);
    ASSERT_TRUE(format::write_gguf(path(name), file->metadata(), file->tensors()).ok());
  }
  std::string bytes_of(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("sluice-quantize-" + std::to_string(::getpid()));
  QuantizeOptions o_;
};

// Rows of 576: what the head spares goes to layers, unless the head's type was asked for.
TEST_F(Quantize, AHeadThatIsKeptSparesNothing) {
  const auto file = model::make_random_model({.shape = "llama-135m", .weight_type = "q4_0", .seed = 3, .threads = 2});
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(format::write_gguf(o_.input, (*file)->metadata(), (*file)->tensors()).ok());
  o_.requantize = true;
  const auto plan_of = [&](const std::vector<std::string>& keep) {
    o_.keep = keep;
    auto p = plan_quantization(o_);
    EXPECT_TRUE(p.ok()) << p.error().message;
    return std::move(*p);
  };
  const auto type = [](const QuantizePlan& p, const char* name) {
    const auto t = std::find_if(p.tensors.begin(), p.tensors.end(), [&](const auto& x) { return x.name == name; });
    return t == p.tensors.end() ? "" : std::string(t->weight_format->name);
  };
  constexpr const char* head = "token_embd.weight";  // tied
  const QuantizePlan spent = plan_of({}), usual = plan_of({"token_embd.weight=q8_0"});
  EXPECT_EQ(type(spent, head), "q5_1");
  EXPECT_EQ(type(spent, "blk.0.attn_q.weight"), "q8_0");
  EXPECT_EQ(type(usual, head), "q8_0");
  EXPECT_EQ(type(usual, "blk.0.attn_q.weight"), "q5_0");
  EXPECT_LE(spent.layout.file_bytes, usual.layout.file_bytes);
}

TEST_F(Quantize, WritesTheMixThatWasAskedFor) {
  o_.keep = {"blk\\.1\\.attn_q\\.weight=q8_0", "token_embd.weight=f16"};
  auto r = quantize(o_);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->method, "rtn");
  auto out = format::open_gguf(o_.output);
  ASSERT_TRUE(out.ok()) << out.error().message;
  const auto in = format::open_gguf(o_.input);
  ASSERT_EQ((*out)->tensors().size(), (*in)->tensors().size());
  const auto type = [&](const char* name) { return std::string((*out)->find(name)->weight_format->name); };
  EXPECT_EQ(type("blk.0.attn_q.weight"), "q4_k");
  EXPECT_EQ(type("blk.1.attn_q.weight"), "q8_0");
  EXPECT_EQ(type("token_embd.weight"), "f16");
  EXPECT_EQ(type("blk.0.attn_norm.weight"), "f32");
  EXPECT_EQ((*out)->metadata().integer("general.file_type", 0, 99).value(), 15);
  EXPECT_EQ((*out)->file_bytes(), r->out_bytes);
  // A tensor's bytes are what the search makes of it alone.
  const format::TensorEntry &from = *(*in)->find("blk.0.ffn_up.weight"), &to = *(*out)->find("blk.0.ffn_up.weight");
  std::vector<float> x(size_t(from.elements()));
  from.weight_format->decode(from.bytes.data(), x.data(), x.size());
  std::vector<uint8_t> wanted(to.bytes.size());
  quant::fit(*to.weight_format, x.data(), nullptr, wanted.data(), size_t(from.rows()), size_t(from.cols()));
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), to.bytes.begin()));
}

TEST_F(Quantize, EveryTypeIsWritten) {
  for (const char* type : {"q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_k_s", "q3_k_m", "q3_k_s", "q2_k", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "iq4_xs", "bf16"}) {
    o_.type = type;
    auto r = quantize(o_);
    ASSERT_TRUE(r.ok()) << type << r.error().message;
    EXPECT_TRUE(format::open_gguf(o_.output).ok()) << type;
    EXPECT_GT(r->relative_error, 0) << type;
    EXPECT_LT(r->relative_error, 0.4) << type;
  }
}

TEST_F(Quantize, NamesTheElementThatCannotBeHeld) {
  const auto file = random("f32");
  std::vector<format::TensorEntry> tensors = file->tensors();
  for (float bad : {NAN, INFINITY, 1e6f}) {
    std::vector<uint8_t> bytes;
    for (format::TensorEntry& t : tensors)
      if (t.name == "blk.1.ffn_up.weight") {
        bytes.assign(file->find(t.name)->bytes.begin(), file->find(t.name)->bytes.end());
        std::memcpy(&bytes[4 * (3 * 256 + 17)], &bad, 4);
        t.bytes = bytes;
      }
    ASSERT_TRUE(format::write_gguf(o_.input, file->metadata(), tensors).ok());
    auto r = quantize(o_);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::kBadFile);
    EXPECT_NE(r.error().message.find("blk.1.ffn_up.weight: element 785 (row 3, column 17) is "), std::string::npos) << r.error().message;
    EXPECT_FALSE(std::filesystem::exists(o_.output));
  }
}

TEST_F(Quantize, RefusesWhatIsQuantisedUnlessTold) {
  make("in.gguf", "q4_0");
  auto r = quantize(o_);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("quantised already"), std::string::npos);
  o_.requantize = true;
  EXPECT_TRUE(quantize(o_).ok());
}

TEST_F(Quantize, RefusesNonsense) {
  const auto refused = [&](auto change, const char* field) {
    QuantizeOptions o = o_;
    change(o);
    auto r = quantize(o);
    EXPECT_FALSE(r.ok()) << field;
    if (!r.ok()) {
      EXPECT_EQ(r.error().field, field) << r.error().message;
    }
  };
  refused([](auto& o) { o.type = "q9"; }, "--type");
  refused([](auto& o) { o.method = "magic"; }, "--method");
  refused([](auto& o) { o.method = "imatrix"; }, "--method");
  refused([&](auto& o) { o.method = "rtn", o.calibrate = path("text.txt"); }, "--calibrate");
  refused([&](auto& o) { o.calibrate = path("absent.txt"); }, "--calibrate");
  refused([&](auto& o) { o.calibrate = path("text.txt"), o.window = 8192, o.max_tokens = 0; }, "--calibrate");
  refused([&](auto& o) { o.calibrate = path("text.txt"), o.max_tokens = -1; }, "--max-tokens");
  refused([](auto& o) { o.window = 1; }, "--window");
  refused([](auto& o) { o.threads = -1; }, "--threads");
  refused([](auto& o) { o.keep = {"("}; }, "--keep");
  refused([](auto& o) { o.keep = {"(=q8_0"}; }, "--keep");
  refused([](auto& o) { o.keep = {"a=q9"}; }, "--keep");
}

// A long text is not read to its end unless that is asked for.
TEST_F(Quantize, ReadsTheTextsFirstTokens) {
  {
    std::ofstream text(path("long.txt"));
    for (int i = 0; i < 20000; ++i) text << "the time of people and way ";
  }
  QuantizeOptions o;
  o.calibrate = path("long.txt");
  const auto file = random("f16");
  const auto some = calibration_tokens(o, *file);
  ASSERT_TRUE(some.ok()) << some.error().message;
  EXPECT_EQ(some->size(), 32768u);
  o.max_tokens = 0;
  const auto all = calibration_tokens(o, *file);
  ASSERT_TRUE(all.ok());
  EXPECT_GT(all->size(), 50000u);
  EXPECT_TRUE(std::equal(some->begin(), some->end(), all->begin()));
}

// The importance matrix of a tensor is the mean square of its inputs, and the file is fitted to it.
TEST_F(Quantize, CalibratedFilesAreFittedToWhatMatricesAreFed) {
  make("in.gguf", "q8_0");
  o_.requantize = true;
  o_.type = "q4_0";
  o_.calibrate = path("text.txt");
  auto r = quantize(o_);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->method, "imatrix");
  EXPECT_EQ(r->calibration_tokens, 128);
  const auto in = *format::open_gguf(o_.input), out = *format::open_gguf(o_.output);
  EXPECT_EQ(out->metadata().integer("quantize.imatrix.chunks_count", 0, 99).value(), 4);
  const std::string calibrated = bytes_of("out.gguf");
  o_.calibrate.clear();
  ASSERT_TRUE(quantize(o_).ok());
  EXPECT_NE(calibrated.substr(calibrated.size() / 2), bytes_of("out.gguf").substr(bytes_of("out.gguf").size() / 2));
}

// Interrupted after any number of tensors, with another number of threads each time: the same bytes at the end.
class QuantizeBy : public Quantize, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Methods, QuantizeBy, testing::Values("imatrix", "gptq"));

TEST_P(QuantizeBy, GoesOnAfterInterruptionsToTheSameBytes) {
  o_.calibrate = path("text.txt");
  o_.method = GetParam();
  ASSERT_TRUE(quantize(o_).ok());
  const std::string wanted = bytes_of("out.gguf");
  o_.output = path("again.gguf");
  std::atomic<bool> stop{false};
  o_.stop = &stop;
  int interruptions = 0, calls = 0;
  o_.progress = [&](const QuantizeProgress&) { stop = ++calls % 5 == 0; };
  for (;;) {
    o_.threads = 1 + interruptions % 2;
    stop = false;
    auto r = quantize(o_);
    if (r.ok()) {
      EXPECT_TRUE(r->resumed);
      break;
    }
    ASSERT_EQ(r.error().code, ErrorCode::kCancelled);
    ASSERT_LT(++interruptions, 50);
  }
  EXPECT_GE(interruptions, 4);
  EXPECT_TRUE(bytes_of("again.gguf") == wanted);
}

// The same of folders: whatever each run wrote is found by the next, also where a layer's matrices are half written.
class QuantizeFolder : public Quantize, public testing::WithParamInterface<std::pair<const char*, int>> {};  // how many calls a run lives
INSTANTIATE_TEST_SUITE_P(Types, QuantizeFolder, testing::Values(std::pair{"gptq4", 5}, std::pair{"awq4", 6}, std::pair{"fp8_block", 5}, std::pair{"fp8 gptq", 5}, std::pair{"fp8_block gptq", 5}));

TEST_P(QuantizeFolder, GoesOnAfterInterruptionsToTheSameBytes) {
  const auto [type, life] = GetParam();
  const std::string named = type;
  o_.type = named.substr(0, named.find(' '));
  if (named.find('q') != std::string::npos) o_.calibrate = path("text.txt");
  o_.output = path("whole");
  const auto whole = quantize(o_);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_LT(whole->relative_error, 0.2);  // rows and scales that do not belong together come to 1
  o_.output = path("again");
  std::atomic<bool> stop{false};
  o_.stop = &stop;
  int interruptions = 0, calls = 0, layers = 0;
  o_.progress = [&, life = life](const QuantizeProgress& p) { stop = ++calls == life, layers = std::max(layers, p.what.starts_with("blk.1.") ? 1 : 0); };
  for (;;) {
    o_.threads = 1 + interruptions % 2;
    calls = 0;
    stop = false;
    auto r = quantize(o_);
    if (r.ok()) {
      EXPECT_TRUE(r->resumed);
      break;
    }
    ASSERT_EQ(r.error().code, ErrorCode::kCancelled) << r.error().message;
    EXPECT_FALSE(std::filesystem::exists(path("again/config.json")));
    if (layers == 1 && !o_.calibrate.empty()) {
      EXPECT_TRUE(std::filesystem::exists(path("again/quantize.state")));  // the first layer need not be walked again
    }
    ASSERT_LT(++interruptions, 20);
  }
  EXPECT_GE(interruptions, 2);
  EXPECT_EQ(layers, 1);
  for (const auto& entry : std::filesystem::directory_iterator(path("again"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(bytes_of("again/" + name) == bytes_of("whole/" + name)) << name;
  }
  const auto files = [&](const char* folder) { return std::distance(std::filesystem::directory_iterator(path(folder)), {}); };
  EXPECT_EQ(files("again"), files("whole"));
  // Other work begins anew.
  o_.stop = nullptr;
  o_.progress = nullptr;
  o_.keep = {"blk\\.0\\.attn_q\\.weight=f16"};
  auto r = quantize(o_);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_FALSE(r->resumed);
}

// Two walks: one of the model as it was, whatever became of the other's layers; a layer is shown as often as wanted and goes on once.
TEST_F(Quantize, TheModelAsItWasIsWalkedBesideTheOneThatIsReplaced) {
  const auto file = random("q8_0");
  const kernels::KernelTable* kernels = kernels::reference_kernels();
  std::vector<int32_t> tokens(64);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i * 31 % 500);
  using Shown = std::map<Site, std::vector<float>>;
  const auto gather = [](Shown& to, Site site, const float* rows, int count, int cols) { to[site].insert(to[site].end(), rows, rows + size_t(count) * size_t(cols)); };

  std::vector<Shown> plain;
  auto one = Calibration::make(file, tokens, 32, *kernels, 1);
  ASSERT_TRUE(one.ok());
  while ((*one)->next_layer() < (*one)->spec().num_layers) {
    Shown& s = plain.emplace_back();
    ASSERT_TRUE((*one)->run_layer([&](Site site, const float* rows, int count, int cols) { gather(s, site, rows, count, cols); }).ok());
  }

  auto two = Calibration::make(file, tokens, 32, *kernels, 2);
  ASSERT_TRUE(two.ok() && (*two)->follow_original().ok());
  for (size_t layer = 0; layer < plain.size(); ++layer) {
    const format::TensorEntry& down = *file->find("blk." + std::to_string(layer) + ".ffn_down.weight");
    const std::vector<uint8_t> nothing(down.bytes.size());  // what q8_0 calls zeros
    format::TensorEntry none = down;
    none.bytes = nothing;
    const std::vector<format::TensorEntry> replaced{none};
    Shown before, own, down_alone;
    const auto both = [&](Site site, const float* was, const float* rows, int count, int cols) { gather(before, site, was, count, cols), gather(own, site, rows, count, cols); };
    ASSERT_TRUE((*two)->show_layer(both, {}, {}, false).ok());
    EXPECT_EQ(before, plain[layer]);
    EXPECT_EQ(own == before, layer == 0);
    before.clear();
    ASSERT_TRUE((*two)->show_layer([&](Site site, const float*, const float* rows, int count, int cols) { gather(down_alone, site, rows, count, cols); }, Site::kFfnDown, replaced, false).ok());
    EXPECT_EQ(down_alone.size(), 1u);
    EXPECT_EQ(down_alone[Site::kFfnDown], own[Site::kFfnDown]);  // its inputs do not depend on what it is
    own.clear();
    ASSERT_TRUE((*two)->show_layer(both, {}, {}, true).ok());
    EXPECT_EQ(before, plain[layer]);
    ASSERT_TRUE((*two)->run_layer(nullptr, replaced).ok());
  }
}

// Layer by layer is the forward pass: the head's inputs are those of the whole model, bit for bit.
TEST_F(Quantize, WalkingLayerByLayerIsTheForwardPass) {
  const auto file = random("q8_0");
  const kernels::KernelTable* kernels = kernels::cpu_kernels("avx2", nullptr);
  if (!kernels) kernels = kernels::reference_kernels();  // a machine without it has these
  std::vector<int32_t> tokens(64);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i * 37 % 500);
  auto c = Calibration::make(file, tokens, 32, *kernels, 2);
  ASSERT_TRUE(c.ok()) << c.error().message;
  std::vector<int> seen(kNumSites);
  while ((*c)->next_layer() < (*c)->spec().num_layers)
    ASSERT_TRUE((*c)->run_layer([&](Site site, const float*, int count, int cols) {
      seen[size_t(site)] += count;
      EXPECT_EQ(cols, site == Site::kFfnDown ? 512 : 256);
    }).ok());
  for (int n : seen) EXPECT_EQ(n, 64 * (*c)->spec().num_layers);

  model::ModelSpec spec = (*c)->spec();
  auto weights = model::load_weights(file, spec, *kernels, 1, nullptr);
  ASSERT_TRUE(weights.ok());
  const model::Model model(spec, std::move(*weights), kernels, 32, 1);
  model::Activations a(*kernels, spec, 32, 1);
  kernels::Context* context = kernels->create({.threads = 1, .max_tokens = 32, .max_dim = 512});
  const size_t block = size_t(16 * spec.kv_heads * spec.head_dim);
  std::vector<std::vector<uint16_t>> memory(size_t(spec.num_layers) * 2, std::vector<uint16_t>(2 * block));
  std::vector<kernels::CacheView> caches;
  for (int i = 0; i < spec.num_layers; ++i) {
    kernels::CacheView v;
    v.keys = memory[size_t(2 * i)].data();
    v.values = memory[size_t(2 * i + 1)].data();
    v.key_stride = v.value_stride = block * 2;
    caches.push_back(v);
  }
  std::vector<int32_t> positions(32), zeros(32), query_begin{0, 32}, kv_len{32}, block_begin{0, 2}, block_ids{0, 1};
  for (int t = 0; t < 32; ++t) positions[size_t(t)] = t;
  kernels::BatchView b;
  b.num_tokens = 32, b.num_sequences = 1, b.positions = positions.data(), b.sequence_of = zeros.data(), b.query_begin = query_begin.data();
  b.kv_len = kv_len.data(), b.block_begin = block_begin.data(), b.block_ids = block_ids.data();
  for (int w = 0; w < 2; ++w) {
    model.forward(context, a, &tokens[size_t(w) * 32], nullptr, b, caches);
    EXPECT_EQ(std::memcmp(a.x, (*c)->state().data() + size_t(w * 32 * spec.dim), size_t(32 * spec.dim) * 4), 0) << "window " << w;
  }
  kernels->destroy(context);
}

TEST(Calibrating, SitesOfNames) {
  Site site{};
  EXPECT_EQ(site_of("blk.12.attn_k.weight", site), 12);
  EXPECT_EQ(site, Site::kAttention);
  EXPECT_EQ(site_of("blk.0.ffn_down.weight", site), 0);
  EXPECT_EQ(site, Site::kFfnDown);
  for (const char* name : {"blk.0.attn_norm.weight", "output.weight", "blk..attn_q.weight", "blk.3", "blk.1.attn_q.bias", "blk.9999999999.attn_q.weight"}) EXPECT_EQ(site_of(name, site), -1) << name;
}

TEST(Calibrating, ColumnSquaresAreMeans) {
  quant::ColumnSquares s(3);
  const float rows[] = {1, 2, 3, -1, 4, 0};
  s.add(rows, 2, 0, 2);
  s.add(rows, 2, 2, 3);
  EXPECT_EQ(s.mean(2), (std::vector<float>{1, 10, 4.5f}));
}

}  // namespace
}  // namespace sluice::lab
