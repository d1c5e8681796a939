#define SLUICE_ADD_PRODUCTS add_products_avx2
#include "quant/search/products.inl"
