// BlockShape: what the values of a quantised block can be; BlockCodes: one block's choice among them. Every quantised layout of
// formats/*.cpp describes itself so and packs such a choice into its bytes, so that searches and error feedback are written once.
//   value(i) = d * scale[g] * level_value(level[i]) + m * offset[g],  g = i / shape.group
// Layouts without integer scales have scale = offset = 1; without an offset, m = 0. Pure data; any thread.
#pragma once
#include <cstdint>

namespace sluice::quant {

constexpr int kMaxBlock = 256, kMaxGroups = 16;
constexpr float kLargestHalf = 65504;  // a block's scale and offset are f16

struct BlockShape {
  int elements;               // of a block: 32 or 256
  int group;                  // elements that share a scale: 16 or 32
  int min_level, max_level;   // inclusive; indices of the codebook where there is one
  const int8_t* codebook;     // ascending values of the levels, or nullptr: levels are their own values
  bool has_offset;
  int min_scale, max_scale;   // of a group's integer scale; both 1: the block's own scale alone
  int max_offset;             // of a group's integer offset, from 0, which lowers values (m <= 0); 1: m is free, of either sign

  int groups() const { return elements / group; }
  bool integer_scales() const { return max_scale > 1; }
  float level_value(int level) const { return codebook ? float(codebook[level]) : float(level); }
};

struct BlockCodes {
  float d = 0, m = 0;               // exact in f16
  int8_t scale[kMaxGroups] = {};
  uint8_t offset[kMaxGroups] = {};
  int8_t level[kMaxBlock] = {};
};

inline float scale_of(const BlockShape& s, const BlockCodes& c, int g) { return s.integer_scales() ? c.d * float(c.scale[g]) : c.d; }
inline float offset_of(const BlockShape& s, const BlockCodes& c, int g) {
  if (!s.has_offset) return 0;
  return s.integer_scales() ? c.m * float(c.offset[g]) : c.m;
}
// The level whose value is nearest to v (already divided by the scale); halves go to the even level, or the lower entry.
int nearest_level(const BlockShape& shape, float v);
// The plain choice: a scale that just spans each group's values, then each value's nearest level. |x| <= kLargestHalf.
void plain_codes(const BlockShape& shape, const float* x, BlockCodes& out);

}  // namespace sluice::quant
