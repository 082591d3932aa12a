#include "cursor/merge.h"

#include <cassert>
#include <utility>

namespace spillway {

LoserTree::LoserTree(std::size_t streams)
    : entries_(streams), nodes_(streams, 0), waiting_(streams) {
  assert(streams > 0);
}

void LoserTree::change(std::size_t stream, State state) {
  Entry& entry = entries_[stream];
  waiting_ += state == State::waiting ? 1 : 0;
  waiting_ -= entry.state == State::waiting ? 1 : 0;
  entry.state = state;
  // A replay repairs the tree only along the winner's path and only if all others have keys.
  if (!stale_ && stream == nodes_[0] && state != State::waiting) {
    replay(stream);
  } else {
    stale_ = true;
  }
}

void LoserTree::set(std::size_t stream, std::string_view key) {
  entries_[stream].key.assign(key);
  change(stream, State::keyed);
}

void LoserTree::exhaust(std::size_t stream) { change(stream, State::exhausted); }

void LoserTree::await(std::size_t stream) { change(stream, State::waiting); }

bool LoserTree::beats(std::size_t a, std::size_t b) const noexcept {
  const Entry& left = entries_[a];
  const Entry& right = entries_[b];
  if (left.state != right.state) return left.state == State::keyed;
  if (left.state != State::keyed) return a < b;
  const int order = left.key.compare(right.key);
  return order != 0 ? order < 0 : a < b;
}

void LoserTree::replay(std::size_t stream) noexcept {
  std::size_t winner = stream;
  for (std::size_t node = (stream + entries_.size()) / 2; node > 0; node /= 2) {
    if (beats(nodes_[node], winner)) std::swap(nodes_[node], winner);
  }
  nodes_[0] = winner;
}

void LoserTree::rebuild() {
  const std::size_t n = entries_.size();
  std::vector<std::size_t> winners(2 * n);
  for (std::size_t stream = 0; stream < n; ++stream) winners[n + stream] = stream;
  for (std::size_t node = n - 1; node > 0; --node) {
    std::size_t winner = winners[2 * node];
    std::size_t loser = winners[2 * node + 1];
    if (beats(loser, winner)) std::swap(winner, loser);
    winners[node] = winner;
    nodes_[node] = loser;
  }
  nodes_[0] = winners[1];
  stale_ = false;
}

std::optional<std::size_t> LoserTree::winner() {
  assert(ready());
  if (stale_) rebuild();
  if (entries_[nodes_[0]].state == State::exhausted) return std::nullopt;
  return nodes_[0];
}

}  // namespace spillway
