// Suffix: looks up a sequence's latest tokens in the recent finished requests of the same client: templates, retries and agents
// repeat themselves from request to request. Clients are kept apart by their share key and cache salt, so that nothing of one
// shows in another's timing. Memory: kClientTokens for each of at most kClients clients, the one seen least recently goes first;
// and a copy of what each running sequence knows.
#pragma once
#include <list>
#include <unordered_map>

#include "draft/lookup_table.h"
#include "draft/proposer.h"

namespace sluice::draft {

class Suffix final : public Proposer {
 public:
  static constexpr size_t kClients = 64, kClientTokens = 32768;
  Status propose(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) override;
  void forget(uint64_t sequence) override;
  size_t num_clients() const { return clients_.size(); }

 private:
  struct Client {
    uint64_t key = 0;
    LookupTable table{kClientTokens};
    std::vector<TokenId> text;   // requests one after the other, a token below 0 between them
  };
  struct Running {
    uint64_t client = 0;
    std::vector<TokenId> tokens;
  };
  Client* find(uint64_t key);
  void append(Client& client, std::span<const TokenId> tokens);

  std::list<Client> clients_;    // the most recently seen first
  std::unordered_map<uint64_t, std::list<Client>::iterator> by_key_;
  std::unordered_map<uint64_t, Running> running_;
};

}  // namespace sluice::draft
