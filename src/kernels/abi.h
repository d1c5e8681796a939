// The kernel ABI: what a backend does for a model, as plain structs over arrays and one table of function pointers.
// Functions know nothing of sequences' meaning, models or files. All tensors are row-major float32 unless a field says
// otherwise. Shapes: T tokens in the step, S sequences, H query heads, G KV heads, D head size, K inputs, N outputs.
//
// Bitwise contract: a token's result depends on its own inputs alone - never on T, on the rows beside it, on the chunk it
// came in or on the number of threads. Every tile shape folds in one order. A table whose batch_invariant is false keeps
// this only in a context made with `deterministic`.
//
// Memory: every pointer in an Args struct is backend memory, made by allocate. Where host_memory is true that is the
// process's own memory: callers then hand over what they have, and nothing is copied.
// Errors: none at run time; sizes are the caller's promise (checked when plans and weights are built). noexcept throughout.
// A device that fails says so at synchronize, and every call after that is void.
// Threads: one call at a time per Context. Calls take effect in order; results are complete after synchronize (on a backend
// of host memory: at once, and synchronize does nothing).
#pragma once
#include <cstddef>
#include <cstdint>

#include "sample/sample_row.h"
#include "tensor/cache_type.h"
#include "tensor/dtype.h"

namespace sluice::kernels {

// A backend's workers and scratch memory; made by KernelTable::create.
struct Context;
// A recorded sequence of calls; see KernelTable::begin_graph.
struct Graph;
constexpr int kMaxMarks = 4;
// A recorded step has new lengths each time it runs, so attention must not choose by what the host knows of them. It does not where each sequence has
// up to so many tokens times query heads of a KV head, or one token.
constexpr int kRecordedRows = 32;

// Activations: an array of float32 or, where KernelTable::activations says so, of f16 or bf16. Rows of the latter are at
// multiples of 16 bytes. float pointers convert, and host backends know nothing else.
struct Array {
  void* data = nullptr;
  DType type = DType::kF32;
  Array() = default;
  Array(float* p) : data(p) {}
  Array(void* p, DType type) : data(p), type(type) {}
  float* floats() const { return static_cast<float*>(data); }
  Array from(size_t element) const { return {static_cast<char*>(data) + element * size_t(dtype_bytes(type)), type}; }
};
struct ConstArray {
  const void* data = nullptr;
  DType type = DType::kF32;
  ConstArray() = default;
  ConstArray(const float* p) : data(p) {}
  ConstArray(const Array& a) : data(a.data), type(a.type) {}
  ConstArray(const void* p, DType type) : data(p), type(type) {}
  const float* floats() const { return static_cast<const float*>(data); }
  ConstArray from(size_t element) const { return {static_cast<const char*>(data) + element * size_t(dtype_bytes(type)), type}; }
};

// An immutable weight matrix [N, K] in the backend's own tile order, made by KernelTable::pack.
struct PackedWeight {
  WeightType type{};
  int rows = 0, cols = 0;      // N, K
  const void* data = nullptr;  // `bytes` long, 64-byte aligned
  size_t bytes = 0;
  // Column k multiplies input input_order[k]; null: input k. Backend memory, [K]; outputs of one call that share it share prepared inputs.
  const int32_t* input_order = nullptr;
  // Of types whose scales a table keeps apart (KernelTable::scales_apart): [N, K / scale_cols] in backend memory. scale_cols is the type's
  // unit, or K where every row is known to have one scale.
  const float* scales = nullptr;
  int scale_cols = 0;
};

// What is done to a linear's input before the product; the result is shared by all of its outputs.
enum class Prologue : uint8_t {
  kNone,
  kRmsNorm,   // x / sqrt(mean(x^2) + eps) * norm_weight
  kSiluMul,   // silu(x[:, :K]) * x[:, K:2K]: x has 2K columns
  kGeluMul,   // gelu_tanh(x[:, :K]) * x[:, K:2K]
};

// What is done to the sums of two outputs of one shape instead of storing them: out[0].y = act(y_0) * y_1, and out[1].y is not looked at.
// Neither has a bias, nor accumulates. Only where KernelTable::gates says so; else act and product are the next linear's prologue.
enum class Gate : uint8_t {
  kNone,
  kSilu,
  kGelu,  // gelu_tanh
};

struct LinearOutput {
  PackedWeight weight;           // [N, K]
  const float* bias = nullptr;   // [N] or none
  Array y;                       // [T, N] at y_stride elements a row
  int y_stride = 0;
  bool accumulate = false;       // y += (residual stream, float32) instead of y =
};

// y_i = prologue(x) * W_i^T + bias_i, for up to kMaxLinearOutputs weights of one K.
constexpr int kMaxLinearOutputs = 3;
struct LinearArgs {
  int num_tokens = 0;            // T (may be 0)
  ConstArray x;                  // [T, K] or [T, 2K], x_stride elements a row
  int x_stride = 0;
  Prologue prologue = Prologue::kNone;
  const float* norm_weight = nullptr;  // [K]
  float eps = 0;
  int num_outputs = 0;
  LinearOutput out[kMaxLinearOutputs];
  Gate gate = Gate::kNone;
};

// y[t] = decode(table[ids[t]]) * scale. The table is in the file's own layout (not packed).
struct EmbedArgs {
  int num_tokens = 0;
  const int32_t* ids = nullptr;  // [T], each in [0, vocab); or -1 - i: the token of `sampled` at i
  WeightType type{};
  const void* table = nullptr;   // rows of row_bytes each
  size_t row_bytes = 0;
  int dim = 0;
  float scale = 1;
  float* y = nullptr;            // [T, dim]
  const int32_t* sampled = nullptr;  // what an earlier call of `sample` left; may be null where no id is negative
};

// y (+)= rmsnorm(x) * weight, for norms that stand alone (post norms, final norm).
struct NormArgs {
  int num_tokens = 0, dim = 0;
  const float* x = nullptr;      // [T, dim], x_stride
  int x_stride = 0;
  const float* weight = nullptr; // [dim]
  float eps = 0;
  float* y = nullptr;            // [T, dim], y_stride
  int y_stride = 0;
  bool accumulate = false;
};

// One step's view of sequences, common to rope_append and attention.
struct BatchView {
  int num_tokens = 0, num_sequences = 0;
  const int32_t* positions = nullptr;    // [T]
  const int32_t* sequence_of = nullptr;  // [T] index into the sequences of this step
  const int32_t* query_begin = nullptr;  // [S+1] into tokens
  const int32_t* kv_len = nullptr;       // [S] tokens in the cache after this step's append
  const int32_t* block_begin = nullptr;  // [S+1] into block_ids
  const int32_t* block_ids = nullptr;    // [B]
  int block_tokens = 16;                 // a multiple of 16
  // query_begin and kv_len in the host's memory while a call lasts; kv_len may be larger there (drafts that were rejected since). null: a backend
  // whose memory is another does not know them.
  const int32_t* host_query_begin = nullptr;
  const int32_t* host_kv_len = nullptr;
};

// One layer's cache: keys and values of `type`, block b at base + b * stride bytes. Inner layout is the backend's; a row's bytes
// (tensor/cache_type.h) depend on its token's key or value alone, and are written once.
//
// Keys that are rounded in groups of tokens (keys_in_groups) depend on the group's tokens alone. A query reads the group that its own
// position is in as rows of int8, unless that position is the group's last; then, and all groups before, as they are when closed. A
// token that may yet be written over (a draft) is never the last of its group, and what is written begins in the group that was
// written last or at the start of one.
struct CacheView {
  CacheType type;
  void* keys = nullptr;
  void* values = nullptr;
  size_t key_stride = 0;    // bytes from one block's keys to the next = G * cache_key_bytes(keys, D, block_tokens)
  size_t value_stride = 0;  // likewise of values
  // Of keys in groups: where rope_append leaves for attention, as rows of int8, the groups that the step's tokens are in, and which may be
  // closed by now. Of sequence s they begin at step_group(batch, s); step_groups(T, S) * G * open_group_bytes(D).
  void* step_keys = nullptr;
};
// In groups from step_keys on; the sequence's first is the one that its first token of the step is in.
constexpr size_t step_group(const BatchView& b, int s) { return size_t(b.query_begin[s] / kKeyGroup) + 2 * size_t(s); }

enum class RopeStyle : uint8_t { kInterleaved, kHalves };  // pairs (2i, 2i+1) / (i, i + n_rot/2)

// Per head: optional RMS norm, rotation of q and k, then k and v go to the cache at (positions[t], block table).
struct RopeAppendArgs {
  BatchView batch;
  CacheView cache;
  int q_heads = 0, kv_heads = 0, head_dim = 0, rope_dims = 0;
  Array q;                       // [T, H * D], rotated in place, q_stride
  Array k;                       // [T, G * D], k_stride (left unspecified after)
  ConstArray v;                  // [T, G * D], v_stride; all three of one type
  int q_stride = 0, k_stride = 0, v_stride = 0;
  const float* q_norm = nullptr; // [D] or none
  const float* k_norm = nullptr;
  // [G * D] or none (and none with k_norm): what every token's key of a head has in it before rotation, its bias. A cache that is no
  // floats keeps keys without, since it would take most of their range; attention puts it back.
  const float* key_offset = nullptr;
  float eps = 0;
  RopeStyle style{};
  // cos and sin of every position the model can hold: [max_position, rope_dims / 2] each.
  const float* cos_table = nullptr;
  const float* sin_table = nullptr;
};

// Causal attention of every token over its sequence's cache, blocks read through the table.
struct AttentionArgs {
  BatchView batch;
  CacheView cache;
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  ConstArray q;                  // [T, H * D], q_stride
  int q_stride = 0;
  float scale = 1;               // of q.k
  int window = 0;                // 0 = all; else keys with position > p - window
  float softcap = 0;             // 0 = none; else c * tanh(s / c) before the mask
  // Where set, queries are as products left them: the call does this rope_append first, of the same batch and cache, or in the same kernel.
  // It need not rotate the queries in place then.
  const RopeAppendArgs* append = nullptr;
  // As rope_append had them; read only where there is an offset and the keys are no floats.
  const float* key_offset = nullptr;
  int rope_dims = 0;
  RopeStyle style{};
  const float* cos_table = nullptr;
  const float* sin_table = nullptr;
  Array out;                     // [T, H * D], out_stride
  int out_stride = 0;
};

// y[i] = x[rows[i]]: the rows whose logits are wanted.
struct GatherArgs {
  int num_rows = 0, dim = 0;
  const float* x = nullptr;      // rows of dim
  const int32_t* rows = nullptr; // [num_rows]
  float* y = nullptr;            // [num_rows, dim]
};

// A copy of one block's keys and values, within a cache (copy on write) or between it and one in staging memory; both have the same
// type and strides.
struct CopyBlockArgs {
  CacheView from_cache, to_cache;
  int32_t from = 0, to = 0;
};

// Draws (or scores) one token a row from its logits; see sample/sampler.h for what is right, which every backend gives: the
// same token from the same logits. Logits are overwritten, except by plain greedy rows and scores.
struct SampleArgs {
  int num_rows = 0, vocab = 0;
  float* logits = nullptr;                 // [num_rows, vocab]
  const sample::SampleRow* rows = nullptr; // [num_rows]
  sample::LogitChange* changes = nullptr;  // what the rows' ranges point into
  int32_t* tokens = nullptr;               // [num_rows], for EmbedArgs::sampled
  // Staging memory: the host reads them after synchronize, or wait. top: [num_rows, kMaxLogprobs], of rows that ask.
  sample::SampledRow* results = nullptr;   // [num_rows]
  sample::TokenLogprob* top = nullptr;
};

struct ContextOptions {
  int threads = 1;
  bool pin = false;              // one core a worker
  int max_tokens = 0;            // largest T, for scratch memory
  int max_dim = 0;               // largest K of any linear
  int device = 0;                // the table's
  bool deterministic = false;    // results independent of the batch, where the backend does not give that anyway
  bool library = true;           // products by the vendor's library where the backend would take it; else as if there were none
  // Caches that attention is to be fast with, for scratch memory.
  CacheType cache_type = {};
  int head_dim = 0, max_context = 0;
};

struct KernelTable {
  const char* name;              // "reference", "avx2", "avx512bf16", "cuda"
  int device;                    // which of the backend's devices; 0 for a host's
  bool host_memory;              // backend memory is the process's own
  bool batch_invariant;          // the bitwise contract holds in every context
  bool int8_inputs;              // products of quantised weights round their inputs to int8
  bool bf16_inputs;              // products of bfloat16 weights round their inputs to bfloat16, always
  bool half_products;            // unless deterministic, products round both factors to 11 bits (tf32, f16), or where
                                 // weights are bf16, inputs to 8
  bool fp8_inputs;               // unless deterministic, products of fp8 weights of one scale a row may round their inputs to e4m3
                                 // with a scale a token, where `activations` says bf16

  // Zeroed, aligned to 64 bytes; nullptr: no room. Any thread.
  void* (*allocate)(int device, size_t bytes) noexcept;
  void (*release)(int device, void* memory, size_t bytes) noexcept;
  // The same for memory of the host that upload and download are fast with.
  void* (*allocate_staging)(int device, size_t bytes) noexcept;
  void (*release_staging)(int device, void* memory, size_t bytes) noexcept;
  // Bytes that allocate could still give; 0: not known here.
  uint64_t (*free_bytes)(int device) noexcept;
  // Copies into backend memory before any call uses it; complete on return. false: the device failed. Any thread.
  bool (*load)(int device, void* to, const void* from, size_t bytes) noexcept;

  // Of backend memory that create takes; 0 on a host.
  size_t (*context_bytes)(const ContextOptions&) noexcept;
  Context* (*create)(const ContextOptions&) noexcept;
  void (*destroy)(Context*) noexcept;

  // In order with the calls below. upload has read `from` when it returns; download has written `to` after synchronize.
  void (*upload)(Context*, void* to, const void* from, size_t bytes) noexcept;
  void (*download)(Context*, void* to, const void* from, size_t bytes) noexcept;
  // upload for bytes that nothing before this call uses, from staging memory that stays as it is until the step is waited for:
  // it may happen beside the calls before.
  void (*prefetch)(Context*, void* to, const void* from, size_t bytes) noexcept;
  // mark: the calls so far, under a number below kMaxMarks. wait: for them to end; returns what synchronize does.
  void (*mark)(Context*, int number) noexcept;
  const char* (*wait)(Context*, int number) noexcept;
  // Recorded calls. After begin_graph, calls (of kernels alone) are kept and not run; end_graph gives them as one Graph, or
  // nullptr (nothing ran: make the calls again without). launch_graph runs them with the arguments they had; what those point
  // to may have changed. begin_graph is false where the backend has no graphs, or has failed.
  bool (*begin_graph)(Context*) noexcept;
  Graph* (*end_graph)(Context*) noexcept;
  void (*launch_graph)(Context*, Graph*) noexcept;
  void (*destroy_graph)(Context*, Graph*) noexcept;
  // Waits for everything before it. nullptr, or what went wrong since the context was made (and stays wrong).
  const char* (*synchronize)(Context*) noexcept;

  // Weight packing, in host memory on both sides. packed_bytes is 0 when the type has no kernel here. pack converts rows [row_begin, row_end) (multiples
  // of pack_rows, or the end) from the file's layout, so that a loader can run several threads over one matrix.
  size_t (*packed_bytes)(WeightType, int rows, int cols) noexcept;
  int pack_rows;
  void (*pack)(WeightType, int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept;
  // Where packed row `row` (a multiple of pack_rows, or `rows`) begins: pack of [a, b) writes dst's bytes from a's to b's alone.
  // May be null where host_memory is true.
  size_t (*packed_offset)(WeightType, int rows, int cols, int row) noexcept;

  // Whether pack leaves this type's scales out, for PackedWeight::scales. null: no type's.
  bool (*scales_apart)(WeightType) noexcept;

  // Whether there are kernels for a cache of this type.
  bool (*cache_type)(CacheType) noexcept;

  // In which type a step of so many tokens should keep what products of this weight read without a norm, and what they write
  // without a bias and without accumulating (q, k, v and what attention makes of them; the gate's halves). float32 does in any case. null: always
  // float32.
  DType (*activations)(const Context*, const PackedWeight&, int num_tokens) noexcept;

  // Whether linear takes a gate over these two weights in a step of so many tokens; `y` is then the type of out[0].y, which a product of
  // `down` reads without a prologue, from rows that lie side by side. null: never.
  bool (*gates)(const Context*, const PackedWeight& gate, const PackedWeight& up, const PackedWeight& down, int num_tokens, DType* y) noexcept;

  void (*embed)(Context*, const EmbedArgs&) noexcept;
  void (*linear)(Context*, const LinearArgs&) noexcept;
  void (*norm)(Context*, const NormArgs&) noexcept;
  void (*rope_append)(Context*, const RopeAppendArgs&) noexcept;
  void (*attention)(Context*, const AttentionArgs&) noexcept;
  void (*gather)(Context*, const GatherArgs&) noexcept;
  void (*copy_block)(Context*, const CopyBlockArgs&) noexcept;
  void (*sample)(Context*, const SampleArgs&) noexcept;
  // Runs fn(arg, i) for i in [0, n) over the context's threads of the host (sampling rows, say).
  void (*parallel_for)(Context*, int n, void (*fn)(void* arg, int i) noexcept, void* arg) noexcept;
};

// The backends that this build and this machine can run. nullptr: not here (and `why` says so when given).
const KernelTable* reference_kernels();
// isa: "" = best of this machine; or one of kCpuIsas.
const KernelTable* cpu_kernels(const char* isa, const char** why);
// Names of the instruction sets that are built in, the plainest first.
inline constexpr const char* kCpuIsas[] = {"avx2", "avxvnni", "avx512", "avx512bf16"};
const KernelTable* cuda_kernels(int device, const char** why);

}  // namespace sluice::kernels
