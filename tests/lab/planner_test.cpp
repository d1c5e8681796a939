#include "lab/planner.h"
#include "lab/speculation.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::lab {
namespace {

TEST(Planner, AShapeStandsForAModel) {
  const ModelShape s = *parse_shape("layers=80,kv_heads=8,head_dim=128,params=70e9", 16, true);
  EXPECT_EQ(s.spec.num_layers, 80);
  EXPECT_EQ(s.weights.file_bytes, 140'000'000'000u);
  EXPECT_EQ(s.weights.packed_bytes + s.weights.mapped_bytes, s.weights.file_bytes);
  EXPECT_NEAR(s.spec.dim, 8192, 512);  // what such models have
  EXPECT_EQ(parse_shape("layers=80,kv_heads=8,head_dim=128,params=70e9,dim=8192,vocab=1000", 16, false)->weights.mapped_bytes, 0u);
}

TEST(Planner, AShapesKeysHaveLimits) {
  for (const char* wrong : {"", "layers=80", "layers=0,kv_heads=8,head_dim=128,params=7e9", "layers=80,kv_heads=8,head_dim=1000,params=7e9", "layers=8,kv_heads=8,head_dim=128,params=nan",
                            "layers=8,kv_heads=8,head_dim=128,params=1e99", "layers=8,kv_heads=8,head_dim=128,params=7e9,colour=3", "layers", "layers=", "layers=8x,kv_heads=8,head_dim=128,params=7e9"}) {
    const auto s = parse_shape(wrong, 16, true);
    ASSERT_FALSE(s.ok()) << wrong;
    EXPECT_EQ(s.error().field, "--shape");
    EXPECT_EQ(s.error().message.find('\n'), std::string::npos);
  }
}

// 80 layers of 8 heads of 128 in f16 are 320 KB a token, and 32 sequences of 8,192 tokens 84 GB; fp8 is half and a scale.
TEST(Planner, ACachesBytes) {
  const model::ModelSpec s = parse_shape("layers=80,kv_heads=8,head_dim=128,params=70e9", 16, true)->spec;
  const auto bytes = [&](const char* type) { return exec::DeviceExecutor::kv_bytes(s, *parse_kv_type(type), 64); };
  EXPECT_EQ(bytes("f16").total(), 320u * 1024);
  EXPECT_NEAR(double(bytes("f16").total()) * 32 * 8192 * 1e-9, 84, 2);
  EXPECT_EQ(bytes("fp8").keys + bytes("fp8").values, 160u * 1024);
  EXPECT_EQ(bytes("fp8").scales, 80u * 8 * 2 * 2);
  EXPECT_EQ(bytes("int8").total(), bytes("fp8").total());
  EXPECT_EQ(bytes("f16/int8").keys, 160u * 1024);
  EXPECT_EQ(bytes("k8v4").values, 40u * 1024);
  EXPECT_EQ(bytes("k8v4").scales, 80u * 8 * (2 + 4 * 4));  // a scale and a minimum for 32 dimensions
  for (int dim : {64, 80, 128, 256}) EXPECT_LE(cache_row_bytes(CacheElement::kFp8, dim), 0.52 * double(cache_row_bytes(CacheElement::kF16, dim)));
  for (int dim : {64, 128, 256}) EXPECT_LE(cache_row_bytes(CacheElement::kInt4, dim), 0.32 * double(cache_row_bytes(CacheElement::kF16, dim)));
}

// int4: codes; for 16 keys two bytes a dimension and two units; in each block, beyond its last group, what makes that one as large as an
// open one. So large blocks take less.
TEST(Planner, AnInt4CachesBytesCountTheOpenGroup) {
  const model::ModelSpec s = parse_shape("layers=80,kv_heads=8,head_dim=128,params=70e9", 16, true)->spec;
  const auto bytes = [&](int block_tokens) { return exec::DeviceExecutor::kv_bytes(s, *parse_kv_type("int4"), block_tokens); };
  for (int tokens : {16, 64, 256}) {
    const double keys = (tokens / 16) * (8 * 128 + 2 * 128 + 4) + 16 * (128 + 2) - (8 * 128 + 2 * 128 + 4), values = tokens * (64 + 16);
    EXPECT_EQ(bytes(tokens).keys, 80u * 8 * 64);
    EXPECT_EQ(bytes(tokens).total(), size_t(std::ceil(80 * 8 * (keys + values) / tokens)));
  }
  const double f16 = 320 * 1024;
  EXPECT_LE(double(bytes(64).total()), 0.34 * f16);
  EXPECT_LE(double(bytes(256).total()), 0.32 * f16);
  LoadOptions o;
  EXPECT_EQ(block_tokens_of(o), 16);
  o.kv_type = "int4";
  EXPECT_EQ(block_tokens_of(o), 64);
  EXPECT_EQ(draft_options(o, "small.gguf", 0).kv_type, "int8/int4");
  EXPECT_EQ(draft_options(o, "small.gguf", 0).block_tokens, 64);
}

TEST(Planner, CacheTypesHaveNames) {
  for (CacheElement keys : kCacheElements)
    for (CacheElement values : kCacheElements) EXPECT_EQ(*parse_kv_type(cache_type_name({keys, values})), (CacheType{keys, values}));
  EXPECT_EQ(*parse_kv_type("k8v4"), (CacheType{CacheElement::kInt8, CacheElement::kInt4}));
  EXPECT_EQ(*parse_kv_type("k16v8"), (CacheType{CacheElement::kF16, CacheElement::kInt8}));
  for (const char* wrong : {"", "fp9", "int8/", "/fp8", "int8/fp8/f16", "k8", "k8v", "k8v5", "k4v48", "kv4", "INT8"}) {
    const auto type = parse_kv_type(wrong);
    ASSERT_FALSE(type.ok()) << wrong;
    EXPECT_EQ(type.error().field, "--kv-type");
  }
}

// A backend says what it has; nothing falls back in silence.
TEST(Planner, ACacheWithoutKernelsIsAnErrorThatNamesTypeAndBackend) {
  kernels::KernelTable floats = *kernels::reference_kernels();
  floats.name = "floats only";
  floats.cache_type = [](CacheType t) noexcept { return is_float(t.keys) && t.keys == t.values; };
  LoadOptions o;
  o.kv_type = "int8/fp8";
  const auto refused = cache_type_of(o, floats);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "--kv-type");
  EXPECT_NE(refused.error().message.find("int8/fp8"), std::string::npos);
  EXPECT_NE(refused.error().message.find("floats only"), std::string::npos);
  const ModelShape shape = *parse_shape("layers=2,kv_heads=2,head_dim=64,params=1e6", 16, true);
  EXPECT_EQ(plan_memory(shape.weights, shape.spec, floats, o, uint64_t{1} << 30).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(plan_memory(shape.weights, shape.spec, *kernels::reference_kernels(), o, uint64_t{1} << 30).ok());
}

PlanReport plan(const char* memory, int sequences = 0, const char* kv_memory = "", const char* draft = "") {
  PlanRequest r;
  r.draft = draft;
  r.load.kv_memory = kv_memory;
  r.load.random = "llama-8b";
  r.load.context = 4096;
  r.memory = memory;
  r.bandwidth_gb_s = 1000;
  r.sequences = sequences;
  return *plan_deployment(r);
}

TEST(Planner, TermsAddUpAndSpeedFollowsFromBandwidth) {
  const PlanReport p = plan("64GiB");
  uint64_t sum = 0;
  for (const PlanTerm& t : p.terms) sum += t.bytes;
  EXPECT_EQ(sum, p.fixed_bytes);
  EXPECT_EQ(p.max_tokens, int64_t((p.memory_bytes - p.fixed_bytes) / (16 * p.kv_bytes_per_token)) * 16);
  EXPECT_EQ(p.max_sequences, p.max_tokens / 4096);
  ASSERT_FALSE(p.speeds.empty());
  const uint64_t weights = p.terms.front().bytes;
  EXPECT_EQ(p.terms.front().name, "weights");
  EXPECT_NEAR(p.speeds.front().tok_s, 1e12 / double(weights + 4096 * p.kv_bytes_per_token), 1e-6);
  EXPECT_EQ(p.speeds.back().sequences, p.max_sequences);
  EXPECT_FALSE(plan("8GiB").fits);
  EXPECT_FALSE(plan("64GiB", int(p.max_sequences) + 1).fits);
  EXPECT_TRUE(plan("64GiB", int(p.max_sequences)).fits);
}

// What the server is told its cache may take bounds the plan as well, and more than there is does not fit.
TEST(Planner, ACacheOfItsOwnSizeBoundsWhatFits) {
  const PlanReport p = plan("64GiB", 0, "2GiB");
  EXPECT_EQ(p.max_tokens, int64_t((uint64_t{2} << 30) / (16 * p.kv_bytes_per_token)) * 16);
  EXPECT_TRUE(p.fits);
  EXPECT_FALSE(plan("64GiB", int(p.max_sequences) + 1, "2GiB").fits);
  EXPECT_FALSE(plan("64GiB", 0, "100GiB").fits);
}

// --kv-memory is the target's alone, as in serve: a draft model of the same tokens comes beside it.
TEST(Planner, ADraftModelsCacheComesBesideTheTargets) {
  const PlanReport alone = plan("64GiB", 0, "2GiB"), p = plan("64GiB", 0, "2GiB", "random:llama-135m");
  EXPECT_GT(p.draft_kv_bytes_per_token, 0u);
  EXPECT_EQ(p.max_tokens, alone.max_tokens);
  EXPECT_GT(p.fixed_bytes, alone.fixed_bytes);
  const PlanReport all = plan("64GiB", 0, "", "random:llama-135m");
  EXPECT_EQ(all.max_tokens, int64_t((all.memory_bytes - all.fixed_bytes) / (16 * (all.kv_bytes_per_token + all.draft_kv_bytes_per_token))) * 16);
}

}  // namespace
}  // namespace sluice::lab
