// Request bodies through the parsers of every endpoint that takes one. The first byte picks the endpoint.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/api/fakes.h"

namespace {

using namespace sluice;

api::test::Bench& bench() {
  static api::test::Bench* b = [] {
    auto chat = text::ChatTemplate::parse("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}");
    auto* made = new api::test::Bench({}, true, 4096, chat.ok() ? *chat : nullptr);
    made->script({api::test::token(0, 260, "\xF0\x9F"), api::test::end(0)});
    return made;
  }();
  return *b;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* const kPaths[] = {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"};
  if (size == 0) return 0;
  auto& b = bench();
  const auto reply = b.post(kPaths[data[0] % 4], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  if (reply.status >= 500) std::abort();  // whatever the body, the fault is the client's
  b.engine->submissions.clear();
  return 0;
}
