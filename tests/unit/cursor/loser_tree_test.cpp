#include "cursor/loser_tree.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>

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

// How far each stream has been read.
struct Heads {
  const Streams& streams;
  std::vector<std::size_t> positions = std::vector<std::size_t>(streams.size(), 0);
  std::size_t orders = 0;  // comparisons made

  bool has(std::size_t stream) const { return positions[stream] < streams[stream].size(); }
  const std::string& key(std::size_t stream) const { return streams[stream][positions[stream]]; }
  auto order() {
    return [this](std::size_t a, std::size_t b) {
      ++orders;
      if (!has(a) || !has(b)) return static_cast<int>(!has(a)) - static_cast<int>(!has(b));
      return key(a).compare(key(b));
    };
  }
  Item take(std::size_t stream) {
    const Item taken{key(stream), stream, positions[stream]};
    ++positions[stream];
    return taken;
  }
};

std::vector<Item> merged(const Streams& streams) {
  Heads heads{streams};
  LoserTree tree;
  std::vector<Item> items;
  for (tree.build(streams.size(), heads.order()); heads.has(tree.winner()); tree.replay(heads.order())) {
    items.push_back(heads.take(tree.winner()));
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

TEST_CASE("a tree may be built again at any time", "[merge]") {
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
    Heads heads{streams};
    LoserTree tree;
    std::vector<Item> items;
    for (;;) {
      if (!tree.built()) tree.build(streams.size(), heads.order());
      if (!heads.has(tree.winner())) break;
      items.push_back(heads.take(tree.winner()));
      random() % 2 == 0 ? tree.forget() : tree.replay(heads.order());
    }
    CHECK(items == naive(streams));
  }
}

TEST_CASE("a head costs the comparisons of one path", "[merge]") {
  Streams streams(100);
  for (std::size_t stream = 0; stream < streams.size(); ++stream) {
    for (std::size_t i = 0; i < 10; ++i) {
      streams[stream].push_back({static_cast<char>(i), static_cast<char>(stream)});
    }
  }
  Heads heads{streams};
  LoserTree tree;
  tree.build(streams.size(), heads.order());
  CHECK(heads.orders == 99);
  for (std::size_t taken = 0; taken < 1000; ++taken) {
    heads.take(tree.winner());
    heads.orders = 0;
    tree.replay(heads.order());
    CHECK(heads.orders <= 7);
  }
  CHECK_FALSE(heads.has(tree.winner()));
}

}  // namespace
}  // namespace spillway
