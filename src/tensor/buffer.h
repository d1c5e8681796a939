// Buffer: zero-initialised memory aligned to 64 bytes, in huge pages where the system has them. Pages are taken when they
// are first touched. Movable; any thread.
#pragma once
#include <cstddef>
#include <utility>

namespace sluice {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // aborts the process when the address space cannot be had: sizes are planned before
  Buffer(Buffer&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Buffer& operator=(Buffer&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~Buffer();
  // The memory alone, for those who keep it through a C interface; adopt takes it back, with its size.
  void* release() {
    bytes_ = 0;
    return std::exchange(data_, nullptr);
  }
  static Buffer adopt(void* data, size_t bytes) {
    Buffer b;
    b.data_ = data;
    b.bytes_ = bytes;
    return b;
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice
