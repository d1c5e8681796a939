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
      .allocate = host_allocate,
      .release = host_release,
      .allocate_staging = host_allocate,
      .release_staging = host_release,
      .free_bytes = host_free_bytes,
      .load = host_load,
      .create = create_context,
      .destroy = destroy_context,
      .upload = host_copy,
      .download = host_copy,
      .synchronize = host_synchronize,
      .packed_bytes = ref::packed_bytes,
      .pack_rows = 16,
      .pack = ref::pack,
      .embed = embed_rows,
      .linear = ref::linear,
      .norm = ref::norm,
      .rope_append = ref::rope_append,
      .attention = ref::attention,
      .gather = gather_rows,
      .copy_block = copy_block,
      .parallel_for = parallel_for,
  };
  return &kTable;
}

}  // namespace sluice::kernels
