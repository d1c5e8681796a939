#include "format/mapping.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace sluice::format {
namespace {

constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14

}  // namespace

Result<Mapping> Mapping::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Error{code, path + ": " + std::strerror(errno), {}};
  }
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    return bad_file(path + ": not a regular file");
  }
  const size_t size = size_t(st.st_size);
  if (size == 0) {
    ::close(fd);
    return bad_file(path + ": the file is empty");
  }
  void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int saved = errno;
  ::close(fd);
  if (p == MAP_FAILED) return Error{ErrorCode::kIo, path + ": mmap: " + std::strerror(saved), {}};
  return Mapping(static_cast<const uint8_t*>(p), size);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
Mapping::~Mapping() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}


void Mapping::keep_only(std::span<const uint8_t> part) const {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  const size_t begin = part.empty() ? size_ : size_t(part.data() - data_) / page * page;
  const size_t end = part.empty() ? size_ : (size_t(part.data() - data_) + part.size() + page - 1) / page * page;
  auto* data = const_cast<uint8_t*>(data_);
  ::madvise(data, begin, MADV_DONTNEED);  // read-only and private to nobody: nothing can be lost
  if (end < size_) ::madvise(data + end, size_ - end, MADV_DONTNEED);
  // Later, each page would be a wait in the middle of somebody's step. Systems that do not know the advice read them then.
  if (begin < end) ::madvise(data + begin, std::min(end, size_) - begin, kPopulateRead);
}

}  // namespace sluice::format
