// A file that is there whole or not at all.
#include "format/new_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace sluice::format {
namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(NewFile, TakesTheNameWhenItIsFinished) {
  const std::string path = ::testing::TempDir() + "sluice_new_" + std::to_string(::getpid());
  std::ofstream(path) << "old";
  {
    NewFile given_up(path);
    given_up.write("half");
  }
  EXPECT_EQ(contents(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  NewFile file(path);
  file.write("new ");
  file.write(std::string());
  file.write("words");
  EXPECT_EQ(contents(path), "old");
  ASSERT_TRUE(file.finish().ok());
  EXPECT_EQ(contents(path), "new words");
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  std::filesystem::remove(path);
}

TEST(NewFile, SaysWhyItCouldNot) {
  NewFile nowhere("/no/such/folder/file");
  nowhere.write("words");
  const Status s = nowhere.finish();
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, ErrorCode::kIo);
  EXPECT_NE(s.error().message.find("/no/such/folder/file: No such file"), std::string::npos) << s.error().message;
  const std::string folder = ::testing::TempDir() + "sluice_new_folder_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder + "/full");
  NewFile onto_a_folder(folder);
  EXPECT_FALSE(onto_a_folder.finish().ok());
  EXPECT_FALSE(std::filesystem::exists(folder + ".part"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::format
