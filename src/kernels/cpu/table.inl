// Everything of one instruction set, in the namespace that the including file has opened. Only functions of internal
// linkage: the linker must never pick one file's copy of a function for another, slower machine.

constexpr KernelTable make_table(const char* name) {
  KernelTable t{};
  t.name = name;
  t.host_memory = true;
  t.batch_invariant = true;
  t.int8_inputs = true;
  t.bf16_inputs = kPairProducts;
  t.allocate = host_allocate;
  t.release = host_release;
  t.allocate_staging = host_allocate;
  t.release_staging = host_release;
  t.free_bytes = host_free_bytes;
  t.load = host_load;
  t.context_bytes = host_context_bytes;
  t.create = create_context;
  t.destroy = destroy_context;
  t.upload = host_copy;
  t.download = host_copy;
  t.prefetch = host_copy;
  t.mark = host_mark;
  t.wait = host_wait;
  t.begin_graph = host_begin_graph;
  t.end_graph = host_end_graph;
  t.launch_graph = host_launch_graph;
  t.destroy_graph = host_launch_graph;
  t.synchronize = host_synchronize;
  t.packed_bytes = packed_bytes;
  t.pack_rows = kTileRows;
  t.pack = pack;
  t.cache_type = any_cache_type;
  t.embed = embed_rows;
  t.linear = linear;
  t.norm = norm;
  t.rope_append = rope_append;
  t.attention = attention;
  t.gather = gather_rows;
  t.copy_block = copy_block;
  t.sample = [](Context* c, const SampleArgs& a) noexcept { sample_rows(c, a, sampling::kScan); };
  t.parallel_for = parallel_for;
  return t;
}
