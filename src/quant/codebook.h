// The 16 values of IQ4_NL's and IQ4_XS's levels, denser near zero.
#pragma once
#include <cstdint>

namespace sluice::quant {

inline constexpr int8_t kNonLinear4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace sluice::quant
