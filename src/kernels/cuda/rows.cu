// Work a row at a time: embeddings, norms that stand alone, the rows whose logits are wanted.
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace sluice::kernels::cuda {
namespace {

template <WeightType type>
__global__ void embed_kernel(EmbedArgs a) {
  let_next_begin();
  wait_for_previous();
  const int32_t given = __ldcg(a.ids + blockIdx.x), id = given >= 0 ? given : __ldcg(a.sampled - 1 - given);
  const uint8_t* row = static_cast<const uint8_t*>(a.table) + size_t(id) * a.row_bytes;
  float* y = a.y + size_t(blockIdx.x) * a.dim;
  for (int k = threadIdx.x * 8; k < a.dim; k += blockDim.x * 8) {
    float w[8];
    decode8<type>(row, k, a.dim, a.dim % 8 == 0, w);
    for (int i = 0; i < 8 && k + i < a.dim; ++i) y[k + i] = __fmul_rn(w[i], a.scale);
  }
}

__global__ void norm_kernel(NormArgs a) {
  let_next_begin();
  wait_for_previous();
  const float* x = a.x + size_t(blockIdx.x) * a.x_stride;
  float* y = a.y + size_t(blockIdx.x) * a.y_stride;
  double sum = 0;
  for (int k = threadIdx.x; k < a.dim; k += blockDim.x) {
    const double v = __ldcg(x + k);
    sum += v * v;
  }
  const double factor = 1.0 / sqrt(block_sum(sum) / a.dim + a.eps);
  for (int k = threadIdx.x; k < a.dim; k += blockDim.x) {
    const float v = float(__ldcg(x + k) * factor * (a.weight ? a.weight[k] : 1.0f));
    y[k] = a.accumulate ? __ldcg(y + k) + v : v;
  }
}

__global__ void gather_kernel(GatherArgs a) {
  let_next_begin();
  wait_for_previous();
  const float* x = a.x + size_t(a.rows[blockIdx.x]) * a.dim;
  for (int k = threadIdx.x; k < a.dim; k += blockDim.x) a.y[size_t(blockIdx.x) * a.dim + k] = __ldcg(x + k);
}

}  // namespace

void embed(Context* context, const EmbedArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.num_tokens <= 0 || !begin(c)) return;
  with_type(a.type, [&]<WeightType type>() { note(c, launch_early({c, a.num_tokens}, a.num_tokens, 128, 0, embed_kernel<type>, a)); });
}

void norm(Context* context, const NormArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.num_tokens <= 0 || !begin(c)) return;
  note(c, launch_early({c, a.num_tokens}, a.num_tokens, 256, 0, norm_kernel, a));
}

void gather(Context* context, const GatherArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.num_rows <= 0 || !begin(c)) return;
  note(c, launch_early({c, a.num_rows}, a.num_rows, 256, 0, gather_kernel, a));
}

}  // namespace sluice::kernels::cuda
