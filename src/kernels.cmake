# One template source a kernel family (src/kernels/cpu/*.inl), one translation unit an instruction set (isa_*.cpp), each
# with its own flags; the choice is made by cpuid at run time. No contraction: a fused multiply-add is written as one.
# The CUDA backend is one folder of two: kernels/cuda where there is a toolkit, else kernels/cuda_absent, which says so.
if(SLUICE_CUDA)
  sluice_table(kernels cuda/tiled TiledType tiled kernels/cuda/tiled.h sluice::kernels::cuda cu)
  sluice_layer(kernels DEPS base tensor quant sample LIBS CUDA::cudart_static EXCLUDE cuda_absent cuda)
  # Objects of their own, so that they can be compiled alone.
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cu ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cpp)
  file(GLOB tiled_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/tiled/*.cu)
  # Eight kernels a type, of which a process runs one or two types': a third of their size when packed.
  set_source_files_properties(${tiled_sources} PROPERTIES COMPILE_OPTIONS --compress-mode=size)
  add_library(sluice_cuda OBJECT ${cuda_sources} ${tiled_sources})
  target_link_libraries(sluice_cuda PRIVATE sluice_base sluice_tensor sluice_quant sluice_sample CUDA::cudart_static)
  target_sources(sluice_kernels PRIVATE $<TARGET_OBJECTS:sluice_cuda>)
  # The sampler's floats are those of the host's.
  set_source_files_properties(kernels/cuda/sample.cu PROPERTIES COMPILE_OPTIONS -fmad=false)
else()
  sluice_layer(kernels DEPS base tensor quant sample EXCLUDE cuda)
  sluice_table(kernels cuda/tiled TiledType tiled kernels/cuda/tiled.h sluice::kernels::cuda cu)  # for tests/cuda_on_host alone
endif()
# Under sanitizers that look for what kernels do not have (races, branches that a fuzzer steers), these files take most of the time to compile. Of the others they have
# those of addresses alone.
set(plain "")
if(SLUICE_PLAIN_KERNELS)
  set(plain -fno-sanitize=all)
elseif(SLUICE_SANITIZE)
  set(plain -fno-sanitize=undefined)
endif()
set(avx2 ${plain} -ffp-contract=off -mavx2 -mfma -mf16c)
set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512)
set_source_files_properties(kernels/cpu/isa_avx2.cpp PROPERTIES COMPILE_OPTIONS "${avx2}")
set_source_files_properties(kernels/cpu/isa_avxvnni.cpp PROPERTIES COMPILE_OPTIONS "${avx2};-mavxvnni")
set_source_files_properties(kernels/cpu/isa_avx512.cpp PROPERTIES COMPILE_OPTIONS "${avx512}")
set_source_files_properties(kernels/cpu/isa_avx512bf16.cpp PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512bf16")
