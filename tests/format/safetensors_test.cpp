// The safetensors container: what is written reads back, and what breaks the format is refused by name.
#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <unistd.h>

#include "format/mapping.h"

namespace sluice::format {
namespace {

std::vector<uint8_t> file(const std::string& header, size_t data, int64_t length = -1) {
  const uint64_t n = length < 0 ? header.size() : uint64_t(length);
  std::vector<uint8_t> out(sizeof n + header.size() + data, 7);
  std::memcpy(out.data(), &n, sizeof n);
  std::memcpy(out.data() + sizeof n, header.data(), header.size());
  return out;
}

std::string fault(const std::string& header, size_t data, int64_t length = -1) {
  const auto r = parse_safetensors(file(header, data, length));
  return r.ok() ? "" : r.error().message;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto bytes = file(R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt"},)"
                          R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"I8","shape":[0,5],"data_offsets":[16,16]}}  )", 16);
  const auto r = parse_safetensors(bytes);
  ASSERT_TRUE(r.ok()) << r.error().message;
  ASSERT_EQ(r->tensors.size(), 3u);
  EXPECT_EQ(r->tensors[0].name, "a");
  EXPECT_TRUE(r->tensors[0].shape.empty());
  EXPECT_EQ(r->tensors[1].name, "b");
  EXPECT_EQ(r->tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(r->tensors[1].bytes.size(), 12u);
  EXPECT_EQ(r->tensors[2].elements(), 0);
  EXPECT_EQ(r->metadata.at("format"), "pt");
}

TEST(Safetensors, RefusesWhatBreaksTheFormat) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(fault(good, 8), "");
  const std::pair<std::string, const char*> cases[] = {
      {fault(good, 7), "beyond the end"},
      {fault(good, 9), "after the last tensor"},
      {fault(good, 8, 1 << 20), "inside the header"},
      {fault(good, 8, int64_t{1} << 40), "100000000"},
      {fault("[1]", 0), "no JSON object"},
      {fault(R"({"a":)", 0), "not JSON"},
      {fault(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "its shape takes 12"},
      {fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "beyond the end"},
      {fault(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "begins at 4"},
      {fault(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), "'F33'"},
      {fault(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "below 0"},
      {fault(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8), "no integer"},
      {fault(R"({"a":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,8]}})", 8), "overflows"},
      {fault(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8), "dimensions"},
      {fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8), "two numbers"},
      {fault(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "missing"},
      {fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), "not a field"},
      {fault(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "twice"},
      {fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})", 8), "twice"},
      {fault(R"({"a":{"dtype":{"x":1},"shape":[2],"data_offsets":[0,8]}})", 8), "out of place"},
      {fault(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8), "out of place"},
      {fault(R"({"a":{"dtype":"F32","shape":null,"data_offsets":[0,8]}})", 8), "null"},
      {fault(R"({"a":[1,2]})", 0), "out of place"},
      {fault(R"({"__metadata__":{"a":1}})", 0), "out of place"},
      {fault(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "begins at 0"},
  };
  for (const auto& [got, wanted] : cases) EXPECT_NE(got.find(wanted), std::string::npos) << "'" << got << "', wanted " << wanted;
  EXPECT_FALSE(parse_safetensors(std::vector<uint8_t>(7)).ok());
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  const std::string path = ::testing::TempDir() + "sluice_st_" + std::to_string(::getpid()) + ".safetensors";
  const auto bytes = [](uint8_t from, size_t n) {
    return [from, n](const StSink& sink) -> Status {
      std::vector<uint8_t> all(n);
      for (size_t i = 0; i < n; ++i) all[i] = uint8_t(from + i);
      sink(std::span(all).subspan(0, n / 2));
      sink(std::span(all).subspan(n / 2));
      return {};
    };
  };
  const StOutput outputs[] = {{"x.\"weight\"", StDtype::kF8E4M3, {3, 5}, bytes(1, 15)}, {"y", StDtype::kI32, {2}, bytes(9, 8)}};
  ASSERT_TRUE(write_safetensors(path, outputs).ok());
  const auto mapping = Mapping::open(path);
  std::remove(path.c_str());
  ASSERT_TRUE(mapping.ok());
  const auto r = parse_safetensors(mapping->bytes());
  ASSERT_TRUE(r.ok()) << r.error().message;
  ASSERT_EQ(r->tensors.size(), 2u);
  EXPECT_EQ(r->tensors[0].name, "x.\"weight\"");
  EXPECT_EQ(r->tensors[0].dtype, StDtype::kF8E4M3);
  EXPECT_EQ(r->tensors[1].bytes[7], 16);

  const StOutput shorter[] = {{"x", StDtype::kU8, {4}, bytes(0, 3)}};
  const Status s = write_safetensors(path, shorter);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("wrote 3 bytes, announced 4"), std::string::npos);
  EXPECT_FALSE(std::ifstream(path).good());
}

}  // namespace
}  // namespace sluice::format
