#define SLUICE_PRODUCTS products_avx512
#define SLUICE_WIDE 16
#define SLUICE_ROWS_OF_A 4
#define SLUICE_ROWS_OF_B 6
#include "quant/search/products.inl"
