#include "proxy/catalog/config_reader.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <random>

#include "catalog_support.h"

namespace spillway::catalog {
namespace {

using test::compound_key;
using test::doc;
using test::list;

using Table = std::shared_ptr<const CollectionRouting>;

std::optional<ShardIndex> shard_named(std::string_view id) {
  if (!id.starts_with("sh")) return std::nullopt;
  return static_cast<ShardIndex>(std::stoi(std::string(id.substr(2))) - 1);
}

constexpr std::string_view epoch_text = "6b00fd5563155124ad7bdb82";

CollectionEntry entry_of(std::string_view json) {
  auto entry = read_collection_entry(doc(json));
  REQUIRE(entry.has_value());
  return std::move(*entry);
}

// rec.r of a real 4.2.0 cluster.
CollectionEntry entry_r() {
  return entry_of(
      "{'_id': 'rec.r', 'lastmodEpoch': {'$oid': '6b00fd5563155124ad7bdb82'}, 'lastmod': {'$date': "
      "'1970-02-19T17:02:47.301Z'}, 'dropped': false, 'key': {'k': 1}, 'unique': false}");
}

std::string chunk_json(const std::string& min, const std::string& max, int major, int minor, const std::string& shard) {
  return "{'_id': 'rec.r-k_never_parsed', 'lastmod': {'$timestamp': {'t': " + std::to_string(major) +
         ", 'i': " + std::to_string(minor) + "}}, 'lastmodEpoch': {'$oid': '" + std::string(epoch_text) +
         "'}, 'ns': 'rec.r', 'min': {'k': " + min + "}, 'max': {'k': " + max + "}, 'shard': '" + shard +
         "', 'history': [{'validAfter': {'$timestamp': {'t': 1795226965, 'i': 56}}, 'shard': 'sh2'}]}";
}

const std::string lowest = "{'$minKey': 1}";
const std::string highest = "{'$maxKey': 1}";

Result<Table> update(CollectionEntry entry, const Table& previous, const std::vector<std::string>& chunks) {
  RoutingUpdate update(std::move(entry), previous, shard_named);
  for (const std::string& chunk : chunks) {
    if (auto added = update.add(doc(chunk)); !added) return added.error();
  }
  return update.finish();
}

std::string version_text(const Table& table, ShardIndex shard) {
  const ChunkVersion version = table->version_on(shard);
  CHECK(version.epoch == table->cluster->version.epoch);
  return std::to_string(version.major) + "|" + std::to_string(version.minor);
}

std::string filter_text(const Table& previous) {
  return to_json(RoutingUpdate(entry_r(), previous, shard_named).filter());
}

TEST_CASE("the refreshes of a real router lead to the versions that it sent") {
  CHECK(to_json(chunks_sort()) == to_json(doc("{'lastmod': 1}")));
  CHECK(filter_text(nullptr) == to_json(doc("{'ns': 'rec.r', 'lastmod': {'$gte': {'$timestamp': {'t': 0, 'i': 0}}}}")));
  // After the first split, then after the second one; the moves and stale writes that followed.
  const auto first =
      update(entry_r(), nullptr, {chunk_json(lowest, "100", 1, 1, "sh2"), chunk_json("100", highest, 1, 2, "sh2")});
  REQUIRE(first.has_value());
  CHECK(version_text(*first, 1) == "1|2");
  CHECK(version_text(*first, 0) == "0|0");
  CHECK(filter_text(*first) == to_json(doc("{'ns': 'rec.r', 'lastmod': {'$gte': {'$timestamp': {'t': 1, 'i': 2}}}}")));

  const auto split =
      update(entry_r(), *first, {chunk_json("100", "200", 1, 3, "sh2"), chunk_json("200", highest, 1, 4, "sh2")});
  REQUIRE(split.has_value());
  CHECK((*split)->chunks.size() == 3);
  CHECK(version_text(*split, 1) == "1|4");

  const auto moved = update(entry_r(), *split,
                            {chunk_json("200", highest, 1, 4, "sh2"), chunk_json("100", "200", 2, 0, "sh1"),
                             chunk_json(lowest, "100", 2, 1, "sh2")});
  REQUIRE(moved.has_value());
  CHECK(version_text(*moved, 0) == "2|0");
  CHECK(version_text(*moved, 1) == "2|1");
  CHECK(filter_text(*moved) == to_json(doc("{'ns': 'rec.r', 'lastmod': {'$gte': {'$timestamp': {'t': 2, 'i': 1}}}}")));

  const auto again =
      update(entry_r(), *moved, {chunk_json("200", highest, 3, 0, "sh3"), chunk_json(lowest, "100", 3, 1, "sh2")});
  REQUIRE(again.has_value());
  CHECK(version_text(*again, 0) == "2|0");
  CHECK(version_text(*again, 1) == "3|1");
  CHECK(version_text(*again, 2) == "3|0");
  CHECK(version_text(*again, 7) == "0|0");
  CHECK((*again)->cluster->version.lastmod() == (std::uint64_t{3} << 32 | 1));
  CHECK(*(*again)->target_document(doc("{'k': 150}")) == 0);
  CHECK(*(*again)->target_document(doc("{'k': 250}")) == 2);
  // The tables before are as they were.
  CHECK((*first)->chunks.size() == 2);
  CHECK(*(*split)->target_document(doc("{'k': 150}")) == 1);
  CHECK(version_text(*moved, 1) == "2|1");

  // Nothing new: only the known chunk.
  const auto same = update(entry_r(), *again, {chunk_json(lowest, "100", 3, 1, "sh2")});
  REQUIRE(same.has_value());
  CHECK((*same)->cluster->version == (*again)->cluster->version);
  CHECK((*same)->chunks.size() == 3);
}

TEST_CASE("chunks of a hashed collection give each shard its version") {
  // rec.h of a real 4.2.0 cluster: two chunks a shard, 1|0 to 1|5.
  const std::string entry =
      "{'_id': 'rec.h', 'lastmodEpoch': {'$oid': '6b00fd5563155124ad7bdb60'}, 'key': {'_id': 'hashed'}}";
  const std::string points[] = {lowest, "-6148914691236517204", "-3074457345618258602",
                                "0",    "3074457345618258602",  "6148914691236517204",
                                highest};
  std::vector<std::string> chunks;
  for (int i = 0; i < 6; ++i) {
    chunks.push_back("{'ns': 'rec.h', 'min': {'_id': " + points[i] + "}, 'max': {'_id': " + points[i + 1] +
                     "}, 'shard': 'sh" + std::to_string(i / 2 + 1) + "', 'lastmod': {'$timestamp': {'t': 1, 'i': " +
                     std::to_string(i) + "}}, 'lastmodEpoch': {'$oid': '6b00fd5563155124ad7bdb60'}}");
  }
  const auto table = update(entry_of(entry), nullptr, chunks);
  REQUIRE(table.has_value());
  CHECK(version_text(*table, 0) == "1|1");
  CHECK(version_text(*table, 1) == "1|3");
  CHECK(version_text(*table, 2) == "1|5");
  CHECK(list((*table)->all_shards()) == std::vector<int>{0, 1, 2});
}

const std::string uuid_text = "{'$binary': {'base64': 'Tt7zAJUaRx6ccF/peuw0QA==', 'subType': '04'}}";

CollectionEntry entry_by_uuid() {
  return entry_of("{'_id': 'rec.r', 'lastmodEpoch': {'$oid': '" + std::string(epoch_text) +
                  "'}, 'timestamp': {'$timestamp': {'t': 9, 'i': 1}}, 'uuid': " + uuid_text +
                  ", 'key': {'k': 1}, 'unique': true, 'defaultCollation': {'locale': 'fr'}, "
                  "'timeseriesFields': {'timeField': 't'}}");
}

TEST_CASE("a table knows since when its chunks are where they are") {
  const auto moved_at = [](std::string chunk, int seconds) {
    const std::string time = "'t': 1795226965";
    return chunk.replace(chunk.find(time), time.size(), "'t': " + std::to_string(seconds));
  };
  const auto first = update(entry_r(), nullptr,
                            {moved_at(chunk_json(lowest, "5", 1, 0, "sh1"), 300),
                             moved_at(chunk_json("5", highest, 1, 1, "sh2"), 200)});
  REQUIRE(first.has_value());
  CHECK((*first)->cluster->placed_at == (std::uint64_t{300} << 32 | 56));
  const auto later = [&](int seconds) {
    const auto table = update(entry_r(), *first, {moved_at(chunk_json("5", highest, 2, 0, "sh1"), seconds)});
    REQUIRE(table.has_value());
    return (*table)->cluster->placed_at >> 32;
  };
  CHECK(later(400) == 400);
  CHECK(later(100) == 300);  // the other chunk is as it was
  const std::string chunk = chunk_json(lowest, highest, 1, 0, "sh1");
  const std::string never = chunk.substr(0, chunk.find("'history'")) + "'history': []}";
  CHECK((*update(entry_r(), nullptr, {never}))->cluster->placed_at == 0);
}

TEST_CASE("chunks of 5.0 and later belong to a uuid, and bring the collection's facts") {
  const std::string chunk =
      "{'history': [], 'uuid': " + uuid_text +
      ", 'onCurrentShardSince': {'$timestamp': {'t': 1, 'i': 1}}, 'lastmod': {'$timestamp': {'t': "
      "4, 'i': 2}}, 'max': {'k': {'$maxKey': 1}}, 'min': {'k': {'$minKey': 1}}, 'shard': 'sh3'}";
  CHECK(to_json(chunks_filter(entry_by_uuid(), 5)) ==
        to_json(doc("{'uuid': " + uuid_text + ", 'lastmod': {'$gte': {'$timestamp': {'t': 0, 'i': 5}}}}")));
  const auto table = update(entry_by_uuid(), nullptr, {chunk});
  REQUIRE(table.has_value());
  CHECK((*table)->ns == "rec.r");
  CHECK((*table)->unique);
  const ClusterFacts& facts = *(*table)->cluster;
  CHECK(facts.version.lastmod() == (std::uint64_t{4} << 32 | 2));
  CHECK(facts.version.timestamp == (std::uint64_t{9} << 32 | 1));
  CHECK(facts.version.epoch == entry_by_uuid().epoch);
  CHECK(facts.uuid == entry_by_uuid().uuid);
  CHECK(to_json(facts.default_collation) == to_json(doc("{'locale': 'fr'}")));
  CHECK(facts.time_series.has_value());
  CHECK_FALSE(facts.unsplittable);
  CHECK((*table)->version_on(2) == facts.version);
  CHECK((*table)->version_on(0) == ChunkVersion{0, 0, facts.version.epoch, facts.version.timestamp});

  const auto other =
      update(entry_by_uuid(), nullptr,
             {"{'uuid': {'$binary': {'base64': 'Tt7zAJUaRx6ccF/peuw0QQ==', 'subType': '04'}}, 'lastmod': "
              "{'$timestamp': {'t': 4, 'i': 2}}, 'max': {'k': {'$maxKey': 1}}, 'min': {'k': {'$minKey': "
              "1}}, 'shard': 'sh3'}"});
  REQUIRE(other.has_error());
  CHECK_THAT(other.error().message, Catch::Contains("'uuid' names another collection"));

  // The key was refined after the entry was read.
  std::string refined = chunk;
  for (const std::string bound : {"{'k': {'$maxKey': 1}", "{'k': {'$minKey': 1}"}) {
    refined.replace(refined.find(bound), bound.size(), bound + ", 'x': {'$minKey': 1}");
  }
  const auto met = update(entry_by_uuid(), nullptr, {refined});
  REQUIRE(met.has_error());
  CHECK(met.error().is(ErrorCode::conflicting_operation_in_progress));
}

TEST_CASE("a table of another epoch or another key is read anew") {
  const auto table = update(entry_r(), nullptr, {chunk_json(lowest, highest, 7, 3, "sh2")});
  REQUIRE(table.has_value());
  CHECK(RoutingUpdate(entry_r(), *table, shard_named).incremental());
  CollectionEntry dropped_and_made_again = entry_r();
  dropped_and_made_again.epoch[0] = 1;
  CollectionEntry other_key = entry_r();
  other_key.key = test::pattern("{'k': 'hashed'}");
  for (const CollectionEntry& entry : {dropped_and_made_again, other_key}) {
    const RoutingUpdate whole(entry, *table, shard_named);
    CHECK_FALSE(whole.incremental());
    CHECK(to_json(whole.filter()) ==
          to_json(doc("{'ns': 'rec.r', 'lastmod': {'$gte': {'$timestamp': {'t': 0, 'i': 0}}}}")));
  }
  // A static table has no versions.
  const auto fixed = std::make_shared<const CollectionRouting>(test::split_at("{'k': 1}", {"{'k': 5}"}));
  CHECK_FALSE(RoutingUpdate(entry_r(), fixed, shard_named).incremental());
}

struct BadChunks {
  std::string name;
  std::vector<std::string> chunks;
  ErrorCode code;
  std::vector<std::string> texts;
};

std::string without(std::string json, const std::string& part, const std::string& instead = "") {
  const std::size_t at = json.find(part);
  REQUIRE(at != std::string::npos);
  return json.replace(at, part.size(), instead);
}

void check_refused(const Table& previous, const std::vector<BadChunks>& cases) {
  for (const BadChunks& c : cases) {
    INFO(c.name);
    const auto table = update(entry_r(), previous, c.chunks);
    REQUIRE(table.has_error());
    INFO(table.error().message);
    CHECK(table.error().code == static_cast<std::int32_t>(c.code));
    CHECK_THAT(table.error().message, Catch::Contains("rec.r"));
    for (const std::string& text : c.texts) CHECK_THAT(table.error().message, Catch::Contains(text));
  }
}

TEST_CASE("bad documents of chunks are refused, one by one") {
  const std::string good = chunk_json(lowest, highest, 1, 1, "sh2");
  const auto shown = [](const std::string& bound) { return to_json(doc("{'k': " + bound + "}")); };
  const ErrorCode missing = ErrorCode::failed_to_parse;
  const ErrorCode wrong = ErrorCode::type_mismatch;
  const ErrorCode bad = ErrorCode::bad_value;
  const ErrorCode times = ErrorCode::conflicting_operation_in_progress;
  REQUIRE(update(entry_r(), nullptr, {good}).has_value());
  check_refused(
      nullptr,
      {{"no min", {without(good, "'min': {'k': {'$minKey': 1}}, ")}, missing, {"'min' is missing"}},
       {"no max", {without(good, "'max': {'k': {'$maxKey': 1}}, ")}, missing, {"'max' is missing"}},
       {"no shard", {without(good, "'shard': 'sh2', 'history'", "'history'")}, missing, {"'shard' is missing"}},
       {"no epoch", {without(good, "'lastmodEpoch'", "'lastmodEpoch2'")}, missing, {"'lastmodEpoch' is missing"}},
       {"no lastmod", {without(good, "'lastmod'", "'lastmod2'")}, missing, {"'lastmod' is missing"}},
       {"min is a number", {without(good, "'min': {'k': {'$minKey': 1}}", "'min': 5")}, wrong, {"'min'", "int"}},
       {"max is an array", {without(good, "'max': {'k': {'$maxKey': 1}}", "'max': [5]")}, wrong, {"'max'", "array"}},
       {"shard is a number", {without(good, "'shard': 'sh2', 'h", "'shard': 2, 'h")}, wrong, {"'shard'", "int"}},
       {"lastmod is a number",
        {without(good, "{'$timestamp': {'t': 1, 'i': 1}}", "3")},
        wrong,
        {"'lastmod'", "int", "timestamp"}},
       {"lastmod is zero", {chunk_json(lowest, highest, 0, 0, "sh2")}, bad, {"'lastmod' is zero"}},
       {"epoch is text", {without(good, "{'$oid': '6b00fd5563155124ad7bdb82'}", "'x'")}, wrong, {"'lastmodEpoch'"}},
       {"another epoch", {without(good, "6b00fd5563155124ad7bdb82", "6b00fd5563155124ad7bdb83")}, times, {"epoch"}},
       {"another collection", {without(good, "'ns': 'rec.r'", "'ns': 'rec.x'")}, bad, {"'ns' names another"}},
       {"an unknown shard",
        {without(good, "'shard': 'sh2', 'h", "'shard': 'gone', 'h")},
        ErrorCode::shard_not_found,
        {"'gone'"}},
       {"another field",
        {chunk_json(lowest, "5", 1, 0, "sh1"),
         without(chunk_json("5", highest, 1, 1, "sh2"), "'min': {'k'", "'min': {'x'")},
        bad,
        {"'k'", "'x'"}},
       {"min above max", {chunk_json("9", "5", 1, 0, "sh1")}, bad, {"min is not below max"}},
       {"no chunks", {}, times, {"there are none"}},
       {"a hole",
        {chunk_json(lowest, "5", 1, 0, "sh1"), chunk_json("7", highest, 1, 1, "sh2")},
        times,
        {"no chunk covers", shown("5"), shown("7")}},
       {"a hole at the start", {chunk_json("7", highest, 1, 1, "sh2")}, times, {shown(lowest), shown("7")}},
       {"a hole at the end", {chunk_json(lowest, "7", 1, 1, "sh2")}, times, {shown("7"), shown(highest)}},
       {"an overlap of one version",
        {chunk_json(lowest, "5", 1, 1, "sh1"), chunk_json("4", highest, 1, 1, "sh2")},
        times,
        {"share keys", shown("5"), shown("4")}},
       {"an overlap of two versions",
        {chunk_json(lowest, "5", 1, 0, "sh1"), chunk_json("4", highest, 1, 1, "sh2")},
        times,
        {"no chunk covers", shown(lowest), shown("4")}},
       // [0, 10) replaced all of it, and was replaced in part.
       {"a part of a newer chunk",
        {chunk_json(lowest, "0", 1, 0, "sh1"), chunk_json("0", "5", 3, 0, "sh1"), chunk_json("0", "10", 2, 0, "sh1"),
         chunk_json("5", "10", 1, 1, "sh1"), chunk_json("10", highest, 1, 2, "sh2")},
        times,
        {"is newer than a part of it", shown("5"), shown("10")}}});
}

TEST_CASE("a bad chunk spoils the update, whatever follows") {
  RoutingUpdate update(entry_r(), nullptr, shard_named);
  REQUIRE(update.add(doc("{}")).has_error());
  CHECK(update.add(doc(chunk_json(lowest, highest, 1, 1, "sh2"))).has_error());
  CHECK(update.finish().error().is(ErrorCode::failed_to_parse));
}

TEST_CASE("an incremental answer that does not fit the table is refused, and the table stays") {
  const auto table = update(entry_r(), nullptr,
                            {chunk_json(lowest, "0", 1, 0, "sh1"), chunk_json("0", "10", 1, 1, "sh2"),
                             chunk_json("10", highest, 2, 5, "sh3")});
  REQUIRE(table.has_value());
  const ErrorCode times = ErrorCode::conflicting_operation_in_progress;
  const auto shown = [](const std::string& bound) { return to_json(doc("{'k': " + bound + "}")); };
  check_refused(*table,
                {{"nothing, not even the known chunk", {}, times, {"there are none", "newest known version"}},
                 {"half of a split", {chunk_json("10", "20", 2, 6, "sh3")}, times, {shown("20"), shown(highest)}},
                 {"the other half", {chunk_json("20", highest, 2, 6, "sh3")}, times, {shown("10"), shown("20")}},
                 {"over two, in part", {chunk_json("-5", "5", 3, 0, "sh1")}, times, {shown(lowest), shown("-5")}},
                 {"the known chunk elsewhere", {chunk_json("10", highest, 2, 5, "sh1")}, times, {"same version"}},
                 {"other bounds of the known version",
                  {chunk_json("10", "20", 2, 5, "sh3"), chunk_json("20", highest, 2, 6, "sh3")},
                  times,
                  {"same version", shown("20")}},
                 {"older than what is known", {chunk_json("0", "10", 1, 0, "sh1")}, times, {"same version"}}});
  CHECK((*table)->chunks.size() == 3);
  CHECK(version_text(*table, 2) == "2|5");
}

// ---- Random histories

struct OracleChunk {
  int max = 0;  // the last one has no bound
  int shard = 0;
  std::uint64_t lastmod = 0;
};

constexpr int key_min = -2'000'000;
constexpr int key_max = 2'000'000;  // stands for MaxKey

// A collection as the config server keeps it.
class Oracle {
 public:
  Oracle(std::uint64_t seed, int chunks) : random_(seed), by_uuid_(seed % 2 == 0) {
    int min = key_min;
    for (int i = 0; i < chunks; ++i) {
      const bool last = i + 1 == chunks;
      const int max = last ? key_max : key_min + static_cast<int>((std::int64_t{key_max} - key_min) * (i + 1) / chunks);
      chunks_[min] = {max, below(3), std::uint64_t{1} << 32 | static_cast<std::uint32_t>(i + 1)};
      min = max;
    }
    lastmod_ = std::uint64_t{1} << 32 | static_cast<std::uint32_t>(chunks);
  }

  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  const std::map<int, OracleChunk>& chunks() const { return chunks_; }
  std::map<int, OracleChunk>::iterator any() {
    auto it = chunks_.upper_bound(key_min + below(key_max - key_min));
    return std::prev(it);
  }

  void change() {
    switch (below(5)) {
      case 0:
      case 1:
        return split();
      case 2:
        return merge();
      default:
        return move();
    }
  }

  CollectionEntry entry() const { return by_uuid_ ? entry_by_uuid() : entry_r(); }

  // The documents of the filter, in the order of the query.
  std::vector<BsonDoc> documents(std::uint64_t since) {
    std::vector<std::pair<std::uint64_t, BsonDoc>> found;
    for (const auto& [min, chunk] : chunks_) {
      if (chunk.lastmod >= since) found.emplace_back(chunk.lastmod, document(min, chunk));
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<BsonDoc> out;
    for (auto& [lastmod, document] : found) out.push_back(std::move(document));
    return out;
  }

 private:
  std::uint64_t next_minor() { return ++lastmod_; }
  std::uint64_t next_major() { return lastmod_ = ((lastmod_ >> 32) + 1) << 32; }

  void split() {
    const auto it = any();
    const int min = it->first;
    const OracleChunk old = it->second;
    const int parts = 2 + below(3);
    if (old.max - min < parts) return;
    for (int i = 0, low = min; i < parts; ++i) {
      const int high = i + 1 == parts ? old.max : low + 1 + below((old.max - low) - (parts - i - 1));
      chunks_[low] = {high, old.shard, next_minor()};
      low = high;
    }
  }
  void merge() {
    const auto first = any();
    auto last = std::next(first);
    for (int i = below(30); i > 0 && last != chunks_.end() && last->second.shard == first->second.shard; --i) ++last;
    const int max = std::prev(last)->second.max;
    chunks_.erase(std::next(first), last);
    first->second = {max, first->second.shard, next_minor()};
  }
  void move() {
    const auto it = any();
    const int donor = it->second.shard;
    it->second.shard = below(6);
    it->second.lastmod = next_major();
    // Another chunk of the donor gets a new version, if it has one near.
    auto control = any();
    for (int i = 0; i < 20 && control != chunks_.end(); ++i, ++control) {
      if (control == it || control->second.shard != donor) continue;
      control->second.lastmod = next_minor();
      return;
    }
  }

  BsonDoc document(int min, const OracleChunk& chunk) {
    const auto bound = [](int value) {
      BsonWriter out;
      if (value == key_min) {
        out.append_min_key("k");
      } else if (value == key_max) {
        out.append_max_key("k");
      } else {
        out.append("k", value);
      }
      return std::move(out).finish();
    };
    const BsonDoc low = bound(min);
    const BsonDoc high = bound(chunk.max);
    std::vector<int> fields = {0, 1, 2, 3, 4, 5};
    std::shuffle(fields.begin(), fields.end(), random_);
    BsonWriter out;
    for (const int field : fields) {
      if (field == 0) out.append("min", low);
      if (field == 1) out.append("max", high);
      if (field == 2) out.append_timestamp("lastmod", chunk.lastmod);
      if (field == 3) out.append("shard", "sh" + std::to_string(chunk.shard + 1));
      if (field == 4) out.append("jumbo", true);
      if (field != 5) continue;
      if (by_uuid_) {
        out.append_binary("uuid", 4, *entry().uuid);
      } else {
        out.append("ns", "rec.r").append("lastmodEpoch", ValueView{BsonType::object_id, entry().epoch});
      }
    }
    return std::move(out).finish();
  }

  std::mt19937_64 random_;
  const bool by_uuid_;
  std::map<int, OracleChunk> chunks_;  // by min
  std::uint64_t lastmod_ = 0;
};

Table read(const CollectionEntry& entry, const Table& previous, const std::vector<BsonDoc>& documents) {
  RoutingUpdate update(entry, previous, shard_named);
  for (const BsonDoc& document : documents) REQUIRE(update.add(document).has_value());
  auto table = update.finish();
  if (table.has_error()) INFO(table.error().message);
  REQUIRE(table.has_value());
  return *table;
}

// All that a map tells, to find a change in it.
std::string everything(const ChunkMap& map) {
  std::string out;
  for (std::size_t i = 0; i < map.size(); ++i) {
    out.append(map.max_key(i));
    out.append(reinterpret_cast<const char*>(map.max_bound(i).data()), map.max_bound(i).size());
    out += "|" + std::to_string(map.owner(i)) + "|" + std::to_string(map.lastmod(i)) + "|" +
           std::to_string(map.next_owner_change(i)) + ";";
  }
  for (ShardIndex shard = 0; shard < 8; ++shard) out += std::to_string(map.lastmod_on(shard)) + ",";
  for (const ShardIndex shard : map.owners()) out += std::to_string(shard) + ".";
  return out;
}

// REQUIREs are slow: one answer for a whole map.
std::string differences(const ChunkMap& map, Oracle& oracle) {
  if (map.size() != oracle.chunks().size()) return "another count";
  std::map<int, std::uint64_t> highest_of;
  std::size_t i = 0;
  std::vector<int> owners;
  for (const auto& [min, chunk] : oracle.chunks()) {
    const ValueView low = map.min_bound(i)["k"];
    const ValueView high = map.max_bound(i)["k"];
    if (min == key_min ? low.type != BsonType::min_key : low.to_int64() != min) return "another min";
    if (chunk.max == key_max ? high.type != BsonType::max_key : high.to_int64() != chunk.max) return "another max";
    if (map.owner(i) != chunk.shard) return "another owner";
    if (map.lastmod(i) != chunk.lastmod) return "another version";
    highest_of[chunk.shard] = std::max(highest_of[chunk.shard], chunk.lastmod);
    owners.push_back(chunk.shard);
    ++i;
  }
  for (std::size_t at = 0, next = 0; at < owners.size(); ++at) {
    if (next <= at) next = at + 1;
    while (next < owners.size() && owners[next] == owners[at]) ++next;
    if (map.next_owner_change(at) != next) return "another end of a run";
  }
  for (int shard = 0; shard < 8; ++shard) {
    const auto found = highest_of.find(shard);
    const bool owns = found != highest_of.end();
    if (map.lastmod_on(static_cast<ShardIndex>(shard)) != (owns ? found->second : 0)) return "another shard's version";
    if (map.owners().contains(static_cast<ShardIndex>(shard)) != owns) return "other owners";
  }
  for (int n = 0; n < 50; ++n) {
    const int key = key_min + oracle.below(key_max - key_min);
    const auto chunk = std::prev(oracle.chunks().upper_bound(key));
    if (map.shard_for(compound_key({std::to_string(key)})) != chunk->second.shard) return "another shard of a key";
    const auto number = static_cast<std::size_t>(std::distance(oracle.chunks().begin(), chunk));
    if (map.chunk_for(compound_key({std::to_string(key)})) != number) return "another chunk of a key";
  }
  for (int n = 0; n < 10; ++n) {
    const int low = key_min + oracle.below(key_max - key_min);
    const int high = low + oracle.below(oracle.below(2) == 0 ? 2000 : key_max - low);
    ShardSet expected;
    for (auto it = std::prev(oracle.chunks().upper_bound(low)); it != oracle.chunks().end() && it->first <= high;
         ++it) {
      expected.insert(static_cast<ShardIndex>(it->second.shard));
    }
    ShardSet found;
    map.shards_for_range(compound_key({std::to_string(low)}), compound_key({std::to_string(high)}), found);
    if (!(found == expected)) return "other shards of a range";
  }
  return "";
}

void check_history(std::uint64_t seed, int chunks, int rounds) {
  INFO("seed " << seed);
  Oracle oracle(seed, chunks);
  Table table = read(oracle.entry(), nullptr, oracle.documents(0));
  REQUIRE(differences(table->chunks, oracle) == "");
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t since = table->cluster->version.lastmod();
    // Changes while a read is under way: some chunks are met before and after.
    std::vector<BsonDoc> documents;
    for (int i = oracle.below(6); i > 0; --i) oracle.change();
    if (oracle.below(3) == 0) {
      documents = oracle.documents(since);
      documents.resize(documents.size() / 2);
      for (int i = oracle.below(8); i > 0; --i) oracle.change();
      std::uint64_t read_to = since;
      for (const BsonDoc& each : documents) read_to = *read_timestamp(each.view()["lastmod"]);
      for (BsonDoc& later : oracle.documents(read_to)) documents.push_back(std::move(later));
    } else {
      documents = oracle.documents(since);
    }
    const bool deep = round % 8 == 0;
    const std::string before = deep ? everything(table->chunks) : "";
    const Table next = read(oracle.entry(), table, documents);
    REQUIRE(differences(next->chunks, oracle) == "");
    if (deep) {
      const Table whole = read(oracle.entry(), nullptr, oracle.documents(0));
      REQUIRE(everything(whole->chunks) == everything(next->chunks));
      REQUIRE(whole->cluster->version == next->cluster->version);
      REQUIRE(everything(table->chunks) == before);
    }
    table = next;
  }
}

TEST_CASE("changes applied one after the other lead to the table of a whole load") {
  const std::uint64_t first_seed = std::random_device{}() % 1'000'000;
  std::cout << "routing update seeds from " << first_seed << "\n";
  for (std::uint64_t i = 0; i < 60; ++i) check_history(first_seed + i, 1 + static_cast<int>(i % 12), 60);
  for (std::uint64_t i = 0; i < 6; ++i) check_history(first_seed + 1000 + i, 1020 + static_cast<int>(i), 40);
  for (std::uint64_t i = 0; i < 4; ++i) check_history(first_seed + 2000 + i, 5000, 25);
}

TEST_CASE("a refresh shares the segments that nothing touched") {
  Oracle oracle(7, 10'000);
  const Table before = read(oracle.entry(), nullptr, oracle.documents(0));
  const std::uint64_t since = before->cluster->version.lastmod();
  while (oracle.documents(since).size() < 2) oracle.change();
  const Table after = read(oracle.entry(), before, oracle.documents(since));
  std::size_t shared = 0;
  for (std::size_t i = 0; i < std::min(before->chunks.size(), after->chunks.size()); ++i) {
    const std::string_view key = after->chunks.max_key(i);
    if (before->chunks.max_key(before->chunks.chunk_for(key) - 1).data() == key.data()) ++shared;
  }
  CHECK(shared >= 6'000);
}

TEST_CASE("a cluster's chunk of a small key takes at most 80 bytes, its version included") {
  Oracle oracle(3, 20'000);
  const Table table = read(oracle.entry(), nullptr, oracle.documents(0));
  CHECK(table->chunks.memory_bytes() / table->chunks.size() <= 80);
}

}  // namespace
}  // namespace spillway::catalog
