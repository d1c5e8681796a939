#define SLUICE_FIT_KERNELS fit_kernels_base
#define SLUICE_PRODUCTS products_base
#include "quant/search/fit.inl"
