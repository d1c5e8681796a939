#include "kernels/cuda/library.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <new>
#include <tuple>

#include "kernels/cuda/products.h"

namespace sluice::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = Library::kWorkspaceBytes;

// Tokens for which one choice serves: every step of a server has another number of them. Coarse, since what the library chooses for numbers that
// are no whole tiles may take half as long again as its choice for the next that are.
int bucket(int tokens) {
  const int step = tokens <= 256 ? 16 : tokens <= 512 ? 128 : tokens <= 2048 ? 256 : 512;
  return (tokens + step - 1) / step * step;
}

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) describe;
  decltype(&cublasLtMatmulDescDestroy) destroy_description;
  decltype(&cublasLtMatmulDescSetAttribute) set;
  decltype(&cublasLtMatrixLayoutCreate) layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) prefer;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmul) multiply;
};

template <class Fn>
bool find(void* library, const char* name, Fn& fn) {
  fn = reinterpret_cast<Fn>(dlsym(library, name));
  return fn != nullptr;
}

// The library stays open once it is found: contexts come and go.
const Functions* functions() {
  static const Functions* const found = []() -> const Functions* {
    void* library = nullptr;
    for (const char* name : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    static Functions f;
    if (!library) return nullptr;
    const bool all = find(library, "cublasLtCreate", f.create) && find(library, "cublasLtDestroy", f.destroy) &&
                     find(library, "cublasLtMatmulDescCreate", f.describe) &&
                     find(library, "cublasLtMatmulDescDestroy", f.destroy_description) &&
                     find(library, "cublasLtMatmulDescSetAttribute", f.set) &&
                     find(library, "cublasLtMatrixLayoutCreate", f.layout) &&
                     find(library, "cublasLtMatrixLayoutDestroy", f.destroy_layout) &&
                     find(library, "cublasLtMatmulPreferenceCreate", f.preference) &&
                     find(library, "cublasLtMatmulPreferenceDestroy", f.destroy_preference) &&
                     find(library, "cublasLtMatmulPreferenceSetAttribute", f.prefer) &&
                     find(library, "cublasLtMatmulAlgoGetHeuristic", f.choose) && find(library, "cublasLtMatmul", f.multiply);
    return all ? &f : nullptr;
  }();
  return found;
}

// type, tokens, cols, rows, x_stride, y_stride, type of y, accumulate, bias, scales
using Shape = std::tuple<WeightType, int, int, int, int, int, DType, bool, bool, bool>;

}  // namespace

struct Library::State {
  const Functions* f = nullptr;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Shape, cublasLtMatmulAlgo_t> choices;
  ~State() {
    cudaFree(workspace);
    if (handle) f->destroy(handle);
  }
};

struct Library::Codes {
  const float* token_scales;  // null: none, and none of the weight's
};

namespace {

// A product in the library's terms, where matrices are of columns: y^T [rows, tokens] = weight [cols, rows]^T * x^T [cols, tokens].
struct Call {
  const Functions& f;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
  bool ok = false;

  // scales: the tokens', of codes; null: none.
  Call(const Functions& f, WeightType type, int x_stride, int tokens, int cols, const Output& o, const float* scales) : f(f) {
    const bool codes = is_fp8(type);
    const cudaDataType_t in = codes ? CUDA_R_8F_E4M3 : type == WeightType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
    const cudaDataType_t out = o.y_type == DType::kF32 ? CUDA_R_32F : o.y_type == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    ok = f.describe(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
         f.set(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) == CUBLAS_STATUS_SUCCESS &&
         f.layout(&weight, in, uint64_t(cols), uint64_t(o.rows), cols) == CUBLAS_STATUS_SUCCESS &&
         f.layout(&x, in, uint64_t(cols), uint64_t(tokens), x_stride) == CUBLAS_STATUS_SUCCESS &&
         f.layout(&y, out, uint64_t(o.rows), uint64_t(tokens), o.y_stride) == CUBLAS_STATUS_SUCCESS;
    if (codes) describe_codes(o, scales);
    if (codes || !ok || !o.bias) return;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t bias_type = CUDA_R_32F;
    ok = f.set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) == CUBLAS_STATUS_SUCCESS &&
         f.set(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type) == CUBLAS_STATUS_SUCCESS &&
         f.set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o.bias, sizeof o.bias) == CUBLAS_STATUS_SUCCESS;
  }
  // Sums in the tensor cores' own accumulators throughout: their 14 bits are far more than e4m3's four.
  void describe_codes(const Output& o, const float* scales) {
    const int8_t fast = 1;
    ok = ok && f.set(product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast) == CUBLAS_STATUS_SUCCESS;
    if (!ok || !scales) return;
    const int32_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    ok = f.set(product, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &by_row, sizeof by_row) == CUBLAS_STATUS_SUCCESS &&
         f.set(product, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &by_row, sizeof by_row) == CUBLAS_STATUS_SUCCESS &&
         f.set(product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &o.scales, sizeof o.scales) == CUBLAS_STATUS_SUCCESS &&
         f.set(product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scales, sizeof scales) == CUBLAS_STATUS_SUCCESS;
  }
  ~Call() {
    if (y) f.destroy_layout(y);
    if (x) f.destroy_layout(x);
    if (weight) f.destroy_layout(weight);
    if (product) f.destroy_description(product);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

bool choose(const Functions& f, cublasLtHandle_t handle, const Call& call, cublasLtMatmulAlgo_t* algo) {
  cublasLtMatmulPreference_t preference = nullptr;
  if (f.preference(&preference) != CUBLAS_STATUS_SUCCESS) return false;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const bool ok = f.prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &Library::kWorkspaceBytes, sizeof Library::kWorkspaceBytes) == CUBLAS_STATUS_SUCCESS &&
                  f.choose(handle, call.product, call.weight, call.x, call.y, call.y, preference, 1, &result, &found) == CUBLAS_STATUS_SUCCESS;
  f.destroy_preference(preference);
  *algo = result.algo;
  return ok && found > 0;
}

}  // namespace

Library::Library(std::unique_ptr<State> state) : state_(std::move(state)) {}
Library::~Library() = default;

std::unique_ptr<Library> Library::open() {
  auto state = std::make_unique<State>();
  state->f = functions();
  if (!state->f || state->f->create(&state->handle) != CUBLAS_STATUS_SUCCESS) return nullptr;
  if (cudaMalloc(&state->workspace, Library::kWorkspaceBytes) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return std::unique_ptr<Library>(new Library(std::move(state)));
}

cudaError_t Library::multiply(cudaStream_t stream, WeightType type, const void* x, int x_stride, int tokens, int cols, const Output& o) noexcept {
  return multiply(stream, type, x, x_stride, tokens, cols, o, nullptr);
}
cudaError_t Library::multiply_codes(cudaStream_t stream, const uint8_t* x, const float* token_scales, int tokens, int cols, const Output& o) noexcept {
  Output unbiased = o;
  unbiased.bias = nullptr;
  const Codes codes{token_scales};
  return multiply(stream, WeightType::kFp8_128, x, cols, tokens, cols, unbiased, &codes);
}

cudaError_t Library::multiply(cudaStream_t stream, WeightType type, const void* x, int x_stride, int tokens, int cols, const Output& o,
                              const Codes* codes) noexcept {
  State& s = *state_;
  const Functions& f = *s.f;
  const float* scales = codes ? codes->token_scales : nullptr;
  const Call call(f, type, x_stride, tokens, cols, o, scales);
  if (!call.ok) return cudaErrorUnknown;
  const Shape shape{type, bucket(tokens), cols, o.rows, x_stride, o.y_stride, o.y_type, o.accumulate, o.bias != nullptr, scales != nullptr};
  auto at = s.choices.find(shape);
  if (at == s.choices.end()) {
    const Call of_bucket(f, type, x_stride, bucket(tokens), cols, o, scales);
    cublasLtMatmulAlgo_t algo;
    if (!of_bucket.ok || !choose(f, s.handle, of_bucket, &algo)) return cudaErrorNotSupported;
    at = s.choices.emplace(shape, algo).first;
  }
  const float one = 1, before = o.accumulate ? 1 : 0;
  const auto go = [&](const cublasLtMatmulAlgo_t* algo) {
    return f.multiply(s.handle, call.product, &one, o.weight, call.weight, x, call.x, &before, o.y, call.y, o.y, call.y, algo,
                      s.workspace, kWorkspaceBytes, stream);
  };
  // A choice for the bucket may not do for each number in it (alignment, say); the library then chooses by itself.
  if (go(&at->second) == CUBLAS_STATUS_SUCCESS || go(nullptr) == CUBLAS_STATUS_SUCCESS) return cudaSuccess;
  return cudaErrorNotSupported;
}

}  // namespace sluice::kernels::cuda
