// Each decoder against values worked out by hand from the layout's definition.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {

void put_half(std::vector<uint8_t>& b, size_t at, float v) {
  const uint16_t h = float_to_half(v);
  std::memcpy(&b[at], &h, 2);
}

std::vector<float> decode(WeightType type, const std::vector<uint8_t>& b) {
  const WeightFormat* f = find_format(type);
  std::vector<float> out(size_t(f->block_elements));
  f->decode(b.data(), out.data(), out.size());
  return out;
}

TEST(Formats, EveryTypeIsListedWithItsSize) {
  const std::pair<WeightType, std::pair<int, int>> wanted[] = {
      {WeightType::kF32, {1, 4}}, {WeightType::kF16, {1, 2}}, {WeightType::kBF16, {1, 2}}, {WeightType::kQ4_0, {32, 18}},
      {WeightType::kQ4_1, {32, 20}}, {WeightType::kQ5_0, {32, 22}}, {WeightType::kQ5_1, {32, 24}}, {WeightType::kQ8_0, {32, 34}},
      {WeightType::kQ2_K, {256, 84}}, {WeightType::kQ3_K, {256, 110}}, {WeightType::kQ4_K, {256, 144}}, {WeightType::kQ5_K, {256, 176}},
      {WeightType::kQ6_K, {256, 210}}, {WeightType::kIQ4_NL, {32, 18}}, {WeightType::kIQ4_XS, {256, 136}}};
  for (const auto& [type, size] : wanted) {
    const WeightFormat* f = find_format(type);
    ASSERT_TRUE(f);
    EXPECT_EQ(f->block_elements, size.first) << f->name;
    EXPECT_EQ(f->block_bytes, size.second) << f->name;
  }
  EXPECT_EQ(find_format(uint32_t{99}), nullptr);
}

TEST(Formats, SmallBlocksPairElementsSixteenApart) {
  std::vector<uint8_t> q4(18);
  put_half(q4, 0, 0.5f);
  q4[2] = 0xF1;  // element 0: 1, element 16: 15
  auto v = decode(WeightType::kQ4_0, q4);
  EXPECT_EQ(v[0], 0.5f * (1 - 8));
  EXPECT_EQ(v[16], 0.5f * (15 - 8));
  std::vector<uint8_t> q51(24);
  put_half(q51, 0, 2.0f);
  put_half(q51, 2, -1.0f);
  q51[4 + 2] = 0x01;  // bit 16 of the high bits
  q51[8] = 0x30;      // element 16: low nibble 3
  v = decode(WeightType::kQ5_1, q51);
  EXPECT_EQ(v[16], 2.0f * 19 - 1.0f);
  EXPECT_EQ(v[0], -1.0f);
  std::vector<uint8_t> q8(34);
  put_half(q8, 0, 0.25f);
  q8[2 + 31] = 0x80;
  EXPECT_EQ(decode(WeightType::kQ8_0, q8)[31], 0.25f * -128);
}

TEST(Formats, SuperBlocksUnpackTheirScales) {
  std::vector<uint8_t> b(144);
  put_half(b, 0, 1.0f);
  put_half(b, 2, 0.5f);
  b[4 + 1] = 0x80 | 5;    // group 1: scale 5; upper bits 2 belong to group 5
  b[4 + 5] = 0x40 | 7;    // group 1: min 7; upper bits 1 belong to group 5
  b[4 + 9] = 0x93;        // group 5: scale low 3, min low 9
  b[16 + 0] = 0xA0;       // element 32: 10
  b[16 + 64] = 0x0C << 4; // group 5, element 0: 12
  auto v = decode(WeightType::kQ4_K, b);
  EXPECT_EQ(v[32], 5.0f * 10 - 0.5f * 7);
  EXPECT_EQ(v[160], float(3 | 2 << 4) * 12 - 0.5f * float(9 | 1 << 4));
  std::vector<uint8_t> q6(210);
  put_half(q6, 208, 1.0f);
  q6[192 + 6] = uint8_t(-3);   // scale of elements 96..111
  q6[32] = 0x50;               // element 96: low 5
  q6[128] = 2 << 6;            // and high 2
  EXPECT_EQ(decode(WeightType::kQ6_K, q6)[96], -3.0f * ((5 | 2 << 4) - 32));
}

}  // namespace
}  // namespace sluice::quant
