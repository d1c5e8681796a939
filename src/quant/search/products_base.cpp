#define SLUICE_ADD_PRODUCTS add_products_base
#include "quant/search/products.inl"
