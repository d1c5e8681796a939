#include "text/jinja/value.h"

namespace sluice::text::jinja {

void Dict::put(std::string canonical, Value key, Value value) {
  const auto [it, fresh] = index.emplace(std::move(canonical), entries.size());
  if (fresh) entries.emplace_back(std::move(key), std::move(value));
  else entries[it->second].second = std::move(value);
}

bool Dict::erase(const std::string& canonical) {
  const auto it = index.find(canonical);
  if (it == index.end()) return false;
  const size_t at = it->second;
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at));
  index.erase(it);
  for (auto& [key, position] : index)
    if (position > at) --position;
  return true;
}

const Value* Args::get(size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named)
    if (*key == name) return &value;
  return nullptr;
}

}  // namespace sluice::text::jinja
