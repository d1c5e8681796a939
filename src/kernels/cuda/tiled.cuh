// A lane's words of a unit (tiled_codes.h) in registers, and how they get there.
#pragma once
#include <cstdint>

#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/tiled_read.h"

namespace sluice::kernels::cuda {

// Where columns k and k + 1 of a row of inputs lie in the order of fragments, k a multiple of 8; the next three pairs are 8 further on each.
__device__ inline int fragment_place(int k) { return k / 32 * 32 + k % 32 / 16 * 4 + k % 16 / 4; }

template <class T>
struct Lane {
  static constexpr int kPieces = T::kBits / 2, kScales = T::kScaleBytes / 4, kWhole = kScales / 4 * 4;
  uint32_t codes[kCodeWords<T>], scales[kScales];
  __device__ uint32_t code(int i) const { return codes[i]; }
  __device__ uint32_t scale(int i) const { return scales[i]; }
  // unit: where this lane's codes are, and its rows' scales, as those of `who` of `holders`.
  __device__ void read(const uint8_t* unit, int who, int holders) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4 * kPieces; i += 4) read4(unit + code_place<T>(lane, i), codes + i);
    if constexpr (T::kBits % 2) read2(unit + code_place<T>(lane, 4 * kPieces), codes + 4 * kPieces);
    const uint8_t* at = unit + kCodeBytes<T>;
#pragma unroll
    for (int i = 0; i < kWhole; i += 4) read4(at + scale_place<T>(who, holders, 4 * i), scales + i);
    if constexpr (kScales % 4 >= 2) read2(at + scale_place<T>(who, holders, 4 * kWhole), scales + kWhole);
    if constexpr (kScales % 2) scales[kScales - 1] = word_of(at + scale_place<T>(who, holders, 4 * (kScales - 1)));
  }
  // As a unit lies.
  __device__ void read(const uint8_t* unit) { read(unit, threadIdx.x % 32 / 4, 8); }

 private:
  __device__ static void read4(const uint8_t* p, uint32_t* to) {
    const uint4 v = *reinterpret_cast<const uint4*>(p);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
  __device__ static void read2(const uint8_t* p, uint32_t* to) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    to[0] = v.x, to[1] = v.y;
  }
};

// A unit in the ring of few_tiles.cuh: as it lies, but that every lane has its rows' scales to itself, so that it waits for its own copies alone.
template <class T>
struct Slot {
  static constexpr int kBytes = kCodeBytes<T> + 32 * T::kScaleBytes;
  // slot: where the warp's begins.
  __device__ static void copy(uint32_t slot, const uint8_t* unit) {
    const int lane = threadIdx.x % 32, g = lane / 4;
    const auto codes = [&]<int bytes>(int i) { copy_bytes<bytes>(slot + code_place<T>(lane, i), unit + code_place<T>(lane, i)); };
    const auto scales = [&]<int bytes>(int i) {
      copy_bytes<bytes>(slot + kCodeBytes<T> + scale_place<T>(lane, 32, i), unit + kCodeBytes<T> + scale_place<T>(g, 8, i));
    };
#pragma unroll
    for (int i = 0; i < Lane<T>::kPieces * 4; i += 4) codes.template operator()<16>(i);
    if constexpr (T::kBits % 2) codes.template operator()<8>(Lane<T>::kPieces * 4);
#pragma unroll
    for (int i = 0; i < T::kScaleBytes / 16 * 16; i += 16) scales.template operator()<16>(i);
    if constexpr (T::kScaleBytes % 16 >= 8) scales.template operator()<8>(T::kScaleBytes / 16 * 16);
    if constexpr (T::kScaleBytes % 8 != 0) scales.template operator()<4>(T::kScaleBytes / 8 * 8);
  }
  __device__ static void read(Lane<T>& lane, const uint8_t* slot) { lane.read(slot, threadIdx.x % 32, 32); }

 private:
  template <int bytes>
  __device__ static void copy_bytes(uint32_t to, const uint8_t* from) {
    if constexpr (bytes == 16) copy_once(to, from, policy_once());
    else copy_few<bytes>(to, from);
  }
};

}  // namespace sluice::kernels::cuda
