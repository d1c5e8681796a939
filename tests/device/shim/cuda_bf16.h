// bf16 on a host.
#pragma once
#include "cuda_fp16.h"

struct __nv_bfloat16 { uint16_t bits; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };

inline float __bfloat162float(__nv_bfloat16 v) { return sluice::bf16_to_float(v.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {sluice::float_to_bf16(v)}; }
inline float __low2float(__nv_bfloat162 v) { return __bfloat162float(v.x); }
inline float __high2float(__nv_bfloat162 v) { return __bfloat162float(v.y); }
