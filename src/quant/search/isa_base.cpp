#define SLUICE_FIT_KERNELS fit_kernels_base
#define SLUICE_ADD_PRODUCTS add_products_base
#include "quant/search/fit.inl"
