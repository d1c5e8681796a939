#include "format/gguf_writer.h"

#include <algorithm>
#include <limits>

#include "format/gguf_types.h"
#include "format/new_file.h"

namespace sluice::format {
namespace {

constexpr size_t kAlignment = 32;

// A file's beginning, in memory: everything before the tensors' data.
class Head {
 public:
  template <class T>
  void put(T v) { bytes_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void text(std::string_view s) {
    put(uint64_t(s.size()));
    bytes_ += s;
  }
  void raw(std::string_view s) { bytes_ += s; }
  void pad() { bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment); }
  const std::string& bytes() const { return bytes_; }

  void value(const Value& v) {
    std::visit([this](const auto& x) { one(x); }, v);
  }

 private:
  static bool fits_u32(int64_t i) { return i >= 0 && i <= int64_t(std::numeric_limits<uint32_t>::max()); }
  static bool fits_i32(int64_t i) { return i == int64_t(int32_t(i)); }

  void one(int64_t i) {
    put<uint32_t>(fits_u32(i) ? kU32 : kI64);
    if (fits_u32(i)) put(uint32_t(i));
    else put(i);
  }
  void one(double d) {
    put<uint32_t>(kF32);
    put(float(d));
  }
  void one(bool b) {
    put<uint32_t>(kBool);
    put(uint8_t(b));
  }
  void one(const std::string& s) {
    put<uint32_t>(kString);
    text(s);
  }
  void array(uint32_t type, size_t count) {
    put<uint32_t>(kArray);
    put(type);
    put(uint64_t(count));
  }
  void one(const std::vector<int64_t>& a) {
    const bool small = std::all_of(a.begin(), a.end(), fits_i32);
    array(small ? kI32 : kI64, a.size());
    for (int64_t i : a) {
      if (small) put(int32_t(i));
      else put(i);
    }
  }
  void one(const std::vector<double>& a) {
    array(kF32, a.size());
    for (double d : a) put(float(d));
  }
  void one(const std::vector<bool>& a) {
    array(kBool, a.size());
    for (bool b : a) put(uint8_t(b));
  }
  void one(const std::vector<std::string>& a) {
    array(kString, a.size());
    for (const std::string& s : a) text(s);
  }

  std::string bytes_;
};

uint64_t padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
// Of the data as the file will have it; of a type that is not known, whatever there is.
uint64_t bytes_of(const TensorEntry& t) {
  return t.weight_format ? uint64_t(t.rows()) * quant::row_bytes(*t.weight_format, size_t(t.cols())) : t.bytes.size();
}

}  // namespace

GgufLayout gguf_layout(const Metadata& metadata, std::span<const TensorEntry> tensors) {
  GgufLayout layout;
  Head head;
  head.raw("GGUF");
  head.put(uint32_t{3});
  head.put(uint64_t(tensors.size()));
  head.put(uint64_t(metadata.all().size()));
  for (const auto& [key, value] : metadata.all()) {
    head.text(key);
    head.value(value);
  }
  uint64_t offset = 0;
  for (const TensorEntry& t : tensors) {
    head.text(t.name);
    head.put(uint32_t(t.dims.size()));
    for (int64_t d : t.dims) head.put(uint64_t(d));
    head.put(t.type_id);
    head.put(offset);
    layout.offsets.push_back(offset);
    offset += padded(bytes_of(t));
  }
  head.pad();
  layout.head = head.bytes();
  for (uint64_t& o : layout.offsets) o += layout.head.size();
  layout.file_bytes = layout.head.size() + offset;
  return layout;
}

Status write_gguf(const std::string& path, const Metadata& metadata, std::span<const TensorEntry> tensors) {
  for (const TensorEntry& t : tensors)
    if (is_own_type(t.type_id) || t.input_order)
      return Error{ErrorCode::kUnsupported, t.name + ": GGUF has no layout for what it is in; quantise it to one that GGUF has", {}};
  NewFile file(path);
  file.write(gguf_layout(metadata, tensors).head);
  static constexpr uint8_t kZeros[kAlignment] = {};
  for (const TensorEntry& t : tensors) {
    const size_t rest = bytes_of(t) % kAlignment;
    std::vector<uint8_t> made(t.make_rows ? bytes_of(t) : 0);
    if (t.make_rows) read_rows(t, 0, t.rows(), made.data());
    file.write(t.make_rows ? std::span<const uint8_t>(made) : t.bytes.first(bytes_of(t)));
    file.write({kZeros, rest ? kAlignment - rest : 0});
  }
  return file.finish();
}

}  // namespace sluice::format
