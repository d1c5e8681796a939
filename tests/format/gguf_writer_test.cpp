// What write_gguf writes, open_gguf reads back.
#include "format/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace sluice::format {
namespace {

TEST(GgufWriter, ReadsBack) {
  Metadata m;
  m.insert("general.architecture", std::string("x"));
  m.insert("count", int64_t{42});
  m.insert("large", int64_t{1} << 40);
  m.insert("below", int64_t{-5});
  m.insert("eps", 1e-5);
  m.insert("yes", true);
  m.insert("ids", std::vector<int64_t>{1, -2, 3});
  m.insert("long_ids", std::vector<int64_t>{int64_t{1} << 40});
  m.insert("scores", std::vector<double>{0.5, -1.25});
  m.insert("flags", std::vector<bool>{true, false, true});
  m.insert("words", std::vector<std::string>{"a", "", "ünï"});
  const auto* q8 = quant::find_format(WeightType::kQ8_0);
  const auto* f32 = quant::find_format(WeightType::kF32);
  std::vector<uint8_t> quants(34 * 3);
  for (size_t i = 0; i < quants.size(); ++i) quants[i] = uint8_t(i * 7);
  const float floats[] = {1, 2, 3};
  TensorEntry a, b;
  a.name = "q";
  a.type_id = uint32_t(q8->type);
  a.weight_format = q8;
  a.dims = {32, 3};
  a.bytes = quants;
  b.name = "f";
  b.type_id = uint32_t(f32->type);
  b.weight_format = f32;
  b.dims = {3};
  b.bytes = {reinterpret_cast<const uint8_t*>(floats), sizeof floats};
  const std::string path = ::testing::TempDir() + "sluice_writer_" + std::to_string(::getpid()) + ".gguf";
  const TensorEntry tensors[] = {a, b};
  ASSERT_TRUE(write_gguf(path, m, tensors).ok());
  auto r = open_gguf(path);
  std::remove(path.c_str());
  ASSERT_TRUE(r.ok()) << r.error().message;
  const WeightFile& f = **r;
  ASSERT_EQ(f.metadata().all().size(), m.all().size());
  for (const auto& [key, value] : m.all()) {
    const Value* got = f.metadata().find(key);
    ASSERT_TRUE(got) << key;
    if (key == "eps") EXPECT_EQ(std::get<double>(*got), double(1e-5f));
    else EXPECT_EQ(*got, value) << key;
  }
  ASSERT_EQ(f.tensors().size(), 2u);
  for (const TensorEntry& t : tensors) {
    const TensorEntry* got = f.find(t.name);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->dims, t.dims);
    EXPECT_TRUE(std::equal(got->bytes.begin(), got->bytes.end(), t.bytes.begin(), t.bytes.end()));
  }
}

TEST(GgufWriter, SaysWhyItCannot) {
  const Status s = write_gguf("/nowhere/at/all.gguf", {}, {});
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kIo);
  EXPECT_NE(s.error().message.find("/nowhere/at/all.gguf"), std::string::npos);
}

}  // namespace
}  // namespace sluice::format
