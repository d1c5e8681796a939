// The tensor cores' products of a warpgroup (wgmma, sm_90a): 64 rows by n columns by 32 bytes of depth - 16 of f16 or bf16, 32 of e4m3 - and float sums.
// A thread's sums: number 4 j + e of rows lane / 4 (e < 2) and lane / 4 + 8 of its warp's 16, of columns 8 j + lane % 4 * 2 + e % 2.
// Factors in shared memory lie in panels of 64 elements (128 bytes) a row, 16-byte pieces swizzled: piece c of row r is at
// r * 128 + (c ^ r % 8) * 16 of its panel, which begins at a multiple of 1,024 bytes.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/cuda/pipeline.cuh"

namespace sluice::kernels::cuda {

// What the hardware calls a matrix descriptor: address, the step from a panel to the next (of a factor whose rows are the
// product's depth), the step from eight rows to the next eight, 128-byte swizzle.
__device__ inline uint64_t matrix_at(uint32_t address, uint32_t panel_step, uint32_t rows_step = 1024) {
  return uint64_t((address & 0x3FFFF) >> 4) | uint64_t(panel_step >> 4) << 16 | uint64_t(rows_step >> 4) << 32 | uint64_t(1) << 62;
}
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int left>
__device__ inline void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory"); }
// Makes what this thread wrote to shared memory visible to the products of all after the next barrier.
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The compiler moves no use of the sums before here: put behind products_wait.
template <int n>
__device__ inline void sums_are_there(float (&d)[n]) {
#pragma unroll
  for (float& v : d) asm volatile("" : "+f"(v)::"memory");
}

// d = (add ? d : 0) + a * b^T: both factors in shared memory, rows of the depth.
template <class E, int n> __device__ void multiply(float (&d)[n / 2], uint64_t a, uint64_t b, int add);
// The same with a in registers (as mma's left factor, a warp 16 rows).
template <class H, int n> __device__ void multiply_held(float (&d)[n / 2], const uint32_t a[4], uint64_t b, int add);
// d = (add ? d : 0) + a * b: a in registers, b in shared memory, its rows the depth.
template <class H, int n> __device__ void add(float (&d)[n / 2], const uint32_t a[4], uint64_t b, int add);

#define SLUICE_SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SLUICE_SUMS_16(i) SLUICE_SUMS_8(i), SLUICE_SUMS_8(i + 8)
#define SLUICE_SUMS_32(i) SLUICE_SUMS_16(i), SLUICE_SUMS_16(i + 16)
#define SLUICE_WGMMA_SHARED_32(kind, options)                                                                                                         \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32" kind " {"                                                 \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                                                                 \
               "}, %16, %17, p, 1, 1" options "; }"                                                                                                   \
               : SLUICE_SUMS_16(0)                                                                                                                    \
               : "l"(a), "l"(b), "r"(add))
#define SLUICE_WGMMA_SHARED_64(kind, options)                                                                                                         \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64" kind " {"                                                 \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "        \
               "%27, %28, %29, %30, %31"                                                                                                              \
               "}, %32, %33, p, 1, 1" options "; }"                                                                                                   \
               : SLUICE_SUMS_32(0)                                                                                                                    \
               : "l"(a), "l"(b), "r"(add))
#define SLUICE_WGMMA_SHARED_128(kind, options)                                                                                                        \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128" kind " {"                                                \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "        \
               "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "        \
               "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                                                                           \
               "}, %64, %65, p, 1, 1" options "; }"                                                                                                   \
               : SLUICE_SUMS_32(0), SLUICE_SUMS_32(32)                                                                                                \
               : "l"(a), "l"(b), "r"(add))
#define SLUICE_WGMMA_SHARED_256(kind, options)                                                                                                        \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256" kind " {"                                               \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "        \
               "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "        \
               "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "        \
               "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, "            \
               "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "       \
               "%122, %123, %124, %125, %126, %127"                                                                                                   \
               "}, %128, %129, p, 1, 1" options "; }"                                                                                                 \
               : SLUICE_SUMS_32(0), SLUICE_SUMS_32(32), SLUICE_SUMS_32(64), SLUICE_SUMS_32(96)                                                        \
               : "l"(a), "l"(b), "r"(add))
#define SLUICE_WGMMA_HELD_16(kind, options)                                                                                                           \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16" kind " {"                                                 \
               "%0, %1, %2, %3, %4, %5, %6, %7"                                                                                                       \
               "}, {%8, %9, %10, %11}, %12, p, 1, 1" options "; }"                                                                                    \
               : SLUICE_SUMS_8(0)                                                                                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
#define SLUICE_WGMMA_HELD_32(kind, options)                                                                                                           \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32" kind " {"                                                 \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                                                                 \
               "}, {%16, %17, %18, %19}, %20, p, 1, 1" options "; }"                                                                                  \
               : SLUICE_SUMS_16(0)                                                                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
#define SLUICE_WGMMA_HELD_64(kind, options)                                                                                                           \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64" kind " {"                                                 \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "        \
               "%27, %28, %29, %30, %31"                                                                                                              \
               "}, {%32, %33, %34, %35}, %36, p, 1, 1" options "; }"                                                                                  \
               : SLUICE_SUMS_32(0)                                                                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
#define SLUICE_WGMMA_HELD_128(kind, options)                                                                                                          \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128" kind " {"                                                \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "        \
               "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "        \
               "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                                                                           \
               "}, {%64, %65, %66, %67}, %68, p, 1, 1" options "; }"                                                                                  \
               : SLUICE_SUMS_32(0), SLUICE_SUMS_32(32)                                                                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define SLUICE_MULTIPLY(E, kind, options, n)                                                                                                          \
  template <>                                                                                                                                         \
  __device__ inline void multiply<E, n>(float (&d)[n / 2], uint64_t a, uint64_t b, int add) { SLUICE_WGMMA_SHARED_##n(kind, options); }
#define SLUICE_HELD(name, H, kind, options, n)                                                                                                        \
  template <>                                                                                                                                         \
  __device__ inline void name<H, n>(float (&d)[n / 2], const uint32_t a[4], uint64_t b, int add) { SLUICE_WGMMA_HELD_##n(kind, options); }
#define SLUICE_HALVES(H, kind)                                                                                                                        \
  SLUICE_MULTIPLY(H, kind, ", 0, 0", 32) SLUICE_MULTIPLY(H, kind, ", 0, 0", 64) SLUICE_MULTIPLY(H, kind, ", 0, 0", 128) SLUICE_MULTIPLY(H, kind, ", 0, 0", 256)\
  SLUICE_HELD(multiply_held, H, kind, ", 0", 32) SLUICE_HELD(multiply_held, H, kind, ", 0", 64) SLUICE_HELD(multiply_held, H, kind, ", 0", 128)       \
  SLUICE_HELD(add, H, kind, ", 1", 16) SLUICE_HELD(add, H, kind, ", 1", 32) SLUICE_HELD(add, H, kind, ", 1", 64) SLUICE_HELD(add, H, kind, ", 1", 128)
SLUICE_HALVES(__half, "k16.f32.f16.f16")
SLUICE_HALVES(__nv_bfloat16, "k16.f32.bf16.bf16")
SLUICE_MULTIPLY(__nv_fp8_e4m3, "k32.f32.e4m3.e4m3", "", 32)
SLUICE_MULTIPLY(__nv_fp8_e4m3, "k32.f32.e4m3.e4m3", "", 64)
SLUICE_MULTIPLY(__nv_fp8_e4m3, "k32.f32.e4m3.e4m3", "", 128)
SLUICE_MULTIPLY(__nv_fp8_e4m3, "k32.f32.e4m3.e4m3", "", 256)

#undef SLUICE_SUMS_8
#undef SLUICE_SUMS_16
#undef SLUICE_SUMS_32
#undef SLUICE_WGMMA_SHARED_32
#undef SLUICE_WGMMA_SHARED_64
#undef SLUICE_WGMMA_SHARED_128
#undef SLUICE_WGMMA_SHARED_256
#undef SLUICE_WGMMA_HELD_16
#undef SLUICE_WGMMA_HELD_32
#undef SLUICE_WGMMA_HELD_64
#undef SLUICE_WGMMA_HELD_128
#undef SLUICE_MULTIPLY
#undef SLUICE_HELD
#undef SLUICE_HALVES

}  // namespace sluice::kernels::cuda
