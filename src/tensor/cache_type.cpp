#include "tensor/cache_type.h"

#include <utility>

namespace sluice {
namespace {

std::optional<CacheElement> find_element(std::string_view name) {
  for (CacheElement e : kCacheElements)
    if (name == cache_element_name(e)) return e;
  return {};
}

// "16", "8" or "4" from the front of `text`.
std::optional<CacheElement> take_bits(std::string_view& text) {
  constexpr std::pair<std::string_view, CacheElement> kBits[] = {
      {"16", CacheElement::kF16}, {"8", CacheElement::kInt8}, {"4", CacheElement::kInt4}};
  for (const auto& [bits, element] : kBits)
    if (text.starts_with(bits)) {
      text.remove_prefix(bits.size());
      return element;
    }
  return {};
}

}  // namespace

std::optional<CacheType> find_cache_type(std::string_view name) {
  if (const auto both = find_element(name)) return CacheType{*both, *both};
  if (const size_t at = name.find('/'); at != name.npos) {
    const auto keys = find_element(name.substr(0, at)), values = find_element(name.substr(at + 1));
    if (keys && values) return CacheType{*keys, *values};
    return {};
  }
  if (!name.starts_with('k')) return {};
  name.remove_prefix(1);
  const auto keys = take_bits(name);
  if (!keys || !name.starts_with('v')) return {};
  name.remove_prefix(1);
  const auto values = take_bits(name);
  if (!values || !name.empty()) return {};
  return CacheType{*keys, *values};
}

std::string cache_type_name(CacheType t) {
  std::string name(cache_element_name(t.keys));
  if (t.keys != t.values) name.append("/").append(cache_element_name(t.values));
  return name;
}

}  // namespace sluice
