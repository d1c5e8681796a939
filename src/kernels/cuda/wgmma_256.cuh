// The tensor cores' widest product of a warpgroup: 64 rows by 256 columns by 32 bytes of depth (16 of f16 or bf16, 32 of e4m3), float sums. Both factors
// in shared memory, as wgmma.cuh has them. A thread's sums: number 4 j + e of rows lane / 4 (e < 2) and lane / 4 + 8 of its warp's 16, of columns
// 8 j + lane % 4 * 2 + e % 2.
#pragma once
#include <cuda_fp8.h>

#include "kernels/cuda/wgmma.cuh"

namespace sluice::kernels::cuda {

// d = (add ? d : 0) + a * b^T.
template <class E> __device__ void multiply_256(float (&d)[128], uint64_t a, uint64_t b, int add);

#define SLUICE_SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SLUICE_SUMS_32(i) SLUICE_SUMS_8(i), SLUICE_SUMS_8(i + 8), SLUICE_SUMS_8(i + 16), SLUICE_SUMS_8(i + 24)
#define SLUICE_MULTIPLY_256(kind, transposed)                                                                                                          \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256" kind                                                     \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
               "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "   \
               "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "   \
               "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "   \
               "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
               "%127}, %128, %129, p, 1, 1" transposed "; }"                                                                                          \
               : SLUICE_SUMS_32(0), SLUICE_SUMS_32(32), SLUICE_SUMS_32(64), SLUICE_SUMS_32(96)                                                        \
               : "l"(a), "l"(b), "r"(add))

template <> __device__ inline void multiply_256<__half>(float (&d)[128], uint64_t a, uint64_t b, int add) { SLUICE_MULTIPLY_256("k16.f32.f16.f16", ", 0, 0"); }
template <> __device__ inline void multiply_256<__nv_bfloat16>(float (&d)[128], uint64_t a, uint64_t b, int add) { SLUICE_MULTIPLY_256("k16.f32.bf16.bf16", ", 0, 0"); }
template <> __device__ inline void multiply_256<__nv_fp8_e4m3>(float (&d)[128], uint64_t a, uint64_t b, int add) { SLUICE_MULTIPLY_256("k32.f32.e4m3.e4m3", ""); }

#undef SLUICE_MULTIPLY_256
#undef SLUICE_SUMS_32
#undef SLUICE_SUMS_8

// The compiler moves no use of the sums before here: put behind products_wait.
__device__ inline void sums_are_there(float (&d)[128]) {
#pragma unroll
  for (float& v : d) asm volatile("" : "+f"(v)::"memory");
}

}  // namespace sluice::kernels::cuda
