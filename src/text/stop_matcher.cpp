#include "text/stop_matcher.h"

#include <array>
#include <cstdint>
#include <deque>

namespace sluice::text {

// A full goto table per node: a byte costs one load. Stops are few and short, so 1 KiB a node does not matter.
struct StopMatcher::Automaton {
  struct Node {
    std::array<int32_t, 256> next;
    int32_t depth = 0;
    int32_t stop = -1;  // longest stop that ends in this state
  };
  std::vector<Node> nodes;
  std::vector<std::string> stops;
  bool include_stop = false;

  int32_t state = 0;
  int32_t matched = -1;
  std::string held;  // received, not released; always ends with the text of `state`
  std::string none;

  int32_t add_node(int32_t depth) {
    nodes.emplace_back();
    nodes.back().next.fill(-1);
    nodes.back().depth = depth;
    return static_cast<int32_t>(nodes.size() - 1);
  }
  void insert(int32_t stop) {
    int32_t at = 0;
    for (const char ch : stops[stop]) {
      const auto byte = static_cast<uint8_t>(ch);
      if (nodes[at].next[byte] < 0) {
        const int32_t fresh = add_node(nodes[at].depth + 1);
        nodes[at].next[byte] = fresh;
      }
      at = nodes[at].next[byte];
    }
    if (nodes[at].stop < 0) nodes[at].stop = stop;
  }
  // Breadth first: a node's failure state is shallower, so its row is complete when the node needs it.
  void link() {
    std::vector<int32_t> fail(nodes.size(), 0);
    std::deque<int32_t> queue;
    for (int32_t& child : nodes[0].next) {
      if (child < 0) child = 0;
      else queue.push_back(child);
    }
    while (!queue.empty()) {
      const int32_t at = queue.front();
      queue.pop_front();
      if (nodes[at].stop < 0) nodes[at].stop = nodes[fail[at]].stop;
      for (int byte = 0; byte < 256; ++byte) {
        int32_t& child = nodes[at].next[byte];
        const int32_t other = nodes[fail[at]].next[byte];
        if (child < 0) {
          child = other;
        } else {
          fail[child] = other;
          queue.push_back(child);
        }
      }
    }
  }
};

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : automaton_(std::make_unique<Automaton>()) {
  Automaton& a = *automaton_;
  a.include_stop = include_stop;
  a.add_node(0);
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    a.stops.push_back(std::move(stop));
    a.insert(static_cast<int32_t>(a.stops.size() - 1));
  }
  a.link();
}

StopMatcher::StopMatcher(StopMatcher&&) noexcept = default;
StopMatcher& StopMatcher::operator=(StopMatcher&&) noexcept = default;
StopMatcher::~StopMatcher() = default;

std::string StopMatcher::push(std::string_view bytes) {
  Automaton& a = *automaton_;
  if (a.matched >= 0) return {};
  if (a.stops.empty()) return std::string(bytes);
  for (const char ch : bytes) {
    a.state = a.nodes[a.state].next[static_cast<uint8_t>(ch)];
    a.held += ch;
    if (a.nodes[a.state].stop < 0) continue;
    a.matched = a.nodes[a.state].stop;
    std::string out = std::move(a.held);
    a.held.clear();
    if (!a.include_stop) out.resize(out.size() - a.stops[a.matched].size());
    return out;
  }
  const size_t safe = a.held.size() - static_cast<size_t>(a.nodes[a.state].depth);
  std::string out = a.held.substr(0, safe);
  a.held.erase(0, safe);
  return out;
}

std::string StopMatcher::finish() {
  std::string out = std::move(automaton_->held);
  automaton_->held.clear();
  automaton_->state = 0;
  return out;
}

bool StopMatcher::matched() const { return automaton_->matched >= 0; }

const std::string& StopMatcher::matched_stop() const {
  return automaton_->matched >= 0 ? automaton_->stops[automaton_->matched] : automaton_->none;
}

}  // namespace sluice::text
