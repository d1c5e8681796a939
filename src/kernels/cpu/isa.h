// What every isa_*.cpp includes before it opens its namespace.
#pragma once
// GCC 12 warns of its own headers' deliberately undefined vectors (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <iterator>
#include <utility>

#include "kernels/abi.h"
#include "kernels/context.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/tables.h"
#include "quant/cache_row.h"
#include "quant/codebook.h"
#include "sample/noise.h"
#include "sample/token_mass.h"
