// GGUF, as its specification gives it (ggml docs/gguf.md). Everything is bounds-checked before it is used: a hostile file
// costs at most memory in proportion to its own size.
#include <bit>
#include <cstring>
#include <limits>

#include "format/gguf_types.h"
#include "format/shown.h"
#include "format/weight_file.h"

namespace sluice::format {
namespace {

constexpr uint64_t kMaxStringBytes = uint64_t{1} << 30;
constexpr size_t kMaxNameBytes = 64;
constexpr uint32_t kMaxDims = 4;
constexpr size_t kMinTensorRecord = 8 + 1 + 4 + 8 + 4 + 8;  // the least a tensor's description takes
constexpr size_t kMinKvRecord = 8 + 1 + 4 + 1;

// Bytes of one fixed-size value; 0 for string, array and unknown types.
size_t fixed_bytes(uint32_t type) {
  switch (type) {
    case kU8: case kI8: case kBool: return 1;
    case kU16: case kI16: return 2;
    case kU32: case kI32: case kF32: return 4;
    case kU64: case kI64: case kF64: return 8;
    default: return 0;
  }
}

// Reads forward through bytes; every read says whether the bytes were there.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  size_t left() const { return bytes_.size() - at_; }
  size_t at() const { return at_; }
  template <class T>
  bool read(T& out) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool read_string(std::string& out) {
    uint64_t n;
    if (!read(n) || n > kMaxStringBytes || n > left()) return false;
    out.assign(reinterpret_cast<const char*>(bytes_.data()) + at_, n);
    at_ += n;
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

}  // namespace

class GgufReader {
 public:
  explicit GgufReader(Mapping mapping) : file_(new WeightFile(std::move(mapping))), in_(file_->mappings_.front().bytes()) {}

  Result<std::shared_ptr<const WeightFile>> read() {
    SLUICE_TRY(read_header());
    for (uint64_t i = 0; i < num_kv_; ++i) SLUICE_TRY(read_kv(i));
    SLUICE_ASSIGN(int64_t alignment, file_->metadata_.integer_or("general.alignment", 32, 1, 1 << 20));
    if (!std::has_single_bit(uint64_t(alignment))) return bad_file("general.alignment: not a power of two");
    file_->tensors_.reserve(num_tensors_);
    offsets_.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) SLUICE_TRY(read_tensor(i));
    SLUICE_TRY(place_tensors(uint64_t(alignment)));
    return std::shared_ptr<const WeightFile>(std::move(file_));
  }

 private:
  static Error truncated(std::string what) { return bad_file("the file ends inside " + std::move(what)); }

  Status read_header() {
    char magic[4];
    uint32_t version;
    if (!in_.read(magic) || std::memcmp(magic, "GGUF", 4) != 0) return bad_file("not a GGUF file (no GGUF magic)");
    if (!in_.read(version)) return truncated("the header");
    if ((version & 0xFFFF) == 0) return bad_file("version: a big-endian GGUF file, which is not supported");
    if (version != 2 && version != 3)
      return bad_file("version: " + std::to_string(version) + " is not supported (2 and 3 are)");
    if (!in_.read(num_tensors_) || !in_.read(num_kv_)) return truncated("the header");
    if (num_tensors_ > in_.left() / kMinTensorRecord)
      return bad_file("tensor_count: " + std::to_string(num_tensors_) + " do not fit in the file");
    if (num_kv_ > in_.left() / kMinKvRecord)
      return bad_file("kv_count: " + std::to_string(num_kv_) + " do not fit in the file");
    return {};
  }

  Status read_kv(uint64_t index) {
    std::string key;
    uint32_t type;
    const std::string where = "metadata entry " + std::to_string(index);
    if (!in_.read_string(key)) return truncated("the key of " + where);
    if (key.empty() || key.size() > 65535) return bad_file(where + ": a key of " + std::to_string(key.size()) + " bytes");
    if (!in_.read(type)) return truncated(shown(key));
    SLUICE_ASSIGN(Value value, type == kArray ? read_array(key) : read_scalar(key, type));
    if (!file_->metadata_.insert(key, std::move(value))) return bad_file(shown(key) + ": the key stands twice");
    return {};
  }

  Result<Value> read_scalar(const std::string& key, uint32_t type) {
    if (type == kString) {
      std::string s;
      if (!in_.read_string(s)) return truncated(shown(key));
      return Value(std::move(s));
    }
    if (fixed_bytes(type) == 0) return bad_file(shown(key) + ": unknown value type " + std::to_string(type));
    if (in_.left() < fixed_bytes(type)) return truncated(shown(key));
    if (type == kF32 || type == kF64) return Value(read_float(type));
    if (type == kBool) {
      uint8_t b = 0;
      in_.read(b);
      if (b > 1) return bad_file(shown(key) + ": a bool of value " + std::to_string(b));
      return Value(b == 1);
    }
    SLUICE_ASSIGN(int64_t i, read_integer(key, type));
    return Value(i);
  }

  // Callers checked that the bytes are there.
  double read_float(uint32_t type) {
    if (type == kF64) {
      double d = 0;
      in_.read(d);
      return d;
    }
    float f = 0;
    in_.read(f);
    return f;
  }
  template <class T>
  int64_t take() {
    T v{};
    in_.read(v);
    return int64_t(v);
  }
  Result<int64_t> read_integer(const std::string& key, uint32_t type) {
    switch (type) {
      case kU8: return take<uint8_t>();
      case kI8: return take<int8_t>();
      case kU16: return take<uint16_t>();
      case kI16: return take<int16_t>();
      case kU32: return take<uint32_t>();
      case kI32: return take<int32_t>();
      case kI64: return take<int64_t>();
      default: {
        uint64_t v = 0;
        in_.read(v);
        if (v > uint64_t(std::numeric_limits<int64_t>::max())) return bad_file(shown(key) + ": beyond 2^63");
        return int64_t(v);
      }
    }
  }

  Result<Value> read_array(const std::string& key) {
    uint32_t type;
    uint64_t count;
    if (!in_.read(type) || !in_.read(count)) return truncated(shown(key));
    if (type == kArray) return bad_file(shown(key) + ": arrays of arrays are not supported");
    if (type == kString) {
      if (count > in_.left() / 8) return truncated(shown(key));
      std::vector<std::string> a(count);
      for (auto& s : a)
        if (!in_.read_string(s)) return truncated(shown(key));
      return Value(std::move(a));
    }
    const size_t width = fixed_bytes(type);
    if (width == 0) return bad_file(shown(key) + ": unknown element type " + std::to_string(type));
    if (count > in_.left() / width) return truncated(shown(key));
    if (type == kF32 || type == kF64) {
      std::vector<double> a(count);
      for (auto& v : a) v = read_float(type);
      return Value(std::move(a));
    }
    if (type == kBool) {
      std::vector<bool> a(count);
      for (size_t i = 0; i < count; ++i) a[i] = take<uint8_t>() != 0;
      return Value(std::move(a));
    }
    std::vector<int64_t> a(count);
    for (auto& v : a) {
      SLUICE_ASSIGN(v, read_integer(key, type));
    }
    return Value(std::move(a));
  }

  Status read_tensor(uint64_t index) {
    TensorEntry t;
    uint32_t num_dims;
    uint64_t offset;
    const std::string where = "tensor " + std::to_string(index);
    if (!in_.read_string(t.name)) return truncated("the name of " + where);
    if (t.name.empty() || t.name.size() > kMaxNameBytes)
      return bad_file(where + ": a name of " + std::to_string(t.name.size()) + " bytes (1.." + std::to_string(kMaxNameBytes) + ")");
    const std::string name = shown(t.name);
    if (!in_.read(num_dims)) return truncated(name);
    if (num_dims < 1 || num_dims > kMaxDims) return bad_file(name + ": " + std::to_string(num_dims) + " dimensions (1..4)");
    int64_t elements = 1;
    for (uint32_t d = 0; d < num_dims; ++d) {
      uint64_t n;
      if (!in_.read(n)) return truncated(name);
      if (n == 0) return bad_file(name + ": dimension " + std::to_string(d) + " is zero");
      if (n > (uint64_t{1} << 40) || __builtin_mul_overflow(elements, int64_t(n), &elements))
        return bad_file(name + ": the dimensions' product overflows");
      t.dims.push_back(int64_t(n));
    }
    if (!in_.read(t.type_id) || !in_.read(offset)) return truncated(name);
    t.weight_format = is_own_type(t.type_id) ? nullptr : quant::find_format(t.type_id);
    if (t.weight_format && t.dims[0] % t.weight_format->block_elements != 0)
      return bad_file(name + ": a row of " + std::to_string(t.dims[0]) + " is no multiple of " + t.weight_format->name + "'s block");
    offsets_.push_back(offset);
    file_->tensors_.push_back(std::move(t));
    return {};
  }

  Status place_tensors(uint64_t alignment) {
    const auto bytes = file_->mappings_.front().bytes();
    const uint64_t data = (in_.at() + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < file_->tensors_.size(); ++i) {
      TensorEntry& t = file_->tensors_[i];
      if (!file_->by_name_.emplace(t.name, i).second) return bad_file(shown(t.name) + ": the tensor stands twice");
      if (!t.weight_format) continue;
      const uint64_t blocks = uint64_t(t.elements()) / uint64_t(t.weight_format->block_elements);
      const uint64_t room = data <= bytes.size() ? bytes.size() - data : 0;
      if (offsets_[i] > room || blocks > (room - offsets_[i]) / uint64_t(t.weight_format->block_bytes))
        return bad_file(shown(t.name) + ": its data goes beyond the end of the file");
      if (offsets_[i] % alignment != 0) return bad_file(shown(t.name) + ": offset " + std::to_string(offsets_[i]) + " is not aligned");
      t.bytes = bytes.subspan(data + offsets_[i], blocks * uint64_t(t.weight_format->block_bytes));
    }
    return {};
  }

  std::shared_ptr<WeightFile> file_;
  Cursor in_;
  uint64_t num_tensors_ = 0, num_kv_ = 0;
  std::vector<uint64_t> offsets_;
};

Result<std::shared_ptr<const WeightFile>> open_gguf(const std::string& path) {
  SLUICE_ASSIGN(Mapping mapping, Mapping::open(path));
  auto file = GgufReader(std::move(mapping)).read();
  if (!file.ok()) return Error{file.error().code, path + ": " + file.error().message, {}};
  return file;
}

}  // namespace sluice::format
