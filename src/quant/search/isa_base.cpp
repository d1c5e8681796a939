#define SLUICE_FIT_KERNELS fit_kernels_base
#include "quant/search/fit.inl"
