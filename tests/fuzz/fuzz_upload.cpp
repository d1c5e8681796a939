// Uploads: forms, then batch files. The first byte picks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "api/batch_input.h"
#include "api/multipart.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::api;
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const size_t mark = bytes.find('\n');
    const auto parts = parse_multipart(mark == bytes.npos ? "multipart/form-data; boundary=b" : bytes.substr(0, mark),
                                       mark == bytes.npos ? bytes : bytes.substr(mark + 1));
    if (!parts.ok()) return 0;
    if (parts->size() > kMaxParts) std::abort();
    for (const Part& part : *parts)
      if (part.content.data() < bytes.data() || part.content.data() + part.content.size() > bytes.data() + bytes.size()) std::abort();
    return 0;
  }
  ServedModel model;
  model.id = "tiny";
  BatchInput input({}, model, 100);
  input.add(bytes.substr(0, bytes.size() / 2));
  input.add(bytes.substr(bytes.size() / 2));
  input.end();
  if (input.lines().empty() && input.problems().empty()) std::abort();
  return 0;
}
