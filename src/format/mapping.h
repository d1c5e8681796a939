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
  // Has the pages of `part` in memory, and gives all others back to the system's file cache; whoever reads those again gets them
  // from there.
  void keep_only(std::span<const uint8_t> part) const;

 private:
  Mapping(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice::format
