// LoadedModel: a model file opened, checked, planned and packed for a backend; what every driver starts from.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "exec/device_executor.h"
#include "lab/cache_share.h"
#include "model/model.h"
#include "model/vocab.h"
#include "sched/scheduler.h"

namespace sluice::lab {

struct LoadOptions {
  std::string model;              // path of a .gguf or a folder of safetensors, or a name in the local store
  std::string random;             // instead of a file: random weights of this shape (model/random_model.h)
  std::string weight_type = "bf16";  // of random weights
  uint64_t weight_seed = 1;
  int random_vocab = 0;           // tokens of random weights' vocabulary; 0: the shape's
  std::string save;               // where to write the random weights as a file
  std::string isa;                // "" best; one of kernels::kCpuIsas; "reference" for the plain float kernels
  std::string device = "cpu";     // "cuda", "cuda:1"
  bool deterministic = false;     // results independent of the batch, where a backend does not give that anyway
  int threads = 0;                // 0: as many as the machine has
  bool pin_threads = false;
  std::string kv_type = "f16";
  std::string kv_memory;          // "2GiB"; "" = chosen from what the machine has
  std::string swap_memory;        // of the host, for blocks of preempted sequences; "" = none
  int block_tokens = 0;           // 0: 16, or 64 for a cache of int4 keys, whose blocks each have room for an open group's rows
  int max_sequences = 64;
  int max_step_tokens = 0;        // 0: 512 on a host, 2048 on a device, 4096 there for throughput; never below max_sequences
  std::string objective = "latency";  // or "throughput": what prompts may make of a step beside interactive decodes
  double step_ms = 0;             // > 0: so much, in place of what the objective says
  int context = 0;                // tokens a sequence may reach; 0: the model's, bounded by the cache
  bool prefix_cache = true;
  int depth = 0;                  // steps in flight, 1 or 2; 0: what the device is best with
  bool no_graphs = false;         // launch every kernel by itself
};

// Of a model's weights.
struct WeightSizes {
  uint64_t file_bytes = 0;
  uint64_t packed_bytes = 0;      // in the backend's memory, embeddings included where it cannot read them from the file
  uint64_t mapped_bytes = 0;      // embeddings that a host reads from the file's mapping
  uint64_t vocabulary_bytes = 0;  // of the tokenizer
};

// What a plan needs to know of a model.
struct ModelShape {
  model::ModelSpec spec;          // of a file: the vocabulary's size is the embedding's
  WeightSizes weights;
};

// Memory before loading: every term in bytes.
struct MemoryPlan {
  uint64_t file_bytes = 0, weights_bytes = 0, mapped_bytes = 0, kv_bytes_per_token = 0, kv_bytes = 0;
  uint64_t activation_bytes = 0;  // what a step takes, scratch and the rotary tables
  uint64_t process_bytes = 0;     // on a host: code, libraries, vocabulary, threads, requests
  uint64_t free_before = 0;       // on a device: free when it was planned
  uint64_t available_bytes = 0;   // of the machine or device, when it was planned
  uint64_t swap_bytes = 0;        // of the host's memory
  uint64_t draft_bytes = 0, draft_kv_bytes = 0;  // on a device, of the draft model beside it: weights and steps, and its caches
  int total_blocks = 0, swap_blocks = 0, max_context = 0;
  int draft_blocks = 0;           // of each of the draft model's caches
  uint64_t fixed() const { return weights_bytes + mapped_bytes + activation_bytes + process_bytes; }  // whatever the cache
  uint64_t total() const { return fixed() + kv_bytes + draft_bytes + draft_kv_bytes; }
};

struct LoadedModel {
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // may be null
  std::string chat_template_error;                          // why there is none though the file has one
  std::string name;
  WeightSizes weights;
  MemoryPlan memory;
  exec::DeviceOptions device;
  sched::SchedulerOptions scheduler;

  // Error: kUnavailable, the device has no room.
  Result<std::unique_ptr<exec::DeviceExecutor>> make_executor() const;
};

// The model's file, or its random weights; fill: see model::RandomModelOptions. Errors name the path or the flag.
Result<std::shared_ptr<const format::WeightFile>> open_weights(const LoadOptions& options, bool fill);
// Where models, jobs and what was learned are kept: $SLUICE_HOME, or ~/.cache/sluice.
std::string home_folder();
// A model argument as a path: itself, or a file in the home folder.
std::string resolve_model(const std::string& model);
Result<uint64_t> parse_bytes(const std::string& text, const std::string& field);  // "80GiB", "512MB", "1000"
Result<CacheType> parse_kv_type(const std::string& text);
// As the options have it. Errors: kInvalidArgument; kUnsupported naming type and backend.
Result<CacheType> cache_type_of(const LoadOptions& options, const kernels::KernelTable& kernels);
int block_tokens_of(const LoadOptions& options);  // as the options and the default have it
int default_step_tokens(bool host, const std::string& objective);  // max_step_tokens where nobody says
int step_tokens(const LoadOptions& options, const kernels::KernelTable& kernels);  // ... as the options and their default have it
Result<const kernels::KernelTable*> choose_kernels(const LoadOptions& options);
int default_threads();
// latency: a step with prompts takes at most kPromptRoom longer than its decodes alone, so that a chat's gaps stay even; a
// prompt then takes up to three times as long as alone. On a device a step of decodes reads all weights for little work, and a chunk costs
// nearly as much however small it is: there it may take kDevicePromptUs, which nobody sees in a text, or where that is more, kDevicePromptRoom
// longer. throughput: prompts go as they come. step_ms > 0: a bound of that much.
constexpr double kPromptRoom = 0.5, kDevicePromptRoom = 2;
constexpr TimeUs kDevicePromptUs = 28'000;
Status set_objective(const std::string& objective, double step_ms, bool host, sched::SchedulerOptions& out);
// SchedulerOptions::tile_tokens on a device.
constexpr int kDeviceTileTokens = 128;

// Left free on a device whose cache takes what there is: for recorded steps, libraries' workspaces and other processes.
constexpr uint64_t kDeviceReserve = uint64_t{3} << 29;

// Sizes without touching weights. available_bytes: for the cache when options.kv_memory is empty. On a host the cache takes a
// quarter of what is left, on a device all but kDeviceReserve, never more than every sequence could use; with a draft model there, that is
// for both caches (lab/cache_share.h).
Result<MemoryPlan> plan_memory(const WeightSizes& weights, const model::ModelSpec& spec, const kernels::KernelTable& kernels, const LoadOptions& options,
                               uint64_t available_bytes, const DraftNeeds& draft = {});
// What is there whatever the cache: a plan with one of no matter what size.
Result<MemoryPlan> plan_without_cache(const ModelShape& shape, const kernels::KernelTable& kernels, LoadOptions options);
// Of the file or the random weights that options name. Errors: as open_weights.
Result<ModelShape> read_shape(const LoadOptions& options, const kernels::KernelTable& kernels);
uint64_t vocabulary_bytes(uint64_t tokens, uint64_t merges);  // of a tokenizer
// On a device: bytes taken since it was planned, to hold against memory.total(); 0 on a host.
uint64_t used_memory(const LoadedModel& model);
uint64_t available_memory(const kernels::KernelTable& kernels);  // of the backend's device, or of the machine
// The same weights with other options of cache, batching and threads, and so much memory for a cache whose size they leave open.
// Errors: as plan_memory.
Result<LoadedModel> reconfigure(const LoadedModel& loaded, const LoadOptions& options, uint64_t available_bytes, const DraftNeeds& draft = {});
// draft: what is to be left of the device for a draft model, which is loaded after (lab::draft_needs). What does not fit is an error before
// anything is taken of the device.
Result<LoadedModel> load_model(const LoadOptions& options, const std::function<void(size_t, size_t)>& progress, const DraftNeeds& draft = {});

}  // namespace sluice::lab
