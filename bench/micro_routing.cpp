// The routing table of a cluster's collection with a million chunks on 50 shards, hashed _id, one core: to load it from
// the documents of config.chunks, met in the order of their versions, which is another one than that of their bounds;
// to take up one move; to find the shard of a document.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proxy/catalog/config_reader.h"

namespace {

using namespace spillway;
using namespace spillway::catalog;

constexpr std::int64_t chunk_count = 1'000'000;
constexpr int shard_count = 50;
constexpr std::int64_t step = std::numeric_limits<std::int64_t>::max() / chunk_count * 2;
constexpr Uuid uuid{0x4e, 0xde, 0xf3};
using Table = std::shared_ptr<const CollectionRouting>;

CollectionEntry make_entry() {
  BsonWriter key;
  key.append("_id", "hashed");
  CollectionEntry entry;
  entry.ns = "app.users";
  entry.key = ShardKeyPattern::parse(std::move(key).finish()).value();
  entry.epoch = {1};
  entry.timestamp = 1;
  entry.uuid = uuid;
  return entry;
}

// Bound number `i` of those between the chunks.
void append_bound(BsonWriter& out, const char* name, std::int64_t i) {
  out.begin_document(name);
  if (i == 0) {
    out.append_min_key("_id");
  } else if (i == chunk_count) {
    out.append_max_key("_id");
  } else {
    out.append("_id", std::numeric_limits<std::int64_t>::min() + i * step);
  }
  out.end();
}

void append_chunk(std::string& documents, std::int64_t chunk, int shard, std::uint64_t lastmod) {
  BsonWriter out;
  const std::string name = "shard" + std::to_string(shard);
  out.append("_id", ValueView{BsonType::object_id, ObjectId{1}}).append_binary("uuid", 4, uuid);
  append_bound(out, "min", chunk);
  append_bound(out, "max", chunk + 1);
  out.append("shard", name).append_timestamp("lastmod", lastmod);
  out.append_timestamp("onCurrentShardSince", lastmod).begin_array("history").begin_document_item();
  out.append_timestamp("validAfter", lastmod).append("shard", name).end().end();
  const BsonDoc made = std::move(out).finish();
  documents.append(reinterpret_cast<const char*>(made.view().data()), made.size());
}

std::optional<ShardIndex> shard_named(std::string_view id) {
  int number = 0;
  for (const char digit : id.substr(5)) number = number * 10 + (digit - '0');
  return static_cast<ShardIndex>(number);
}

Table read(const Table& previous, const std::string& documents) {
  RoutingUpdate update(make_entry(), previous, shard_named);
  for (std::size_t at = 0; at < documents.size();) {
    const DocView chunk = DocView::trusted(documents.data() + at);
    if (!update.add(chunk)) return nullptr;
    at += chunk.size();
  }
  auto table = update.finish();
  return table ? *table : nullptr;
}

const std::string& all_chunks() {
  static const std::string made = [] {
    std::vector<std::int64_t> order(chunk_count);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::mt19937_64 random(1);
    std::shuffle(order.begin(), order.end(), random);
    std::string documents;
    for (std::size_t i = 0; i < order.size(); ++i) {
      append_chunk(documents, order[i], static_cast<int>(random() % shard_count), std::uint64_t{i + 1} << 32);
    }
    return documents;
  }();
  return made;
}

const Table& table() {
  static const Table read_once = read(nullptr, all_chunks());
  return read_once;
}

void load_a_million_chunks(benchmark::State& state) {
  const std::string& documents = all_chunks();
  for (auto _ : state) {
    if (read(nullptr, documents) == nullptr) state.SkipWithError("not read");
  }
  const ChunkMap& chunks = table()->chunks;
  state.counters["bytes_per_chunk"] = static_cast<double>(chunks.memory_bytes()) / static_cast<double>(chunks.size());
}
BENCHMARK(load_a_million_chunks)->Unit(benchmark::kMillisecond);

// The known chunk, the moved one, and the chunk of the donor that gets a new version, far apart.
void refresh_after_a_move(benchmark::State& state) {
  Table now = table();
  const std::size_t newest = [&] {
    std::size_t i = 0;
    while (now->chunks.lastmod(i) != now->cluster->version.lastmod()) ++i;
    return i;
  }();
  auto known = static_cast<std::int64_t>(newest);
  std::mt19937_64 random(2);
  for (auto _ : state) {
    state.PauseTiming();
    const std::uint64_t since = now->cluster->version.lastmod();
    const auto moved = static_cast<std::int64_t>(random() % chunk_count);
    const auto control = (moved + chunk_count / 2) % chunk_count;
    std::string documents;
    if (known != moved && known != control) {
      append_chunk(documents, known, now->chunks.owner(static_cast<std::size_t>(known)), since);
    }
    const std::uint64_t next = ((since >> 32) + 1) << 32;
    append_chunk(documents, moved, static_cast<int>(random() % shard_count), next);
    append_chunk(documents, control, now->chunks.owner(static_cast<std::size_t>(control)), next + 1);
    known = control;
    state.ResumeTiming();
    now = read(now, documents);
    if (now == nullptr) return state.SkipWithError("not read");
  }
}
BENCHMARK(refresh_after_a_move)->Unit(benchmark::kMicrosecond);

std::vector<std::string> random_keys() {
  std::vector<std::string> keys;
  const ShardKeyPattern key = *make_entry().key;
  for (std::int64_t i = 0; i < 1 << 18; ++i) {
    BsonWriter out;
    out.append("_id", i);
    keys.push_back(key.key_of_document(std::move(out).finish()).value());
  }
  return keys;
}

void find_the_shard_of_a_key(benchmark::State& state) {
  const std::vector<std::string> keys = random_keys();
  const ChunkMap& chunks = table()->chunks;
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(chunks.shard_for(keys[i]));
    i = (i + 1) % keys.size();
  }
}
BENCHMARK(find_the_shard_of_a_key);

}  // namespace

BENCHMARK_MAIN();
