#define SLUICE_PRODUCTS products_base
#define SLUICE_WIDE 4
#define SLUICE_ROWS_OF_A 4
#define SLUICE_ROWS_OF_B 3
#include "quant/search/products.inl"
