#include "draft/lookup_table.h"

#include <algorithm>
#include <bit>

namespace sluice::draft {
namespace {

constexpr size_t kLeast = 1 << 10, kMost = 1 << 15;
constexpr size_t kNumRuns = std::size(LookupTable::kRuns);

}  // namespace

LookupTable::LookupTable(size_t tokens) : mask_(std::clamp(std::bit_ceil(tokens + 1), kLeast, kMost) - 1), places_(kNumRuns * (mask_ + 1)) {}

void LookupTable::clear() { std::fill(places_.begin(), places_.end(), 0); }

size_t LookupTable::slot(std::span<const int32_t> run) const {
  uint64_t h = run.size();
  for (const int32_t t : run) h = (h ^ uint32_t(t)) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
  return size_t(h >> 20) & mask_;
}

void LookupTable::add(std::span<const int32_t> text, size_t end) {
  for (size_t i = 0; i < kNumRuns; ++i) {
    const size_t n = size_t(kRuns[i]);
    if (end >= n) places_[i * (mask_ + 1) + slot(text.subspan(end - n, n))] = uint32_t(end);
  }
}

LookupTable::Match LookupTable::find(std::span<const int32_t> text, std::span<const int32_t> tail) const {
  for (size_t i = 0; i < kNumRuns; ++i) {
    const size_t n = size_t(kRuns[i]);
    if (tail.size() < n) continue;
    const auto run = tail.last(n);
    const size_t at = places_[i * (mask_ + 1) + slot(run)];
    if (at >= n && at < text.size() && std::equal(run.begin(), run.end(), text.begin() + std::ptrdiff_t(at - n))) return {at, int(n)};
  }
  return {};
}

void copy_on(std::span<const int32_t> text, size_t at, int most, std::vector<int32_t>& out) {
  const size_t begin = out.size();
  for (int i = 0; i < most; ++i, ++at) {
    const int32_t token = at < text.size() ? text[at] : out[begin + (at - text.size())];
    if (token < 0) return;
    out.push_back(token);
  }
}

}  // namespace sluice::draft
