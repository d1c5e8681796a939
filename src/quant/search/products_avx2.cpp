#define SLUICE_PRODUCTS products_avx2
#define SLUICE_WIDE 8
#define SLUICE_ROWS_OF_A 4
#define SLUICE_ROWS_OF_B 3
#include "quant/search/products.inl"
