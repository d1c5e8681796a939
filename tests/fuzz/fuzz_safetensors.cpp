// A safetensors file of any bytes, its tensors read as every packing of quantised matrices, and a folder whose tokenizer.json or
// config.json is of any bytes: values or errors.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <unistd.h>

#include "format/hf_arch.h"
#include "format/hf_packing.h"
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

// Every module that the names of the tensors suggest, its first and last row made.
void read_packings(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  const int bits = 2 + bytes[0] % 7;
  const auto file = sluice::format::parse_safetensors(bytes.subspan(1));
  if (!file.ok()) return;
  sluice::format::HfShards shards;
  for (const auto& t : file->tensors) shards.tensors.emplace(t.name, t);
  using Json = sluice::format::Json;
  const Json configs[] = {{{"quant_method", "gptq"}, {"bits", bits}, {"group_size", 32}},
                          {{"quant_method", "awq"}, {"group_size", 32}},
                          {{"quant_method", "fp8"}, {"weight_block_size", {2, 32}}},
                          {{"quant_method", "compressed-tensors"}, {"config_groups", {{"g", {{"weights", {{"num_bits", bits}}}}}}}}};
  for (const Json& config : configs)
    for (const auto& [name, t] : shards.tensors) {
      std::set<std::string> used;
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos) continue;
      for (const sluice::format::HfPacking* p : sluice::format::packings_table()) {
        if (!p->reads(config)) continue;
        const auto entry = p->read(config, {shards, name.substr(0, dot), used});
        if (!entry.ok() || !entry->has_value() || (*entry)->cols() > (1 << 16)) continue;
        std::vector<float> row(size_t((*entry)->cols()));
        decode_rows(**entry, 0, 1, row.data());
        decode_rows(**entry, (*entry)->rows() - 1, (*entry)->rows(), row.data());
      }
    }
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
  switch (data[0] % 5) {
    case 0: read_tokenizer(rest); break;
    case 1: read_config(rest); break;
    case 2: read_packings(rest); break;
    default: sink = read_tensors(rest); break;
  }
  (void)sink;
  return 0;
}
