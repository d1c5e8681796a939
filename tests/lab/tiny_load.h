// How tests of whole commands load the smallest model.
#pragma once
#include "lab/loaded_model.h"

namespace sluice::lab {

inline LoadOptions tiny_load(const std::string& kv_memory = "") {
  LoadOptions o;
  o.random = "llama-tiny";
  o.threads = 2;
  o.max_sequences = 4;
  o.context = 512;
  o.kv_memory = kv_memory;
  return o;
}

}  // namespace sluice::lab
