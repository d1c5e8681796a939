#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <nlohmann/json.hpp>

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
  const std::string part = path + ".part";
  const auto failed = [&] { return Error{ErrorCode::kIo, path + ": " + std::strerror(errno), {}}; };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(part.c_str(), "wb"), std::fclose);
  if (!file) return failed();
  const std::string header = make_header(tensors);
  bool written = std::fwrite(header.data(), 1, header.size(), file.get()) == header.size();
  for (const StOutput& t : tensors) {
    uint64_t done = 0;
    Status status = t.write([&](std::span<const uint8_t> piece) {
      written = written && (piece.empty() || std::fwrite(piece.data(), 1, piece.size(), file.get()) == piece.size());
      done += piece.size();
    });
    if (status.ok() && done == t.bytes()) continue;
    std::remove(part.c_str());
    return !status.ok() ? status.error() : Error{ErrorCode::kInternal, shown(t.name) + ": wrote " + std::to_string(done) + " bytes, announced " + std::to_string(t.bytes()), {}};
  }
  written = std::fclose(file.release()) == 0 && written;
  if (!written || std::rename(part.c_str(), path.c_str()) != 0) {
    const Error e = failed();
    std::remove(part.c_str());
    return e;
  }
  return {};
}

}  // namespace sluice::format
