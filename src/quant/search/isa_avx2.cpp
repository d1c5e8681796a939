#define SLUICE_FIT_KERNELS fit_kernels_avx2
#define SLUICE_PRODUCTS products_avx2
#include "quant/search/fit.inl"
