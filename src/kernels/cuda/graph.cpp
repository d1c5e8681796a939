// Graphs, marks and uploads beside the stream of kernels.
#include "kernels/cuda/cuda_context.h"

namespace sluice::kernels::cuda {

void prefetch(Context* context, void* to, const void* from, size_t bytes) noexcept {
  CudaContext* c = of(context);
  if (!bytes || !begin(c)) return;
  note(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->copies));
  note(c, cudaEventRecord(c->copied, c->copies));
  note(c, cudaStreamWaitEvent(c->stream, c->copied, 0));
}

void mark(Context* context, int number) noexcept {
  CudaContext* c = of(context);
  if (begin(c)) note(c, cudaEventRecord(c->marks[number], c->stream));
}

const char* wait(Context* context, int number) noexcept {
  CudaContext* c = of(context);
  if (begin(c)) note(c, cudaEventSynchronize(c->marks[number]));
  return fault_text(c);
}

bool begin_graph(Context* context) noexcept {
  CudaContext* c = of(context);
  if (!begin(c)) return false;
  if (cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

// A failure here is not the device's: the caller makes the calls again without a graph.
Graph* end_graph(Context* context) noexcept {
  CudaContext* c = of(context);
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t runnable = nullptr;
  if (cudaStreamEndCapture(c->stream, &recorded) != cudaSuccess || !recorded ||
      cudaGraphInstantiate(&runnable, recorded, 0) != cudaSuccess || cudaGraphUpload(runnable, c->stream) != cudaSuccess) {
    cudaGetLastError();
    c->error = c->error == cudaErrorStreamCaptureInvalidated || c->error == cudaErrorStreamCaptureUnsupported ? cudaSuccess : c->error;
    if (runnable) cudaGraphExecDestroy(runnable);
    runnable = nullptr;
  }
  if (recorded) cudaGraphDestroy(recorded);
  return reinterpret_cast<Graph*>(runnable);
}

void launch_graph(Context* context, Graph* graph) noexcept {
  CudaContext* c = of(context);
  if (begin(c)) note(c, cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(graph), c->stream));
}

void destroy_graph(Context*, Graph* graph) noexcept { cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(graph)); }

}  // namespace sluice::kernels::cuda
