#include <nlohmann/json.hpp>

#include "format/new_file.h"
#include "format/safetensors.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

// Its length, then the header, padded with spaces so that the data begins at a multiple of 8.
std::string make_header(std::span<const StOutput> tensors) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  uint64_t at = 0;
  for (const StOutput& t : tensors) {
    const uint64_t end = at + t.bytes();
    header[t.name] = {{"dtype", traits(t.dtype).name}, {"shape", t.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

uint64_t StOutput::bytes() const {
  auto n = uint64_t(traits(dtype).bytes);
  for (int64_t d : shape) n *= uint64_t(d);
  return n;
}

Status write_safetensors(const std::string& path, std::span<const StOutput> tensors) {
  NewFile file(path);
  file.write(make_header(tensors));
  for (const StOutput& t : tensors) {
    uint64_t done = 0;
    SLUICE_TRY(t.write([&](std::span<const uint8_t> piece) {
      file.write(piece);
      done += piece.size();
    }));
    if (done != t.bytes()) return Error{ErrorCode::kInternal, shown(t.name) + ": wrote " + std::to_string(done) + " bytes, announced " + std::to_string(t.bytes()), {}};
  }
  return file.finish();
}

}  // namespace sluice::format
