#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "format/weight_file.h"

namespace sluice::format {
namespace {

// Builds GGUF bytes by hand, so that each field can be made wrong.
struct Builder {
  std::string bytes;
  template <class T>
  Builder& put(T v) {
    bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  Builder& str(const std::string& s) {
    put<uint64_t>(s.size());
    bytes += s;
    return *this;
  }
  Builder& header(uint64_t tensors, uint64_t kv, uint32_t version = 3) {
    bytes += "GGUF";
    return put(version).put(tensors).put(kv);
  }
  Builder& tensor(const std::string& name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    str(name).put<uint32_t>(uint32_t(dims.size()));
    for (uint64_t d : dims) put(d);
    return put(type).put(offset);
  }
  Builder& pad() {
    bytes.resize((bytes.size() + 31) / 32 * 32);
    return *this;
  }
};

Result<std::shared_ptr<const WeightFile>> open_bytes(const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "sluice_gguf_" + std::to_string(::getpid()) + ".gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  auto r = open_gguf(path);
  std::remove(path.c_str());
  return r;
}

void expect_error(const Builder& b, const std::string& part) {
  auto r = open_bytes(b.bytes);
  ASSERT_FALSE(r.ok()) << "wanted an error with: " << part;
  EXPECT_NE(r.error().message.find(part), std::string::npos) << r.error().message;
  EXPECT_EQ(r.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(traits(r.error().code).exit_status, 2);
}

TEST(Gguf, ReadsWhatItShould) {
  Builder b;
  b.header(2, 3).str("general.architecture").put<uint32_t>(8).str("llama");
  b.str("n").put<uint32_t>(10).put<uint64_t>(7);
  b.str("list").put<uint32_t>(9).put<uint32_t>(8).put<uint64_t>(2).str("a").str("bc");
  b.tensor("one", {4}, 0, 0).tensor("two", {32, 2}, 8, 32).pad();
  for (float f : {1.f, 2.f, 3.f, 4.f}) b.put(f);
  b.pad();
  b.bytes.resize(b.bytes.size() + 68);
  auto r = open_bytes(b.bytes);
  ASSERT_TRUE(r.ok()) << r.error().message;
  const WeightFile& f = **r;
  EXPECT_EQ(*f.metadata().string("general.architecture"), "llama");
  EXPECT_EQ(*f.metadata().integer("n", 0, 10), 7);
  EXPECT_FALSE(f.metadata().integer("n", 8, 10).ok());
  EXPECT_EQ((*f.metadata().array<std::string>("list"))->at(1), "bc");
  ASSERT_TRUE(f.find("two"));
  EXPECT_EQ(f.find("two")->rows(), 2);
  EXPECT_EQ(f.find("two")->bytes.size(), 68u);
  float v;
  std::memcpy(&v, f.find("one")->bytes.data() + 8, 4);
  EXPECT_EQ(v, 3.f);
}

TEST(Gguf, HostileFilesNameTheField) {
  expect_error(Builder{"nonsense"}, "magic");
  expect_error(Builder().header(0, 0, 1), "version");
  expect_error(Builder().header(0, 0, 0x03000000), "big-endian");
  expect_error(Builder().header(1'000'000'000, 0), "tensor_count");
  expect_error(Builder().header(0, 1'000'000'000), "kv_count");
  expect_error(Builder().header(0, 1).str("k").put<uint32_t>(99).put<uint64_t>(0), "unknown value type");
  expect_error(Builder().header(0, 1).str("k").put<uint32_t>(8).put<uint64_t>(~0ull), "k");
  expect_error(Builder().header(0, 1).str("k").put<uint32_t>(9).put<uint32_t>(4).put<uint64_t>(1ull << 62), "k");
  expect_error(Builder().header(0, 1).str("k").put<uint32_t>(9).put<uint32_t>(9).put<uint64_t>(1), "arrays of arrays");
  expect_error(Builder().header(0, 1).str("k").put<uint32_t>(7).put<uint8_t>(2), "bool");
  expect_error(Builder().header(0, 1).str("k").put<uint32_t>(10).put<uint64_t>(~0ull), "2^63");
  Builder twice;
  twice.header(0, 2);
  for (int i = 0; i < 2; ++i) twice.str("k").put<uint32_t>(0).put<uint8_t>(1).put<uint64_t>(0);
  twice.bytes.clear();
  twice.header(0, 2);
  for (int i = 0; i < 2; ++i) twice.str("same").put<uint32_t>(4).put<uint32_t>(1);
  expect_error(twice, "stands twice");
  expect_error(Builder().header(1, 0).tensor("t", {0, 4}, 0, 0).pad(), "zero");
  expect_error(Builder().header(1, 0).tensor("t", {1ull << 40, 1ull << 40}, 0, 0).pad(), "overflows");
  expect_error(Builder().header(1, 0).tensor("t", {4}, 0, 1ull << 60).pad(), "beyond the end");
  expect_error(Builder().header(1, 0).tensor("t", {1u << 30}, 0, 0).pad(), "beyond the end");
  expect_error(Builder().header(1, 0).tensor("t", {33}, 8, 0).pad(), "multiple");
  expect_error(Builder().header(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0).pad(), "dimensions");
  expect_error(Builder().header(1, 0).tensor(std::string(65, 'x'), {1}, 0, 0).pad(), "name");
  expect_error(Builder().header(1, 1).str("general.alignment").put<uint32_t>(4).put<uint32_t>(24).tensor("t", {1}, 0, 0), "alignment");
}

// Every prefix of a good file is an error or a good file; never a crash.
TEST(Gguf, EveryTruncationIsHandled) {
  Builder b;
  b.header(1, 2).str("a").put<uint32_t>(8).str("text").str("b").put<uint32_t>(9).put<uint32_t>(6).put<uint64_t>(3);
  for (int i = 0; i < 3; ++i) b.put(1.0f);
  b.tensor("t", {32}, 8, 0).pad();
  b.bytes.resize(b.bytes.size() + 34);
  ASSERT_TRUE(open_bytes(b.bytes).ok());
  for (size_t n = 0; n < b.bytes.size(); ++n) EXPECT_FALSE(open_bytes(b.bytes.substr(0, n)).ok()) << n;
}

}  // namespace
}  // namespace sluice::format
