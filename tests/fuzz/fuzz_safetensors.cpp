// A safetensors file of any bytes, and a folder whose tokenizer.json or config.json is: values or errors.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <unistd.h>

#include "format/hf_arch.h"
#include "format/hf_tokenizer.h"
#include "format/safetensors.h"
#include "model/vocab.h"

namespace {

uint64_t read_tensors(std::span<const uint8_t> bytes) {
  uint64_t sum = 0;
  const auto file = sluice::format::parse_safetensors(bytes);
  if (file.ok())
    for (const auto& t : file->tensors)
      if (!t.bytes.empty()) sum += t.bytes.front() + t.bytes.back() + uint64_t(t.elements());
  return sum;
}

void read_tokenizer(std::span<const uint8_t> bytes) {
  static const std::string folder = "/tmp/sluice_fuzz_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tokenizer.json", std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  sluice::format::Metadata m;
  if (!sluice::format::read_hf_tokenizer(folder, sluice::format::Json::object(), 300, m).ok()) return;
  if (auto t = sluice::model::build_tokenizer(m); t.ok()) (*t)->encode("Hello \xF0\x9F\x98\x80 world 123", {true, true});
}

void read_config(std::span<const uint8_t> bytes) {
  const auto config = sluice::format::Json::parse(bytes.begin(), bytes.end(), nullptr, false);
  for (const sluice::format::HfArch* arch : sluice::format::hf_table()) {
    sluice::format::Metadata m;
    (void)sluice::format::read_common_config(*arch, config, m);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> rest(data + 1, size - 1);
  volatile uint64_t sink = 0;
  switch (data[0] % 4) {
    case 0: read_tokenizer(rest); break;
    case 1: read_config(rest); break;
    default: sink = read_tensors(rest); break;
  }
  (void)sink;
  return 0;
}
