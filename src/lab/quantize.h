// sluice quantize's driver: reads a model, chooses a type for every matrix, quantises one by one and writes a GGUF file. With a
// calibration text the model is walked layer by layer (calibration.h) and each layer is quantised as its inputs are known.
// Memory: a layer or two, and the calibration's activations; the input is read through its mapping.
// Killed at any moment, the same call goes on where it was, to the same bytes (part_file.h).
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::lab {

struct QuantizeProgress {
  std::string what;        // "blk.3.ffn_up.weight"
  double done = 0;         // of all weights, 0..1
  double seconds_left = 0; // negative: not known yet
};

struct QuantizeOptions {
  std::string input, output;         // a .gguf, or a folder of safetensors; a .gguf
  std::string type = "q4_k_m";       // a mix (quant/mixes.h)
  std::string method;                // rtn, imatrix or gptq; "": imatrix with a calibration text, else rtn
  std::string calibrate;             // a text; "" none
  int window = 512;                  // tokens that are read together
  int max_tokens = 32768;            // of the calibration text, its first; 0: all. More cost time and change little
  std::vector<std::string> keep;     // REGEX=TYPE: tensors whose whole name matches get that type; the first that matches counts
  bool requantize = false;           // also where the input is quantised already
  int threads = 0;                   // 0: every core
  std::string isa;                   // as LoadOptions::isa, for calibration
  std::function<void(const QuantizeProgress&)> progress;  // may be null; called from one thread
  std::function<void(const std::string&)> note;           // what the user should know; may be null
  const std::atomic<bool>* stop = nullptr;                // set: ends soon with kCancelled; the part stays
};

struct QuantizedType { std::string name; int tensors = 0; int64_t parameters = 0, bytes = 0; };

struct QuantizeReport {
  std::string method;
  uint64_t in_bytes = 0, out_bytes = 0;
  double bits_per_weight = 0;        // of the tensors' bytes
  double seconds = 0, calibration_seconds = 0;
  int calibration_tokens = 0;
  double relative_error = 0;         // root of the squared error over the squared weights, of what was quantised in this run
  bool resumed = false;
  std::vector<QuantizedType> types;
};

// Errors: kInvalidArgument naming the flag; kBadFile and kUnsupported naming the tensor, and its element where a value cannot be held;
// kIo; kCancelled.
Result<QuantizeReport> quantize(const QuantizeOptions& options);

}  // namespace sluice::lab
