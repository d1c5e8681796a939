// Bytes as a socket would give them, in pieces whose size the first byte sets, through the request reader and its limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "http/request_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::http::RequestReader;
  if (size == 0) return 0;
  const size_t piece = data[0] ? data[0] : size;
  constexpr size_t kMaxHeader = 1024, kMaxBody = 4096, kMaxLarge = 8192;
  auto reader = std::make_unique<RequestReader>(kMaxHeader, sluice::http::BodyLimits{kMaxBody, {{"/large", kMaxLarge}}});
  std::string pending;
  for (size_t at = 1; at < size; at += piece) {
    pending.append(reinterpret_cast<const char*>(data) + at, std::min(piece, size - at));
    for (;;) {
      const auto state = reader->feed(pending);
      if (state == RequestReader::State::kFailed) {
        if (reader->error_status() < 400 || reader->error_message().empty()) std::abort();
        return 0;
      }
      if (state != RequestReader::State::kDone) break;
      const bool keep = reader->keep_alive();
      const auto request = reader->take();
      if (request.body.size() > (request.path == "/large" ? kMaxLarge : kMaxBody) || request.method.empty()) std::abort();
      if (!keep) return 0;
      reader = std::make_unique<RequestReader>(kMaxHeader, sluice::http::BodyLimits{kMaxBody, {{"/large", kMaxLarge}}});  // a pipelined one
      if (pending.empty()) break;
    }
  }
  return 0;
}
