#include "cursor/merge.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

namespace spillway {
namespace {

struct Item {
  std::string key;
  std::size_t stream;
  std::size_t position;
  bool operator==(const Item&) const = default;
};
using Streams = std::vector<std::vector<std::string>>;

// The reference: all items, sorted by key, ties by stream.
std::vector<Item> naive(const Streams& streams) {
  std::vector<Item> items;
  for (std::size_t stream = 0; stream < streams.size(); ++stream) {
    for (std::size_t i = 0; i < streams[stream].size(); ++i) {
      items.push_back({streams[stream][i], stream, i});
    }
  }
  std::ranges::stable_sort(items, {}, &Item::key);
  return items;
}

void advance(LoserTree& tree, const Streams& streams, std::size_t stream, std::size_t position) {
  if (position < streams[stream].size()) {
    tree.set(stream, streams[stream][position]);
  } else {
    tree.exhaust(stream);
  }
}

std::vector<Item> merged(const Streams& streams) {
  LoserTree tree(streams.size());
  std::vector<std::size_t> positions(streams.size(), 0);
  for (std::size_t stream = 0; stream < streams.size(); ++stream) {
    advance(tree, streams, stream, 0);
  }
  std::vector<Item> items;
  while (const auto winner = tree.winner()) {
    items.push_back({std::string(tree.key(*winner)), *winner, positions[*winner]});
    advance(tree, streams, *winner, ++positions[*winner]);
  }
  return items;
}

TEST_CASE("one stream passes through", "[merge]") {
  CHECK(merged({{"a", "b", "b"}}) == naive({{"a", "b", "b"}}));
  CHECK(merged({{}}).empty());
}

// All ascending sequences of at most `length` letters out of a, b, c.
std::vector<std::vector<std::string>> sequences(std::size_t length) {
  std::vector<std::vector<std::string>> all = {{}};
  for (std::size_t begin = 0, size = 0; size < length; ++size) {
    const std::size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const char* letter : {"a", "b", "c"}) {
        if (!all[begin].empty() && all[begin].back() > letter) continue;
        auto longer = all[begin];
        longer.emplace_back(letter);
        all.push_back(std::move(longer));
      }
    }
  }
  return all;
}

TEST_CASE("all small merges of two, three and four streams", "[merge]") {
  const auto long_ones = sequences(4);
  const auto short_ones = sequences(2);
  REQUIRE(long_ones.size() == 35);
  REQUIRE(short_ones.size() == 10);
  std::size_t wrong = 0;
  for (const auto& a : long_ones) {
    for (const auto& b : long_ones) wrong += merged({a, b}) != naive({a, b}) ? 1 : 0;
  }
  for (const auto& a : short_ones) {
    for (const auto& b : short_ones) {
      for (const auto& c : short_ones) {
        wrong += merged({a, b, c}) != naive({a, b, c}) ? 1 : 0;
        for (const auto& d : short_ones)
          wrong += merged({a, b, c, d}) != naive({a, b, c, d}) ? 1 : 0;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("any number of streams, with keys that hold any bytes", "[merge]") {
  const std::uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (std::size_t n = 1; n <= 40; ++n) {
    Streams streams(n);
    for (auto& stream : streams) {
      stream.resize(random() % 20);
      for (auto& key : stream) {
        key.resize(random() % 3);
        for (char& byte : key) byte = static_cast<char>(random() % 4 == 0 ? 0xff : random() % 2);
      }
      std::ranges::sort(stream);
    }
    CHECK(merged(streams) == naive(streams));
  }
}

TEST_CASE("streams that wait hold the merge up, and go on", "[merge]") {
  const std::uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int turn = 0; turn < 200; ++turn) {
    Streams streams(1 + random() % 6);
    for (auto& stream : streams) {
      stream.resize(random() % 8);
      for (auto& key : stream) key = std::string(1, static_cast<char>('a' + random() % 4));
      std::ranges::sort(stream);
    }
    LoserTree tree(streams.size());
    CHECK_FALSE(tree.ready());
    std::vector<std::size_t> positions(streams.size(), 0);
    std::vector<std::size_t> waiting;
    for (std::size_t stream = 0; stream < streams.size(); ++stream) waiting.push_back(stream);
    std::vector<Item> items;
    for (;;) {
      std::ranges::shuffle(waiting, random);
      for (const std::size_t stream : waiting) advance(tree, streams, stream, positions[stream]);
      waiting.clear();
      REQUIRE(tree.ready());
      const auto winner = tree.winner();
      if (!winner) break;
      items.push_back({std::string(tree.key(*winner)), *winner, positions[*winner]++});
      if (random() % 2 == 0) {
        tree.await(*winner);
        CHECK_FALSE(tree.ready());
        waiting.push_back(*winner);
      } else {
        advance(tree, streams, *winner, positions[*winner]);
      }
    }
    CHECK(items == naive(streams));
    for (std::size_t stream = 0; stream < streams.size(); ++stream) CHECK(tree.exhausted(stream));
  }
}

TEST_CASE("a stream may end or change while it is not the winner", "[merge]") {
  LoserTree tree(3);
  tree.set(0, "b");
  tree.set(1, "a");
  tree.set(2, "c");
  CHECK(tree.winner() == 1U);
  tree.set(2, "0");
  CHECK(tree.winner() == 2U);
  tree.exhaust(0);
  tree.exhaust(2);
  CHECK(tree.winner() == 1U);
  tree.exhaust(1);
  CHECK(tree.winner() == std::nullopt);
}

}  // namespace
}  // namespace spillway
