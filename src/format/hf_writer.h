// Writes a model as a folder of safetensors (Hugging Face's layout): config.json, tokenizer.json, tokenizer_config.json,
// generation_config.json, and model.safetensors or numbered files with an index. What open_hf_folder reads, other programs do too.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "format/hf_json.h"
#include "format/safetensors.h"
#include "format/weight_file.h"

namespace sluice::format {

// How the matrices of layers are stored, where not as floats.
struct HfMatrixLayout {
  Json quantization_config;  // of config.json
  // The tensors of one matrix, written one after the other, in the rows' order of the file: row i of it is row rows(i) of ours.
  // `module` is their name less the last part. Empty: store this one as floats.
  std::function<std::vector<StOutput>(const TensorEntry& matrix, const std::string& module, const std::function<int64_t(int64_t)>& rows)> outputs;
};

// What of a folder is being written. resumed: an earlier run left some of it.
struct HfProgress {
  bool resumed = false;
  std::map<std::string, int> missing;  // by our names: how many tensors of the folder are still to be written

  bool whole(const std::string& name) const {
    const auto at = missing.find(name);
    return at != missing.end() && at->second == 0;
  }
};

struct HfWriteOptions {
  StDtype dtype = StDtype::kF16;  // of matrices that are not floats in the source; floats stay what they are. kF32, kF16 or kBF16
  bool convert_floats = false;    // matrices of floats become dtype as well
  uint64_t shard_bytes = uint64_t{5} << 30;
  const HfMatrixLayout* layout = nullptr;
  // Of all that decides the bytes: killed, the same call goes on where it was. 0: nothing is kept of an unfinished run.
  uint64_t fingerprint = 0;
  HfProgress* progress = nullptr;  // with a fingerprint: filled before the first tensor is asked for, and kept; may be null
};

// The folder is made where it is missing; config.json is written last, so a folder that has it is complete.
// Errors: kIo; kUnsupported for an architecture, a tokenizer or a tensor that config.json and the names of such files cannot say.
Status write_hf_folder(const std::string& folder, const Metadata& metadata, std::span<const TensorEntry> tensors, const HfWriteOptions& options);

}  // namespace sluice::format
