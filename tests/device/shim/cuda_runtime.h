#pragma once
#include "cuda_runtime_api.h"

template <class T> cudaError_t cudaMalloc(T** p, size_t bytes) { return cudaMalloc(reinterpret_cast<void**>(p), bytes); }
