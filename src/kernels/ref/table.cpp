#include "kernels/context.h"
#include "kernels/ref/ref.h"

namespace sluice::kernels {

const KernelTable* reference_kernels() {
  static constexpr KernelTable kTable{
      .name = "reference",
      .device = 0,
      .host_memory = true,
      .batch_invariant = true,
      .int8_inputs = false,
      .bf16_inputs = false,
      .half_products = false,
      .fp8_inputs = false,
      .allocate = host_allocate,
      .release = host_release,
      .allocate_staging = host_allocate,
      .release_staging = host_release,
      .free_bytes = host_free_bytes,
      .load = host_load,
      .context_bytes = host_context_bytes,
      .create = create_context,
      .destroy = destroy_context,
      .upload = host_copy,
      .download = host_copy,
      .prefetch = host_copy,
      .mark = host_mark,
      .wait = host_wait,
      .begin_graph = host_begin_graph,
      .end_graph = host_end_graph,
      .launch_graph = host_launch_graph,
      .destroy_graph = host_launch_graph,
      .synchronize = host_synchronize,
      .packed_bytes = ref::packed_bytes,
      .pack_rows = 16,
      .pack = ref::pack,
      .packed_offset = nullptr,
      .scales_apart = nullptr,
      .cache_type = any_cache_type,
      .activations = nullptr,
      .gates = ref::gates,
      .embed = embed_rows,
      .linear = ref::linear,
      .norm = ref::norm,
      .rope_append = ref::rope_append,
      .attention = ref::attention,
      .gather = gather_rows,
      .copy_block = copy_block,
      .sample = plain_sample_rows,
      .parallel_for = parallel_for,
  };
  return &kTable;
}

}  // namespace sluice::kernels
