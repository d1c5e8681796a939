// Devices, memory, contexts and the table. Weights of plain floats keep the file's own layout (packing copies rows), quantised ones lie in tiles (tiled.h).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/tiled.h"
#include "kernels/thread_pool.h"
#include "quant/weight_format.h"

namespace sluice::kernels {
namespace cuda {
namespace {

void* allocate(int device, size_t bytes) noexcept {
  void* p = nullptr;
  if (cudaSetDevice(device) != cudaSuccess || cudaMalloc(&p, std::max<size_t>(bytes, 1)) != cudaSuccess) {
    cudaGetLastError();  // having no room is reported by the null, not by the next call
    return nullptr;
  }
  if (cudaMemset(p, 0, bytes) == cudaSuccess && cudaStreamSynchronize(nullptr) == cudaSuccess) return p;
  cudaFree(p);
  return nullptr;
}

void release(int device, void* memory, size_t) noexcept {
  if (cudaSetDevice(device) == cudaSuccess) cudaFree(memory);
}

void* allocate_staging(int device, size_t bytes) noexcept {
  void* p = nullptr;
  if (cudaSetDevice(device) != cudaSuccess || cudaMallocHost(&p, std::max<size_t>(bytes, 1)) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  std::memset(p, 0, bytes);
  return p;
}

void release_staging(int device, void* memory, size_t) noexcept {
  if (cudaSetDevice(device) == cudaSuccess) cudaFreeHost(memory);
}

uint64_t free_bytes(int device) noexcept {
  size_t free = 0, total = 0;
  if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return free;
}

bool load(int device, void* to, const void* from, size_t bytes) noexcept {
  return cudaSetDevice(device) == cudaSuccess && cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
         cudaStreamSynchronize(nullptr) == cudaSuccess;  // a copy from pageable memory may return before it has landed
}

void destroy(Context* context) noexcept {
  CudaContext* c = of(context);
  if (!c) return;
  cudaSetDevice(c->device);
  if (c->stream) {
    cudaStreamSynchronize(c->stream);
    cudaStreamDestroy(c->stream);
  }
  if (c->copies) cudaStreamDestroy(c->copies);
  if (c->copied) cudaEventDestroy(c->copied);
  for (cudaEvent_t mark : c->marks)
    if (mark) cudaEventDestroy(mark);
  delete c->library;
  cudaFree(c->inputs);
  cudaFree(c->parts);
  cudaFree(c->splits);
  cudaFree(c->arrivals);
  cudaFree(c->tickets);
  cudaFree(c->expanded);
  cudaFree(c->opened);
  delete c->pool;
  delete c;
}

size_t inputs_bytes(const ContextOptions& o) {
  return size_t(std::max(1, o.max_tokens)) * size_t((std::max(1, o.max_dim) + 31) / 32 * 32) * (o.deterministic ? 6 : 4);
}

size_t context_bytes(const ContextOptions& o) noexcept {
  return inputs_bytes(o) + (kPartTiles * kPartFloats + kSplitFloats) * sizeof(float) + (kSplitUnits + 2 * kTicketPairs) * sizeof(int) + opened_bytes(o) +
         (o.deterministic || !o.library ? 0 : kExpandedBytes + Library::kWorkspaceBytes);
}

Context* create(const ContextOptions& o) noexcept {
  auto* c = new (std::nothrow) CudaContext{};
  if (!c) return nullptr;
  c->threads = std::max(1, o.threads);
  c->max_tokens = std::max(1, o.max_tokens);
  c->max_dim = (std::max(1, o.max_dim) + 31) / 32 * 32;
  c->device = o.device;
  c->can = capability_of(o.device);
  c->deterministic = o.deterministic;
  c->opened_bytes = opened_bytes(o);
  try {
    c->pool = new ThreadPool(c->threads, o.pin);
    c->threads = c->pool->size();
  } catch (...) {
    c->pool = nullptr;
  }
  const auto make_event = [](cudaEvent_t* e) { return cudaEventCreateWithFlags(e, cudaEventDisableTiming) == cudaSuccess; };
  const size_t bytes = inputs_bytes(o);
  if (!c->pool || cudaSetDevice(c->device) != cudaSuccess ||
      cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking) != cudaSuccess ||
      cudaStreamCreateWithFlags(&c->copies, cudaStreamNonBlocking) != cudaSuccess || !make_event(&c->copied) ||
      !std::all_of(std::begin(c->marks), std::end(c->marks), [&](cudaEvent_t& e) { return make_event(&e); }) ||
      cudaDeviceGetAttribute(&c->processors, cudaDevAttrMultiProcessorCount, c->device) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&c->inputs), bytes) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&c->parts), kPartTiles * kPartFloats * sizeof(float)) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&c->splits), kSplitFloats * sizeof(float)) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&c->arrivals), kSplitUnits * sizeof(int)) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&c->tickets), 2 * kTicketPairs * sizeof(int)) != cudaSuccess ||
      (c->opened_bytes && cudaMalloc(&c->opened, c->opened_bytes) != cudaSuccess) ||
      cudaMemsetAsync(c->arrivals, 0, kSplitUnits * sizeof(int), c->stream) != cudaSuccess ||
      cudaMemsetAsync(c->tickets, 0, 2 * kTicketPairs * sizeof(int), c->stream) != cudaSuccess) {
    cudaGetLastError();
    destroy(c);
    return nullptr;
  }
  if (c->deterministic || !o.library) return c;
  c->library = Library::open().release();
  if (c->library && cudaMalloc(reinterpret_cast<void**>(&c->expanded), kExpandedBytes) != cudaSuccess) {
    cudaGetLastError();
    destroy(c);
    return nullptr;
  }
  return c;
}

void upload(Context* context, void* to, const void* from, size_t bytes) noexcept {
  CudaContext* c = of(context);
  if (bytes && begin(c)) note(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream));
}

void download(Context* context, void* to, const void* from, size_t bytes) noexcept {
  CudaContext* c = of(context);
  if (bytes && begin(c)) note(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream));
}

const char* synchronize(Context* context) noexcept {
  CudaContext* c = of(context);
  if (begin(c)) note(c, cudaStreamSynchronize(c->stream));
  return fault_text(c);
}

KernelTable make_table(int device) {
  KernelTable t{};
  t.name = "cuda";
  t.device = device;
  t.half_products = true;
  t.fp8_inputs = capability_of(device).hopper;
  t.allocate = allocate;
  t.release = release;
  t.allocate_staging = allocate_staging;
  t.release_staging = release_staging;
  t.free_bytes = free_bytes;
  t.load = load;
  t.context_bytes = context_bytes;
  t.create = create;
  t.destroy = destroy;
  t.upload = upload;
  t.download = download;
  t.synchronize = synchronize;
  t.prefetch = prefetch;
  t.mark = mark;
  t.wait = wait;
  t.begin_graph = begin_graph;
  t.end_graph = end_graph;
  t.launch_graph = launch_graph;
  t.destroy_graph = destroy_graph;
  t.packed_bytes = packed_bytes;
  t.pack_rows = 16;
  t.pack = pack;
  t.packed_offset = packed_offset;
  t.scales_apart = [](WeightType type) noexcept { return is_fp8(type); };
  t.cache_type = [](CacheType type) noexcept { return type.keys != CacheElement::kInt4 && type.keys == type.values; };
  t.activations = activations;
  t.gates = gates;
  t.embed = embed;
  t.linear = linear;
  t.norm = norm;
  t.rope_append = rope_append;
  t.attention = attention;
  t.gather = gather;
  t.copy_block = copy_block;
  t.sample = sample_rows;
  t.parallel_for = parallel_for;
  return t;
}

}  // namespace

const char* fault_text(CudaContext* c) {
  if (c->error == cudaSuccess) return nullptr;
  std::snprintf(c->error_text, sizeof c->error_text, "%s: %s", cudaGetErrorName(c->error), cudaGetErrorString(c->error));
  return c->error_text;
}

size_t packed_bytes(WeightType type, int rows, int cols) noexcept {
  const quant::WeightFormat* f = quant::find_format(type);
  const bool has_kernels = f && (is_tiled(type) || is_fp8(type) || f->block_elements == 1);
  return has_kernels && cols % f->block_elements == 0 ? packed_offset(type, rows, cols, rows) : 0;
}

void pack(WeightType type, int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept {
  if (const TiledType* t = find_tiled(type)) return t->pack(rows, cols, src, dst, row_begin, row_end);
  const size_t row = quant::row_bytes(*quant::find_format(type), size_t(cols)), at = row * size_t(row_begin);
  if (is_fp8(type)) {
    const auto* from = static_cast<const uint8_t*>(src) + at;
    auto* to = static_cast<uint8_t*>(dst) + size_t(row_begin) * size_t(cols);
    const size_t unit = size_t(side_unit(type)), units = size_t(row_end - row_begin) * size_t(cols) / unit;
    for (size_t i = 0; i < units; ++i) std::memcpy(to + i * unit, from + i * (unit + 4) + 4, unit);
    return;
  }
  std::memcpy(static_cast<char*>(dst) + at, static_cast<const char*>(src) + at, row * size_t(row_end - row_begin));
}

size_t packed_offset(WeightType type, int, int cols, int row) noexcept {
  if (const TiledType* t = find_tiled(type)) return size_t((row + kUnitRows - 1) / kUnitRows) * t->tile_bytes(cols);
  if (is_fp8(type)) return size_t(row) * size_t(cols);
  return size_t(row) * quant::row_bytes(*quant::find_format(type), size_t(cols));
}

}  // namespace cuda

const KernelTable* cuda_kernels(int device, const char** why) {
  static std::mutex mutex;
  static KernelTable tables[cuda::kMaxDevices];
  static char text[256];
  const std::lock_guard lock(mutex);
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess) {
    std::snprintf(text, sizeof text, "%s", cudaGetErrorString(e));
  } else if (device < 0 || device >= std::min(count, cuda::kMaxDevices)) {
    std::snprintf(text, sizeof text, "this machine has %d CUDA devices", count);
  } else if (!cuda::capability_of(device).code) {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    std::snprintf(text, sizeof text, "the device is of compute capability %d.%d, and this build has code for %s", major, minor, cuda::built_for());
  } else {
    if (!tables[device].name) tables[device] = cuda::make_table(device);
    if (why) *why = nullptr;
    return &tables[device];
  }
  if (why) *why = text;
  return nullptr;
}

}  // namespace sluice::kernels
