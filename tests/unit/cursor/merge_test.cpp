// The merge of a cursor's shards: what comes next, and what it asks for.
#include "cursor/merge.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cursor/bson_writer.h"

namespace spillway {
namespace {

using Kind = Merge::Next::Kind;

BsonDoc record(std::int32_t key, std::int32_t number, std::size_t name_bytes = 0) {
  BsonWriter out;
  out.append("k", key).append("name", std::string(name_bytes, 'n')).append("n", number);
  return std::move(out).finish();
}

// The same as a shard sends it that was asked for $sortKey: in front, or last.
BsonDoc with_sort_key(std::int32_t key, std::int32_t number, bool last) {
  BsonWriter out;
  const auto append_key = [&] { out.begin_array("$sortKey").append_item(key).end(); };
  if (!last) append_key();
  out.append("n", number);
  if (last) append_key();
  return std::move(out).finish();
}

Batch batch_of(MemoryBudget& budget, const std::vector<BsonDoc>& documents, std::size_t damaged_at = SIZE_MAX) {
  BsonWriter writer;
  writer.begin_array("batch");
  for (const BsonDoc& document : documents) writer.append_item(document.view());
  writer.end();
  const BsonDoc whole = std::move(writer).finish();
  const DocView array = whole.view()["batch"].as_document();
  auto buffer = Buffer::allocate(budget, array.size());
  REQUIRE(buffer);
  buffer->append(array.data(), array.size());
  const DocView inside = DocView::trusted(buffer->data());
  if (damaged_at != SIZE_MAX) {
    auto at = inside.begin();
    for (std::size_t i = 0; i < damaged_at; ++i) ++at;
    buffer->data()[at->raw.data() - buffer->data()] = 0;
  }
  return Batch(std::move(*buffer), inside);
}

SortPattern by(std::string_view path) {
  BsonWriter sort;
  sort.append(path, std::int32_t{1});
  const BsonDoc document = std::move(sort).finish();
  return SortPattern::parse(document).value();
}

struct World {
  explicit World(std::uint64_t limit_bytes = 0) : keys("keys", limit_bytes) { remotes.reserve(16); }

  // One shard's documents, and whether it has more.
  RemoteCursor& add(std::vector<BsonDoc> documents, std::int64_t id = 0) {
    RemoteCursor& remote = remotes.emplace_back();
    remote.id = id;
    if (!documents.empty()) remote.batches.push_back(batch_of(batches, documents));
    return remote;
  }
  void sort_by(std::string_view path, SortKeySource source = SortKeySource::document) {
    state.sort = by(path);
    state.sort_keys = source;
  }
  Merge merge() { return {remotes, state, keys}; }
  // The next documents' numbers, as far as they are here; `last`: what came after them.
  std::vector<std::int32_t> take(Merge& merge, Kind& last, std::size_t most = SIZE_MAX) {
    std::vector<std::int32_t> numbers;
    while (numbers.size() < most) {
      const auto next = merge.next();
      REQUIRE(next.has_value());
      last = next->kind;
      if (last == Kind::skipped) continue;
      if (last != Kind::document) break;
      CHECK(next->bytes == merge.document().size());
      numbers.push_back(merge.document()["n"].as_int32());
      merge.take();
    }
    return numbers;
  }

  MemoryBudget batches{"batches", 0}, keys;
  MergeState state;
  std::vector<RemoteCursor> remotes;
};

using Numbers = std::vector<std::int32_t>;

std::string text_of(Bytes elements) {
  std::string bytes(4, '\0');
  const auto size = static_cast<std::uint32_t>(elements.size() + 5);
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes.append(reinterpret_cast<const char*>(elements.data()), elements.size()).push_back('\0');
  return to_json(DocView::trusted(bytes.data()));
}

TEST_CASE("a sorted merge gives the least head, and of equal ones the earlier shard's", "[merge]") {
  World world;
  world.sort_by("k");
  world.add({record(1, 10), record(3, 11), record(3, 12)});
  world.add({record(1, 20), record(2, 21), record(3, 22)});
  world.add({record(0, 30), record(3, 31)});
  Merge merge = world.merge();
  Kind last{};
  CHECK(world.take(merge, last) == Numbers{30, 10, 20, 21, 11, 12, 22, 31});
  CHECK(last == Kind::end);
  CHECK(merge.next()->kind == Kind::end);
}

TEST_CASE("a key that is made of an array meets the same one of a plain value", "[merge]") {
  const auto with = [](bool array, std::int32_t key, std::int32_t number) {
    BsonWriter out;
    array ? out.begin_array("k").append_item(key).append_item(key + 100).end() : out.append("k", key);
    out.append("n", number);
    return std::move(out).finish();
  };
  World world;
  world.sort_by("k");
  const bool first = GENERATE(false, true);
  world.add({with(first, 5, 10), with(!first, 6, 11)});
  world.add({with(!first, 4, 20), with(!first, 5, 21), with(first, 6, 22), with(first, 7, 23)});
  Merge merge = world.merge();
  Kind last{};
  CHECK(world.take(merge, last) == Numbers{20, 10, 21, 11, 22, 23});
  CHECK(last == Kind::end);
}

TEST_CASE("a sorted merge waits for every shard that may have more", "[merge]") {
  World world;
  world.sort_by("k");
  world.add({record(1, 10), record(5, 11)});
  RemoteCursor& late = world.add({record(2, 20)}, 7);
  Merge merge = world.merge();
  Kind last{};
  CHECK(world.take(merge, last) == Numbers{10, 20});
  CHECK(last == Kind::fetch);
  CHECK(merge.next()->kind == Kind::fetch);  // asking again changes nothing
  late.batches.push_back(batch_of(world.batches, {record(3, 21), record(6, 22)}));
  late.id = 0;
  CHECK(world.take(merge, last) == Numbers{21, 11, 22});
  CHECK(last == Kind::end);
}

TEST_CASE("what is parked is fetched, not missing", "[merge]") {
  const bool sorted = GENERATE(false, true);
  World world;
  if (sorted) world.sort_by("k");
  world.add({}).parked.emplace_back();
  Merge merge = world.merge();
  CHECK(merge.next()->kind == Kind::fetch);
}

TEST_CASE("no shards, and shards without a document, are the end", "[merge]") {
  const bool sorted = GENERATE(false, true);
  World world;
  if (sorted) world.sort_by("k");
  CHECK(world.merge().next()->kind == Kind::end);
  world.add({});
  world.add({});
  CHECK(world.merge().next()->kind == Kind::end);
}

TEST_CASE("a damaged batch is an error where the damage begins", "[merge]") {
  const bool sorted = GENERATE(false, true);
  World world;
  if (sorted) world.sort_by("k");
  world.remotes.emplace_back().batches.push_back(batch_of(world.batches, {record(1, 10), record(2, 11)}, 1));
  Merge merge = world.merge();
  REQUIRE(merge.next()->kind == Kind::document);
  merge.take();
  const auto next = merge.next();
  REQUIRE(next.has_error());
  CHECK(next.error().is(ErrorCode::internal_error));
  CHECK(next.error().message == "a shard's reply is malformed: the batch");
}

TEST_CASE("a document without $sortKey is an error where that is the key", "[merge]") {
  World world;
  world.sort_by("k", SortKeySource::sort_key_field);
  world.add({record(1, 10)});
  CHECK(world.merge().next().error().message == "a shard's document lacks $sortKey");
}

TEST_CASE("a long key is paid for; without room it is asked for, and the merge goes on where it was", "[merge]") {
  World world(500);
  world.sort_by("name");
  world.add({record(0, 10, 200)});
  RemoteCursor& second = world.add({record(0, 20, 201)});
  world.add({record(0, 30, 3)});  // in the key itself: nothing to pay
  Merge merge = world.merge();
  auto taken = world.keys.try_reserve(200);
  REQUIRE(taken);
  const auto next = merge.next();
  REQUIRE(next.has_value());
  CHECK(next->kind == Kind::room);
  CHECK(next->remote == &second);
  CHECK(next->bytes > 200);
  CHECK(second.key_bytes() == 0);  // nothing is held that is not paid for
  taken->release();
  auto room = world.keys.try_reserve(next->bytes);
  REQUIRE(room);
  second.key_room = *std::move(room);
  Kind last{};
  CHECK(world.take(merge, last) == Numbers{30, 10, 20});
  CHECK(last == Kind::end);
  for (RemoteCursor& remote : world.remotes) remote.drop_key();
  CHECK(world.keys.usage().used_bytes == 0);
}

TEST_CASE("without a sort what is there comes, shard by shard, from where the last batch stopped", "[merge]") {
  World world;
  world.add({record(0, 10), record(0, 11)});
  RemoteCursor& open = world.add({record(0, 20)}, 7);
  world.add({record(0, 30)});
  world.state.next_remote = 1;
  Kind last{};
  {
    Merge merge = world.merge();
    CHECK(world.take(merge, last, 2) == Numbers{20, 30});
  }
  Merge merge = world.merge();
  CHECK(world.take(merge, last) == Numbers{10, 11});
  CHECK(last == Kind::fetch);
  open.batches.push_back(batch_of(world.batches, {record(0, 21)}));
  open.id = 0;
  CHECK(world.take(merge, last) == Numbers{21});
  CHECK(last == Kind::end);
}

TEST_CASE("take() tells the last document of what a shard sent at once", "[merge]") {
  World world;
  RemoteCursor& remote = world.add({record(0, 10), record(0, 11)});
  remote.batches.push_back(batch_of(world.batches, {record(0, 12)}));
  Merge merge = world.merge();
  std::vector<bool> ended;
  while (merge.next()->kind == Kind::document) ended.push_back(merge.take());
  CHECK(ended == std::vector<bool>{false, true, true});
}

TEST_CASE("a skip goes over the first of all shards, one at a time; a limit ends the merge", "[merge]") {
  const bool sorted = GENERATE(false, true);
  World world;
  if (sorted) world.sort_by("k");
  world.add({record(1, 10), record(3, 11), record(5, 12)});
  world.add({record(2, 20), record(4, 21)}, 7);
  world.state.skip_remaining = 2;
  world.state.limit_remaining = 2;
  Merge merge = world.merge();
  CHECK(merge.next()->kind == Kind::skipped);
  CHECK(world.state.skip_remaining == 1);
  Kind last{};
  CHECK(world.take(merge, last) == (sorted ? Numbers{11, 21} : Numbers{12, 20}));
  CHECK(last == Kind::end);  // though a shard has more
  CHECK(world.state.limit_remaining == 0);
}

TEST_CASE("elements leave out what only the merge needs", "[merge]") {
  World world;
  const auto only = [&](std::vector<std::string> strip, const BsonDoc& document) {
    world.remotes.clear();
    world.add({BsonDoc(document.view())});
    world.state.strip_fields = std::move(strip);
    Merge merge = world.merge();
    REQUIRE(merge.next()->kind == Kind::document);
    return text_of(merge.elements().value());
  };
  SECTION("nothing to strip") {
    CHECK(only({}, record(1, 10)) == to_json(record(1, 10)));
  }
  SECTION("$sortKey, last or not, keyed here or not") {
    if (GENERATE(false, true)) world.sort_by("k", SortKeySource::sort_key_field);
    CHECK(only({"$sortKey"}, with_sort_key(1, 10, true)) == R"({ "n" : 10 })");
    CHECK(only({"$sortKey"}, with_sort_key(1, 10, false)) == R"({ "n" : 10 })");
  }
  SECTION("fields of the sort") {
    world.sort_by("k");
    CHECK(only({"k"}, record(1, 10)) == R"({ "name" : "", "n" : 10 })");
    CHECK(only({"k", "name"}, record(1, 10)) == R"({ "n" : 10 })");
  }
}

TEST_CASE("a damaged document is not stripped", "[merge]") {
  World world;
  RemoteCursor& remote = world.remotes.emplace_back();
  Batch batch = batch_of(world.batches, {record(1, 10)});
  const_cast<std::uint8_t*>(batch.peek()->data())[4] = 0x7a;  // no type
  remote.batches.push_back(std::move(batch));
  world.state.strip_fields = {"k", "other"};
  Merge merge = world.merge();
  REQUIRE(merge.next()->kind == Kind::document);
  CHECK(merge.elements().error().message == "a shard's reply is malformed: a document");
}

// Documents of many shards in pieces, some of which come late, some keys of which find no room at first.
TEST_CASE("a merge is std::stable_sort, however its input comes", "[merge]") {
  const std::uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int turn = 0; turn < 300; ++turn) {
    World world(random() % 2 == 0 ? 0 : 2'000);
    const bool by_name = random() % 2 == 0;
    world.sort_by(by_name ? "name" : "k");
    struct Sent {
      std::int32_t key, number;
    };
    const std::size_t shards = 1 + random() % 12;
    std::vector<std::vector<Sent>> sent(shards);
    std::vector<std::size_t> given(shards, 0);
    std::vector<Sent> all;
    std::int32_t number = 0;
    for (auto& stream : sent) {
      stream.resize(random() % 12);
      for (Sent& one : stream) one = {static_cast<std::int32_t>(random() % 8), 0};
      std::ranges::stable_sort(stream, {}, &Sent::key);
      for (Sent& one : stream) one.number = number++;
      all.insert(all.end(), stream.begin(), stream.end());
      world.add({}, 1);
    }
    std::ranges::stable_sort(all, {}, &Sent::key);
    const auto give_some = [&](std::size_t shard) {
      std::vector<BsonDoc> documents;
      for (std::size_t n = 1 + random() % 4; n > 0 && given[shard] < sent[shard].size(); --n, ++given[shard]) {
        const Sent& one = sent[shard][given[shard]];
        documents.push_back(record(one.key, one.number, static_cast<std::size_t>(one.key) * 20));
      }
      RemoteCursor& remote = world.remotes[shard];
      if (!documents.empty()) remote.batches.push_back(batch_of(world.batches, documents));
      if (given[shard] == sent[shard].size()) remote.id = 0;
    };
    MemoryBudget elsewhere("elsewhere", 0);  // as a queue's reserve
    std::optional<Merge> merge;
    Numbers merged;
    for (bool ended = false; !ended;) {
      if (!merge || random() % 8 == 0) merge.emplace(world.remotes, world.state, world.keys);  // a batch was full
      const auto next = merge->next();
      REQUIRE(next.has_value());
      switch (next->kind) {
        case Kind::document:
          merged.push_back(merge->document()["n"].as_int32());
          merge->take();
          break;
        case Kind::fetch:
          for (std::size_t shard = 0; shard < shards; ++shard) {
            if (!world.remotes[shard].has_document() && world.remotes[shard].id != 0) give_some(shard);
          }
          break;
        case Kind::room:
          next->remote->key_room = elsewhere.try_reserve(next->bytes).value();
          break;
        default:
          ended = true;
      }
    }
    Numbers expected;
    for (const Sent& one : all) expected.push_back(one.number);
    CHECK(merged == expected);
    world.remotes.clear();
  }
}

}  // namespace
}  // namespace spillway
