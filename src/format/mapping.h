// Mapping: a file mapped read-only into memory. Movable; unmapped on destruction. Any thread may read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace sluice::format {

class Mapping {
 public:
  // Errors: kNotFound, kIo, kBadFile for something that is no regular file.
  static Result<Mapping> open(const std::string& path);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  Mapping(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice::format
