#include "draft/suffix.h"

#include <algorithm>

#include "draft/ngram.h"

namespace sluice::draft {
namespace {

constexpr TokenId kBetween = -1;

uint64_t client_of(const DraftSlot& s) { return (s.share_key * 0x9E3779B97F4A7C15ull) ^ s.cache_salt; }

}  // namespace

Suffix::Client* Suffix::find(uint64_t key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  clients_.splice(clients_.begin(), clients_, it->second);
  return &clients_.front();
}

Status Suffix::propose(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (wanted[i] < 0) continue;
    Running& r = running_[slots[i].sequence];
    r.client = client_of(slots[i]);
    const std::span<const TokenId> known = slots[i].history;
    r.tokens.insert(r.tokens.end(), known.begin() + std::ptrdiff_t(r.tokens.size()), known.end());
    const Client* client = wanted[i] > 0 ? find(r.client) : nullptr;
    if (!client) continue;
    const LookupTable::Match match = client->table.find(client->text, known);
    // A run of two tokens of another text says little.
    if (match.length < LookupTable::kRuns[1]) continue;
    copy_on(client->text, match.at, wanted[i], proposals[i].tokens);
    proposals[i].grade = grade_of(match.length);
  }
  return {};
}

void Suffix::forget(uint64_t sequence) {
  const auto it = running_.find(sequence);
  if (it == running_.end()) return;
  Client* client = find(it->second.client);
  if (!client) {
    if (clients_.size() == kClients) {
      by_key_.erase(clients_.back().key);
      clients_.pop_back();
    }
    client = &clients_.emplace_front();
    client->key = it->second.client;
    by_key_[client->key] = clients_.begin();
  }
  append(*client, it->second.tokens);
  running_.erase(it);
}

// When the text is full its older half goes.
void Suffix::append(Client& c, std::span<const TokenId> tokens) {
  tokens = tokens.last(std::min(tokens.size(), kClientTokens / 2));
  size_t added = c.text.size();
  if (c.text.size() + tokens.size() + 1 > kClientTokens) {
    c.text.erase(c.text.begin(), c.text.end() - std::ptrdiff_t(std::min(c.text.size(), kClientTokens / 2 - 1)));
    c.table.clear();
    added = 0;
  }
  c.text.insert(c.text.end(), tokens.begin(), tokens.end());
  c.text.push_back(kBetween);
  // A run with the mark between requests in it is never asked for.
  for (size_t end = added + 1; end < c.text.size(); ++end) c.table.add(c.text, end);
}

}  // namespace sluice::draft
