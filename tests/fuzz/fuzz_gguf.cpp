// A model file of any bytes: opening it, reading its hyper-parameters and building its tokenizer give values or errors.
#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "format/weight_file.h"
#include "model/model_spec.h"
#include "model/vocab.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = ::memfd_create("fuzz", 0);
  if (fd < 0 || ::write(fd, data, size) != ssize_t(size)) return 0;
  auto file = sluice::format::open_gguf("/proc/self/fd/" + std::to_string(fd));
  ::close(fd);
  if (!file.ok()) return 0;
  for (const auto& [key, value] : (*file)->metadata().all()) (void)sluice::format::describe(value);
  (void)sluice::model::read_spec((*file)->metadata());
  if (auto t = sluice::model::build_tokenizer((*file)->metadata()); t.ok()) (*t)->encode("Hello \xF0\x9F\x98\x80 world 123", {true, true});
  (void)sluice::model::build_chat_template((*file)->metadata());
  uint64_t sum = 0;
  for (const auto& t : (*file)->tensors())
    if (!t.bytes.empty()) sum += t.bytes.front() + t.bytes.back();
  volatile uint64_t sink = sum;
  (void)sink;
  return 0;
}
