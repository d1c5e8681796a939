// BackendBuffer: memory of a backend, or memory of the host for copies to and from it; zero-initialised. Movable; any thread.
#pragma once
#include <utility>

#include "kernels/abi.h"

namespace sluice::kernels {

enum class MemoryKind : uint8_t { kBackend, kStaging };

class BackendBuffer {
 public:
  BackendBuffer() = default;
  // Empty (ok() is false) where the device has no room.
  BackendBuffer(const KernelTable& table, size_t bytes, MemoryKind kind = MemoryKind::kBackend)
      : table_(&table), kind_(kind), bytes_(bytes) {
    if (bytes) data_ = (kind == MemoryKind::kBackend ? table.allocate : table.allocate_staging)(table.device, bytes);
  }
  BackendBuffer(BackendBuffer&& o) noexcept
      : table_(o.table_), kind_(o.kind_), data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  BackendBuffer& operator=(BackendBuffer&& o) noexcept {
    std::swap(table_, o.table_);
    std::swap(kind_, o.kind_);
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~BackendBuffer() {
    if (data_) (kind_ == MemoryKind::kBackend ? table_->release : table_->release_staging)(table_->device, data_, bytes_);
  }
  bool ok() const { return data_ != nullptr || bytes_ == 0; }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const { return static_cast<T*>(data_); }

 private:
  const KernelTable* table_ = nullptr;
  MemoryKind kind_ = MemoryKind::kBackend;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice::kernels
