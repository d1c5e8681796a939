#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "format/part_file.h"

namespace sluice::format {
namespace {

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("sluice-part-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char* name) const { return (path / name).string(); }
};
std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::span<const uint8_t> bytes(std::string_view s) { return {reinterpret_cast<const uint8_t*>(s.data()), s.size()}; }

TEST(PartFile, AppearsWholeAndLeavesNothingElse) {
  const Folder folder;
  const std::string path = folder.file("a");
  {
    auto p = PartFile::open(path, 7, 2, 8);
    ASSERT_TRUE(p.ok());
    ASSERT_TRUE(p->write(4, bytes("5678")).ok());
    ASSERT_TRUE(p->mark(1).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(p->write(0, bytes("1234")).ok());
    ASSERT_TRUE(p->mark(0).ok());
    ASSERT_TRUE(p->finish().ok());
  }
  EXPECT_EQ(contents(path), "12345678");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

TEST(PartFile, GoesOnWhereAnotherStopped) {
  const Folder folder;
  const std::string path = folder.file("a");
  const std::vector<float> state{1, 2, 3};
  {
    auto p = PartFile::open(path, 7, 3, 8);
    ASSERT_TRUE(p->write(4, bytes("5678")).ok() && p->mark(1).ok() && p->save_state(5, state).ok());
  }
  std::ofstream(path + ".journal", std::ios::app) << "2";  // killed within a line
  {
    auto p = PartFile::open(path, 7, 3, 8);
    ASSERT_TRUE(p.ok());
    EXPECT_TRUE(p->resumed() && p->done(1) && !p->done(0) && !p->done(2));
    int number = 0;
    std::vector<float> values;
    ASSERT_TRUE(p->load_state(number, values));
    EXPECT_EQ(number, 5);
    EXPECT_EQ(values, state);
    ASSERT_TRUE(p->mark(0).ok());
  }
  {
    auto p = PartFile::open(path, 7, 3, 8);
    EXPECT_TRUE(p->done(0) && p->done(1) && !p->done(2));  // the cut line did not become "20"
  }
}

TEST(PartFile, OtherWorkOrDamageBeginsAnew) {
  const Folder folder;
  const std::string path = folder.file("a");
  const auto leave = [&] {
    std::filesystem::remove(path + ".part");
    auto p = PartFile::open(path, 7, 2, 8);
    ASSERT_TRUE(p->mark(1).ok() && p->save_state(5, std::vector<float>{1, 2}).ok());
  };
  leave();
  EXPECT_FALSE(PartFile::open(path, 8, 2, 8)->resumed());
  leave();
  EXPECT_FALSE(PartFile::open(path, 7, 2, 9)->resumed());
  leave();
  std::ofstream(path + ".journal") << "rubbish";
  EXPECT_FALSE(PartFile::open(path, 7, 2, 8)->resumed());
  leave();
  {
    std::fstream f(path + ".state", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(-1, std::ios::end);
    f.put('x');
  }
  int number = 0;
  std::vector<float> values;
  EXPECT_FALSE(PartFile::open(path, 7, 2, 8)->load_state(number, values));
}

TEST(PartFile, OneWriterAtATime) {
  const Folder folder;
  auto first = PartFile::open(folder.file("a"), 7, 1, 8);
  ASSERT_TRUE(first.ok());
  auto second = PartFile::open(folder.file("a"), 7, 1, 8);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(PartFile::open("/nowhere/at/all", 7, 1, 8).ok());
}

}  // namespace
}  // namespace sluice::format
