// Encoders and decoders against what another implementation gives (tools/make_quant_goldens.py), bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "quant/weight_format.h"

namespace sluice::quant {
namespace {

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) out.push_back(uint8_t(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

const WeightFormat* by_name(const std::string& name) {
  for (const WeightFormat* f : formats_table())
    if (name == f->name) return f;
  return nullptr;
}

TEST(Goldens, BytesAreThoseOfAnotherImplementation) {
  std::ifstream in(SLUICE_TEST_DATA "/quant_goldens.txt");
  std::map<std::string, int> seen;
  std::string what, type, from, to;
  while (in >> what >> type >> from >> to) {
    const WeightFormat* f = by_name(type);
    ASSERT_TRUE(f) << type;
    const std::vector<uint8_t> input = from_hex(from), wanted = from_hex(to);
    const bool encodes = what == "encode";
    std::vector<float> values((encodes ? input : wanted).size() / 4);
    std::vector<uint8_t> bytes = encodes ? std::vector<uint8_t>(wanted.size()) : input;
    if (encodes) {
      std::memcpy(values.data(), input.data(), input.size());
      f->encode(values.data(), bytes.data(), values.size());
      EXPECT_EQ(bytes, wanted) << type << " block " << seen[what + type];
    } else {
      f->decode(bytes.data(), values.data(), values.size());
      std::vector<uint8_t> got(wanted.size());
      std::memcpy(got.data(), values.data(), got.size());
      EXPECT_EQ(got, wanted) << type << " block " << seen[what + type];
    }
    ++seen[what + type];
  }
  EXPECT_EQ(seen.size(), 18u);
  for (const auto& [key, count] : seen) EXPECT_GE(count, 1) << key;
}

}  // namespace
}  // namespace sluice::quant
