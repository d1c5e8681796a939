// safetensors, one file: u64 length of a JSON header, the header, then tensors' bytes, little-endian and row-major. Every count,
// offset and size is checked against the file before an entry exists. Pure functions; any thread.
// Source: the format's description in the safetensors project. Errors: kBadFile naming the tensor and the limit.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/part_file.h"

namespace sluice::format {

enum class StDtype : uint8_t {
  kBool, kU8, kI8, kU16, kI16, kF16, kBF16, kU32, kI32, kF32, kU64, kI64, kF64, kC64, kF8E4M3, kF8E5M2, kF8E8M0,
};
struct StDtypeTraits {
  StDtype dtype;
  const char* name;  // in the header
  int bytes;         // an element
};
std::span<const StDtypeTraits> st_dtypes();
const StDtypeTraits& traits(StDtype dtype);

constexpr uint64_t kMaxStHeaderBytes = 100'000'000;
constexpr size_t kMaxStDims = 8;

struct StTensor {
  std::string name;
  StDtype dtype{};
  std::vector<int64_t> shape;      // slowest first; [] is a scalar; zeros are allowed
  std::span<const uint8_t> bytes;  // of the file

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

struct StFile {
  std::vector<StTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// The tensors of a whole file, as views into it. They cover the data exactly, as the format demands.
Result<StFile> parse_safetensors(std::span<const uint8_t> file);

using StSink = std::function<void(std::span<const uint8_t>)>;

// A tensor to be written: `write` is called once, in the order of the list, and hands all its bytes to the sink, in pieces as it
// likes. So what is computed on the way needs memory for one tensor.
struct StOutput {
  std::string name;
  StDtype dtype{};
  std::vector<int64_t> shape;
  std::function<Status(const StSink& sink)> write;

  uint64_t bytes() const;
};

// The file appears under its name when it is complete. Errors: kIo; a tensor's own; kInternal where it wrote another number of bytes.
Status write_safetensors(const std::string& path, std::span<const StOutput> tensors);

// The same, gone on with after a kill (part_file.h): tensors that are whole already are not asked for again.
class StPart {
 public:
  // fingerprint: of all that decides the tensors' values; tensors: outlive this. Errors: as PartFile::open.
  static Result<StPart> open(const std::string& path, std::span<const StOutput> tensors, uint64_t fingerprint);
  bool resumed() const { return file_.resumed(); }
  bool done(size_t tensor) const { return file_.done(tensor); }
  // What is missing, in order; tells of every tensor that has become whole.
  Status write(const std::function<void(size_t)>& whole);
  Status finish() { return file_.finish(); }

 private:
  StPart(PartFile file, std::string header, std::span<const StOutput> tensors) : file_(std::move(file)), header_(std::move(header)), tensors_(tensors) {}
  PartFile file_;
  std::string header_;
  std::span<const StOutput> tensors_;
};

}  // namespace sluice::format
