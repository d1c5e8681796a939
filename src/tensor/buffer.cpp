#include "tensor/buffer.h"

#include <sys/mman.h>

#include "base/result.h"

namespace sluice {

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SLUICE_CHECK(p != MAP_FAILED);
  data_ = p;
  ::madvise(p, bytes, MADV_HUGEPAGE);  // advice: nothing depends on it
}

Buffer::~Buffer() {
  if (data_) ::munmap(data_, bytes_);
}

}  // namespace sluice
