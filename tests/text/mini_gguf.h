// A reader of GGUF metadata for tests of text/ alone: enough to fill a VocabSpec. Test data is trusted; errors return false.
#pragma once
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace sluice::text::testing {

class MiniGguf {
 public:
  bool read(const std::string& path) {
    in_.open(path, std::ios::binary);
    if (!in_ || number<uint32_t>() != 0x46554747) return false;
    number<uint32_t>();
    number<uint64_t>();
    const auto count = number<uint64_t>();
    for (uint64_t i = 0; i < count && in_; ++i) {
      const std::string key = string();
      value(key, number<uint32_t>());
    }
    return bool(in_);
  }
  VocabSpec vocab() {
    VocabSpec spec;
    const std::string p = "tokenizer.ggml.";
    spec.model = text[p + "model"];
    spec.pre = text[p + "pre"];
    spec.name = text["general.name"];
    spec.tokens = texts[p + "tokens"];
    spec.merges = texts[p + "merges"];
    for (const double score : numbers[p + "scores"]) spec.scores.push_back(static_cast<float>(score));
    for (const double kind : numbers[p + "token_type"]) spec.kinds.push_back(static_cast<int32_t>(kind));
    spec.bos = id(p + "bos_token_id");
    spec.eos = id(p + "eos_token_id");
    spec.eot = id(p + "eot_token_id");
    spec.unk = id(p + "unknown_token_id");
    spec.pad = id(p + "padding_token_id");
    spec.add_bos = id(p + "add_bos_token");
    spec.add_eos = id(p + "add_eos_token");
    spec.add_space_prefix = id(p + "add_space_prefix");
    return spec;
  }

  std::map<std::string, std::string> text;
  std::map<std::string, std::vector<std::string>> texts;
  std::map<std::string, std::vector<double>> numbers;  // a scalar is a list of one

 private:
  template <class T>
  T number() {
    T v{};
    in_.read(reinterpret_cast<char*>(&v), sizeof v);
    return v;
  }
  std::string string() {
    std::string s(number<uint64_t>(), '\0');
    in_.read(s.data(), static_cast<std::streamsize>(s.size()));
    return s;
  }
  double scalar(uint32_t type) {
    switch (type) {
      case 0: case 7: return number<uint8_t>();
      case 1: return number<int8_t>();
      case 2: return number<uint16_t>();
      case 3: return number<int16_t>();
      case 4: return number<uint32_t>();
      case 5: return number<int32_t>();
      case 6: return number<float>();
      case 10: return static_cast<double>(number<uint64_t>());
      case 11: return static_cast<double>(number<int64_t>());
      default: return number<double>();
    }
  }
  void value(const std::string& key, uint32_t type) {
    if (type == 8) {
      text[key] = string();
    } else if (type == 9) {
      const auto of = number<uint32_t>();
      const auto count = number<uint64_t>();
      for (uint64_t i = 0; i < count && in_; ++i) {
        if (of == 8) texts[key].push_back(string());
        else numbers[key].push_back(scalar(of));
      }
    } else {
      numbers[key] = {scalar(type)};
    }
  }
  int32_t id(const std::string& key) {
    const auto it = numbers.find(key);
    return it == numbers.end() ? -1 : static_cast<int32_t>(it->second[0]);
  }
  std::ifstream in_;
};

}  // namespace sluice::text::testing
