// The tree of losers (Knuth, The Art of Computer Programming, volume 3, section 5.4.1): finds the least of N streams'
// heads again and again in log N comparisons.
//
// The heads, and their keys, are the caller's: `order(a, b)` tells how stream a's head stands to stream b's: less than,
// equal to or more than 0. An exhausted stream comes after all others. Of equal heads the lower stream's wins, so that
// a merge is stable.
//   tree.build(n, order);
//   while (the head of tree.winner() is there) { take it; its stream moves on; tree.replay(order); }
#pragma once

#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace spillway {

class LoserTree {
 public:
  // Nothing is known of the streams' heads. REQUIRES streams > 0.
  template <class Order>
  void build(std::size_t streams, const Order& order) {
    nodes_.assign(streams, 0);
    absl::InlinedVector<std::size_t, 2 * few> winners(2 * streams);
    for (std::size_t stream = 0; stream < streams; ++stream) winners[streams + stream] = stream;
    for (std::size_t node = streams - 1; node > 0; --node) {
      std::size_t winner = winners[2 * node];
      std::size_t loser = winners[2 * node + 1];
      if (beats(loser, winner, order)) std::swap(winner, loser);
      winners[node] = winner;
      nodes_[node] = loser;
    }
    nodes_[0] = winners[1];
  }
  // Call when the winner's head has changed, and no other head. REQUIRES built().
  template <class Order>
  void replay(const Order& order) {
    std::size_t winner = nodes_[0];
    for (std::size_t node = (winner + nodes_.size()) / 2; node > 0; node /= 2) {
      if (beats(nodes_[node], winner, order)) std::swap(nodes_[node], winner);
    }
    nodes_[0] = winner;
  }
  bool built() const noexcept { return !nodes_.empty(); }
  void forget() noexcept { nodes_.clear(); }  // call build() again
  std::size_t winner() const noexcept { return nodes_[0]; }  // REQUIRES built()

 private:
  template <class Order>
  static bool beats(std::size_t a, std::size_t b, const Order& order) {
    const auto found = order(a, b);
    return found != 0 ? found < 0 : a < b;
  }

  // Up to this many streams need no heap memory.
  static constexpr std::size_t few = 16;

  // nodes_[0] is the winner; nodes_[i] the loser of the match at inner node i, whose children are 2i and 2i+1; stream s
  // is the leaf N + s.
  absl::InlinedVector<std::size_t, few> nodes_;
};

}  // namespace spillway
