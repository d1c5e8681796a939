// NewFile: a file that comes to be whole or not at all: written as PATH.part and renamed when it is finished; what is not finished is
// removed. One thread.
#pragma once
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace sluice::format {

class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  // After a failure, which finish tells, nothing more is written.
  void write(std::span<const uint8_t> bytes);
  void write(const std::string& bytes) { write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}); }
  // kIo, with the system's reason for the first failure.
  Status finish();

 private:
  std::string path_, part_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int failed_ = 0;  // errno of the first failure
};

}  // namespace sluice::format
