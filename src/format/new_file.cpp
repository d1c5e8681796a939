#include "format/new_file.h"

#include <cerrno>
#include <cstring>

namespace sluice::format {

NewFile::NewFile(const std::string& path) : path_(path), part_(path + ".part"), file_(std::fopen(part_.c_str(), "wb"), std::fclose) {
  if (!file_) failed_ = errno;
}

NewFile::~NewFile() {
  if (file_) std::remove(part_.c_str());
}

void NewFile::write(std::span<const uint8_t> bytes) {
  if (failed_ == 0 && !bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) failed_ = errno;
}

Status NewFile::finish() {
  const bool begun = file_ != nullptr;
  if (begun && std::fclose(file_.release()) != 0 && failed_ == 0) failed_ = errno;
  if (failed_ == 0 && std::rename(part_.c_str(), path_.c_str()) != 0) failed_ = errno;
  if (failed_ == 0) return {};
  if (begun) std::remove(part_.c_str());
  return Error{ErrorCode::kIo, path_ + ": " + std::strerror(failed_), {}};
}

}  // namespace sluice::format
