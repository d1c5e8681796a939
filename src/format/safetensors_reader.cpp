// The header goes through a streaming parser: a hostile one of 100 MB costs memory for the tensors it names and no tree.
#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "format/safetensors.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

constexpr StDtypeTraits kDtypes[] = {
    {StDtype::kBool, "BOOL", 1}, {StDtype::kU8, "U8", 1}, {StDtype::kI8, "I8", 1}, {StDtype::kU16, "U16", 2},
    {StDtype::kI16, "I16", 2}, {StDtype::kF16, "F16", 2}, {StDtype::kBF16, "BF16", 2}, {StDtype::kU32, "U32", 4},
    {StDtype::kI32, "I32", 4}, {StDtype::kF32, "F32", 4}, {StDtype::kU64, "U64", 8}, {StDtype::kI64, "I64", 8},
    {StDtype::kF64, "F64", 8}, {StDtype::kC64, "C64", 8}, {StDtype::kF8E4M3, "F8_E4M3", 1}, {StDtype::kF8E5M2, "F8_E5M2", 1},
    {StDtype::kF8E8M0, "F8_E8M0", 1},
};

constexpr size_t kMaxNameBytes = 512;

// A tensor as the header describes it.
struct Record {
  StTensor tensor;
  std::vector<uint64_t> offsets;
  bool has_dtype = false, has_shape = false;
};

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"key": "text"}}, and nothing else.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Record> records;
  std::map<std::string, std::string> metadata;
  std::string fault;

  bool null() override { return fail("a null"); }
  bool boolean(bool) override { return fail("a boolean"); }
  bool number_float(double, const std::string&) override { return fail("a number that is no integer"); }
  bool binary(nlohmann::json::binary_t&) override { return fail("binary"); }
  bool number_integer(int64_t) override { return fail("a number below 0"); }
  bool number_unsigned(uint64_t n) override {
    if (!in_array_) return fail("a number out of place");
    if (field_ == "shape") {
      if (n > (uint64_t{1} << 40)) return fail("a dimension over 2^40");
      if (record().tensor.shape.size() == kMaxStDims) return fail("more than " + std::to_string(kMaxStDims) + " dimensions");
      record().tensor.shape.push_back(int64_t(n));
      return true;
    }
    if (record().offsets.size() == 2) return fail("data_offsets: more than two numbers");
    record().offsets.push_back(n);
    return true;
  }
  bool string(std::string& s) override {
    if (depth_ != 2 || in_array_) return fail("a string out of place");
    if (in_metadata_) {
      metadata[field_] = s;
      return true;
    }
    if (field_ != "dtype") return fail(shown(field_) + ": a string was not expected");
    for (const StDtypeTraits& t : kDtypes)
      if (s == t.name) {
        record().tensor.dtype = t.dtype;
        record().has_dtype = true;
        return true;
      }
    return fail("dtype: '" + shown(s) + "' is not known");
  }
  bool start_object(size_t) override {
    if (in_array_ || depth_ == 2) return fail("an object out of place");
    ++depth_;
    if (depth_ == 2 && !in_metadata_) records.emplace_back().tensor.name = name_;
    return true;
  }
  bool key(std::string& k) override {
    if (depth_ == 1) {
      if (k.empty() || k.size() > kMaxNameBytes) return fail("a name of " + std::to_string(k.size()) + " bytes (1.." + std::to_string(kMaxNameBytes) + ")");
      if (!names_.insert(k).second) return fail(shown(k) + ": the name stands twice");
      name_ = k;
      in_metadata_ = k == "__metadata__";
      fields_.clear();
      return true;
    }
    if (!fields_.insert(k).second) return fail(shown(k) + ": stands twice");
    if (!in_metadata_ && k != "dtype" && k != "shape" && k != "data_offsets") return fail(shown(k) + ": not a field of a tensor");
    field_ = k;
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) {
      const Record& r = records.back();
      if (!r.has_dtype || !r.has_shape || r.offsets.size() != 2) return fail("dtype, shape or data_offsets is missing");
    }
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_array_ || in_metadata_ || (field_ != "shape" && field_ != "data_offsets")) return fail("an array out of place");
    in_array_ = true;
    if (field_ == "shape") record().has_shape = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) override {
    if (fault.empty()) fault = "header: not JSON at byte " + std::to_string(at);
    return false;
  }

 private:
  Record& record() { return records.back(); }
  bool fail(std::string what) {
    fault = "header: " + (depth_ > 0 && !name_.empty() ? shown(name_) + ": " : std::string()) + std::move(what);
    return false;
  }
  int depth_ = 0;
  bool in_array_ = false, in_metadata_ = false;
  std::string name_, field_;
  std::set<std::string> names_, fields_;
};

// Bytes that shape and dtype ask for; false beyond 2^62.
bool wanted_bytes(const StTensor& t, uint64_t& out) {
  int64_t n = traits(t.dtype).bytes;
  bool empty = false;
  for (int64_t d : t.shape) {
    empty = empty || d == 0;
    if (d != 0 && __builtin_mul_overflow(n, d, &n)) return false;
  }
  out = empty ? 0 : uint64_t(n);
  return n <= int64_t{1} << 62;
}

// Tensors in the order of their bytes, which must follow one another from 0 to the end.
Status place(std::vector<Record>& records, std::span<const uint8_t> data, StFile& out) {
  std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.offsets < b.offsets; });
  uint64_t at = 0;
  for (Record& r : records) {
    const std::string name = shown(r.tensor.name);
    uint64_t wanted;
    if (!wanted_bytes(r.tensor, wanted)) return bad_file(name + ": the dimensions' product overflows");
    const uint64_t begin = r.offsets[0], end = r.offsets[1];
    if (end > data.size() || begin > end) return bad_file(name + ": its data goes beyond the end of the file");
    if (begin != at) return bad_file(name + ": its data begins at " + std::to_string(begin) + ", and what is before ends at " + std::to_string(at));
    if (end - begin != wanted) return bad_file(name + ": " + std::to_string(end - begin) + " bytes, and its shape takes " + std::to_string(wanted));
    r.tensor.bytes = data.subspan(begin, wanted);
    at = end;
    out.tensors.push_back(std::move(r.tensor));
  }
  if (at != data.size()) return bad_file(std::to_string(data.size() - at) + " bytes after the last tensor");
  return {};
}

}  // namespace

std::span<const StDtypeTraits> st_dtypes() { return kDtypes; }
const StDtypeTraits& traits(StDtype dtype) { return kDtypes[size_t(dtype)]; }

Result<StFile> parse_safetensors(std::span<const uint8_t> file) {
  uint64_t length;
  if (file.size() < sizeof length) return bad_file("not a safetensors file (fewer than 8 bytes)");
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMaxStHeaderBytes) return bad_file("not a safetensors file (a header of " + std::to_string(length) + " bytes, the most is 100000000)");
  if (length > file.size() - sizeof length) return bad_file("the file ends inside the header");
  const std::span<const uint8_t> header = file.subspan(sizeof length, length);
  if (header.empty() || header.front() != '{') return bad_file("not a safetensors file (the header is no JSON object)");
  HeaderEvents events;
  const char* const text = reinterpret_cast<const char*>(header.data());
  if (!nlohmann::json::sax_parse(text, text + header.size(), &events)) return bad_file(events.fault);
  StFile out;
  out.metadata = std::move(events.metadata);
  out.tensors.reserve(events.records.size());
  SLUICE_TRY(place(events.records, file.subspan(sizeof length + length), out));
  return out;
}

}  // namespace sluice::format
