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

Error wrong_size(const StOutput& t, uint64_t done) {
  return {ErrorCode::kInternal, shown(t.name) + ": wrote " + std::to_string(done) + " bytes, announced " + std::to_string(t.bytes()), {}};
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
    if (done != t.bytes()) return wrong_size(t, done);
  }
  return file.finish();
}

Result<StPart> StPart::open(const std::string& path, std::span<const StOutput> tensors, uint64_t fingerprint) {
  std::string header = make_header(tensors);
  uint64_t bytes = header.size();
  for (const StOutput& t : tensors) bytes += t.bytes();
  SLUICE_ASSIGN(PartFile file, PartFile::open(path, hash_bytes(header.data(), header.size(), fingerprint), tensors.size(), bytes));
  return StPart(std::move(file), std::move(header), tensors);
}

Status StPart::write(const std::function<void(size_t)>& whole) {
  SLUICE_TRY(file_.write(0, {reinterpret_cast<const uint8_t*>(header_.data()), header_.size()}));
  uint64_t at = header_.size();
  for (size_t i = 0; i < tensors_.size(); at += tensors_[i++].bytes()) {
    if (file_.done(i)) continue;
    const StOutput& t = tensors_[i];
    uint64_t done = 0;
    Status written;
    SLUICE_TRY(t.write([&](std::span<const uint8_t> piece) {
      if (written.ok() && done + piece.size() <= t.bytes()) written = file_.write(at + done, piece);
      done += piece.size();
    }));
    SLUICE_TRY(written);
    if (done != t.bytes()) return wrong_size(t, done);
    SLUICE_TRY(file_.mark(i));
    whole(i);
  }
  return {};
}

}  // namespace sluice::format
