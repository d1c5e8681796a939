#include "lab/pools.h"

#include <algorithm>
#include <charconv>
#include <sched.h>
#include <set>

namespace sluice::lab {
namespace {

constexpr size_t kMostPools = 16;

template <class T>
Status number(std::string_view text, T lo, T hi, const std::string& key, T& out) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec == std::errc() && end == text.data() + text.size() && out >= lo && out <= hi) return {};
  char limits[64];
  std::snprintf(limits, sizeof limits, "%g to %g", double(lo), double(hi));
  return invalid(key + " must be a number from " + limits + ", got '" + std::string(text.substr(0, 20)) + "'", "--pool");
}

Status set_class(PoolSpec& pool, std::string_view value) {
  if (value == "interactive") pool.takes = {true, false};
  else if (value == "batch") pool.takes = {false, true};
  else if (value == "both") pool.takes = {true, true};
  else return invalid("class must be interactive, batch or both, got '" + std::string(value.substr(0, 20)) + "'", "--pool");
  return {};
}

Status set(PoolSpec& pool, const std::string& key, std::string_view value, bool& told_class) {
  if (value.empty()) return invalid(key + " has no value", "--pool");
  if (key == "objective") pool.objective = value;
  else if (key == "kv") pool.kv_memory = value;
  else if (key == "kv_type") pool.kv_type = value;
  else if (key == "alias") pool.aliases.emplace_back(value);
  else if (key == "max_sequences") return number(value, 1, 4096, key, pool.max_sequences);
  else if (key == "threads") return number(value, 1, 256, key, pool.threads);
  else if (key == "step_ms") return number(value, 0.0, 60000.0, key, pool.step_ms);
  else if (key == "weight") return number(value, 0.001, 1000.0, key, pool.weight);
  else if (key == "devices") return number(value, 0, 1023, key, pool.device);
  else if (key == "speculate") {
    if (value != "off" && value != "ngram" && value != "draft" && value != "auto")
      return invalid("'" + std::string(value.substr(0, 20)) + "' is none of off, ngram, draft, auto", "--pool");
    pool.speculate = value;
  } else if (key == "class") {
    told_class = true;
    return set_class(pool, value);
  } else {
    return invalid("'" + key.substr(0, 20) + "' is none of objective, kv, kv_type, max_sequences, step_ms, devices, threads, weight, class, speculate, alias", "--pool");
  }
  return {};
}

Result<PoolSpec> parse_pool(std::string_view text) {
  PoolSpec out;
  const size_t colon = text.find(':');
  out.name = text.substr(0, colon);
  const bool plain = std::all_of(out.name.begin(), out.name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; });
  if (out.name.empty() || out.name.size() > 32 || !plain) return invalid("a pool's name is 1 to 32 letters, digits, - and _, got '" + out.name.substr(0, 40) + "'", "--pool");
  bool told_class = false;
  std::string_view rest = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    // devices=0,1: a comma that no key=value follows belongs to the value.
    while (comma != rest.npos && rest.substr(comma + 1, rest.find(',', comma + 1) - comma - 1).find('=') == rest.npos) comma = rest.find(',', comma + 1);
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
    const size_t equals = part.find('=');
    if (equals == part.npos) return invalid("'" + std::string(part.substr(0, 40)) + "' is no key=value", "--pool");
    const std::string key(part.substr(0, equals));
    if (key == "devices" && part.find(',') != part.npos)
      return Error{ErrorCode::kUnsupported, "pool " + out.name + ": several devices for one pool are not supported: give each its pool", "--pool"};
    SLUICE_TRY(set(out, key, part.substr(equals + 1), told_class));
  }
  if (out.objective.empty() && out.name == "batch") out.objective = "throughput";
  if (!told_class) out.takes = {out.objective != "throughput", out.objective == "throughput"};
  return out;
}

void set_affinity(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int c : cores) CPU_SET(size_t(c), &set);
  ::sched_setaffinity(0, sizeof set, &set);  // a wish: without it threads run where they may
}

}  // namespace

Result<std::vector<PoolSpec>> parse_pools(const std::vector<std::string>& texts) {
  std::vector<PoolSpec> out;
  std::set<std::string> names, aliases;
  if (texts.size() > kMostPools) return invalid("there may be at most " + std::to_string(kMostPools) + " pools", "--pool");
  for (const std::string& text : texts) {
    SLUICE_ASSIGN(PoolSpec pool, parse_pool(text));
    if (!names.insert(pool.name).second) return invalid("two pools are named " + pool.name, "--pool");
    for (const std::string& a : pool.aliases)
      if (!aliases.insert(a).second) return invalid("the alias " + a + " leads to two pools", "--pool");
    out.push_back(std::move(pool));
  }
  for (const size_t cls : {0, 1})
    if (!out.empty() && std::none_of(out.begin(), out.end(), [&](const PoolSpec& p) { return p.takes[cls]; })) out.front().takes[cls] = true;
  return out;
}

std::vector<int> usable_cores(int at_most) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int c = 0; c < CPU_SETSIZE && (at_most <= 0 || int(out.size()) < at_most); ++c)
    if (CPU_ISSET(size_t(c), &set)) out.push_back(c);
  return out;
}

Result<std::vector<std::vector<int>>> share_cores(const std::vector<PoolSpec>& pools, const std::vector<int>& cores) {
  std::vector<std::vector<int>> out(pools.size());
  size_t next = 0;
  for (size_t i = 0; i < pools.size(); ++i)
    for (int t = 0; t < pools[i].threads; ++t) {
      if (next == cores.size())
        return invalid("pool " + pools[i].name + ": threads come to more than the " + std::to_string(cores.size()) + " cores there are", "--pool");
      out[i].push_back(cores[next++]);
    }
  for (size_t i = 0; i < pools.size(); ++i) {
    if (pools[i].threads > 0) continue;
    if (next == cores.size()) return invalid("pool " + pools[i].name + ": the others' threads take all " + std::to_string(cores.size()) + " cores", "--pool");
    out[i].assign(cores.begin() + std::ptrdiff_t(next), cores.end());
  }
  return out;
}

OnCores::OnCores(const std::vector<int>& cores) {
  if (cores.empty()) return;
  before_ = usable_cores(0);
  set_affinity(cores);
}

OnCores::~OnCores() {
  if (!before_.empty()) set_affinity(before_);
}

}  // namespace sluice::lab
