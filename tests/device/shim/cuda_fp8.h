#pragma once
#include <cstdint>

struct __nv_fp8_e4m3 { uint8_t bits; };
