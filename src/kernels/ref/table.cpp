#include "kernels/context.h"
#include "kernels/ref/ref.h"

namespace sluice::kernels {

const KernelTable* reference_kernels() {
  static constexpr KernelTable kTable{
      .name = "reference",
      .create = create_context,
      .destroy = destroy_context,
      .packed_bytes = ref::packed_bytes,
      .pack_rows = 16,
      .pack = ref::pack,
      .embed = embed_rows,
      .linear = ref::linear,
      .norm = ref::norm,
      .rope_append = ref::rope_append,
      .attention = ref::attention,
      .copy_block = copy_block,
      .parallel_for = parallel_for,
  };
  return &kTable;
}

}  // namespace sluice::kernels
