#include "proxy/canned/canned_store.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "bench/bson_bytes.h"

using namespace spillway::bench;

namespace {

std::string whole(const StoreReply& reply) {
  std::string bytes = reply.head;
  ElementRange range = reply.range;
  std::size_t index = 0;
  while (range.images != nullptr && range.count > 0) {
    const auto run = range.images->stamp(range.local, index, range.count, 1 << 16);
    bytes.append(run.bytes, run.elements * run.element_bytes);
    index += run.elements;
    range.local += static_cast<std::int64_t>(run.elements);
    range.count -= run.elements;
  }
  return bytes + reply.tail;
}

struct Batch {
  std::vector<std::int64_t> numbers;
  std::int64_t id = -1;
  std::size_t bytes = 0;
};

Batch batch_of(const StoreReply& reply, std::string_view name) {
  const std::string bytes = whole(reply);
  REQUIRE(bytes.size() == reply.bytes());
  REQUIRE(find_field(bytes, "ok")->number() == 1);
  const auto cursor = find_field(bytes, "cursor");
  REQUIRE(cursor);
  const auto list = find_field(cursor->value, name);
  REQUIRE(list);
  Batch batch;
  batch.id = *find_field(cursor->value, "id")->integer();
  batch.bytes = list->value.size();
  FieldWalk walk(list->value);
  while (auto element = walk.next()) {
    REQUIRE(element->name == std::to_string(batch.numbers.size()));
    const auto document = read_document(element->value);
    REQUIRE(document);
    batch.numbers.push_back(document->number);
  }
  REQUIRE_FALSE(walk.malformed());
  return batch;
}

std::int64_t code_of(const StoreReply& reply) {
  const auto code = find_field(reply.head, "code");
  return code ? *code->integer() : 0;
}

StoreReply answer_to(CannedStore& store, const std::string& body, std::size_t sequence_documents = 0) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(body.data());
  return store.answer(spillway::DocView::parse({bytes, body.size()}).value(), sequence_documents);
}

StoreReply ask(CannedStore& store, DocWriter command) {
  return answer_to(store, command.add_text("$db", "db").take());
}

StoreReply get_more(CannedStore& store, std::int64_t id, const char* collection, int batch_size) {
  DocWriter command;
  command.add_int64("getMore", id).add_text("collection", collection);
  if (batch_size >= 0) command.add_int32("batchSize", batch_size);
  return ask(store, std::move(command));
}

}  // namespace

TEST_CASE("a scan gives every document of this shard once, in order", "[canned]") {
  StoreOptions options;
  options.index = 1;
  options.shard_count = 3;
  CannedStore store(options);
  auto batch = batch_of(ask(store, DocWriter().add_text("find", "docs_100x1000")), "firstBatch");
  REQUIRE(batch.numbers.size() == 101);
  std::vector<std::int64_t> all = batch.numbers;
  while (batch.id != 0) {
    REQUIRE(store.open_cursors() == 1);
    batch = batch_of(get_more(store, batch.id, "docs_100x1000", 50), "nextBatch");
    REQUIRE(batch.numbers.size() <= 50);
    all.insert(all.end(), batch.numbers.begin(), batch.numbers.end());
  }
  REQUIRE(store.open_cursors() == 0);
  REQUIRE(all.size() == 333);
  for (std::size_t at = 0; at < all.size(); ++at) {
    REQUIRE(all[at] == 1 + 3 * static_cast<std::int64_t>(at));
  }
}

TEST_CASE("a getMore without batchSize stops at 16 MB", "[canned]") {
  CannedStore store({});
  auto batch = batch_of(ask(store, DocWriter().add_text("find", "docs_1024x40000")), "firstBatch");
  batch = batch_of(get_more(store, batch.id, "docs_1024x40000", -1), "nextBatch");
  REQUIRE(batch.bytes <= batch_bytes_max);
  REQUIRE(batch.bytes > batch_bytes_max - 2 * 1024);
  REQUIRE(batch.id != 0);
  // One document of 16 MB is a batch, whatever the cap.
  const auto one =
      batch_of(ask(store, DocWriter().add_text("find", "docs_16777216x2")), "firstBatch");
  REQUIRE(one.numbers == std::vector<std::int64_t>{0});
  REQUIRE(one.id != 0);
}

TEST_CASE("limit, skip, batchSize 0 and singleBatch are honoured", "[canned]") {
  CannedStore store({});
  const auto find = [] { return DocWriter().add_text("find", "docs_50x500"); };
  auto batch = batch_of(ask(store, find().add_int32("batchSize", 0)), "firstBatch");
  REQUIRE(batch.numbers.empty());
  REQUIRE(batch.id != 0);
  batch = batch_of(get_more(store, batch.id, "docs_50x500", -1), "nextBatch");
  REQUIRE(batch.numbers.size() == 500);
  REQUIRE(batch.id == 0);
  batch = batch_of(ask(store, find().add_int32("limit", 3).add_int32("skip", 7)), "firstBatch");
  REQUIRE(batch.numbers == std::vector<std::int64_t>{7, 8, 9});
  REQUIRE(batch.id == 0);
  batch = batch_of(ask(store, find().add_int32("batchSize", 4).add_bool("singleBatch", true)),
                   "firstBatch");
  REQUIRE(batch.numbers.size() == 4);
  REQUIRE(batch.id == 0);
  batch = batch_of(ask(store, find().add_int32("skip", 600)), "firstBatch");
  REQUIRE(batch.numbers.empty());
  REQUIRE(store.open_cursors() == 0);
}

TEST_CASE("filters on _id select, other filters and sorts are refused", "[canned]") {
  StoreOptions options;
  options.index = 2;
  options.shard_count = 4;
  CannedStore store(options);
  const auto numbers = [&](DocWriter filter) {
    DocWriter command;
    command.add_text("find", "point_200").add_raw(bson::document_type, "filter", filter.take());
    command.add_int32("limit", 100);
    return batch_of(ask(store, std::move(command)), "firstBatch").numbers;
  };
  REQUIRE(numbers(DocWriter().add_int32("_id", 6)) == std::vector<std::int64_t>{6});
  REQUIRE(numbers(DocWriter().add_double("_id", 6)) == std::vector<std::int64_t>{6});
  REQUIRE(numbers(DocWriter().add_int64("_id", 7)).empty());
  REQUIRE(numbers(DocWriter().add_int32("_id", -2)).empty());
  REQUIRE(numbers(DocWriter().add_int32("_id", 1'000'002)).empty());
  DocWriter range;
  range.open_document("_id").add_int32("$gt", 6).add_int32("$lte", 14).close();
  REQUIRE(numbers(std::move(range)) == std::vector<std::int64_t>{10, 14});
  DocWriter by_name;
  by_name.add_text("find", "point_200").open_document("filter").add_int32("crc", 1).close();
  REQUIRE(code_of(ask(store, std::move(by_name))) == 2);
  DocWriter descending;
  descending.add_text("find", "point_200").open_document("sort").add_int32("_id", -1).close();
  REQUIRE(code_of(ask(store, std::move(descending))) == 2);
}

TEST_CASE("$sortKey is appended when projected, as servers of that version have it", "[canned]") {
  struct Form {
    int max_wire_version;
    std::string_view name;  // of the key's element
    std::size_t bytes;
  };
  const auto form = GENERATE(Form{8, "", 125}, Form{9, "0", 126});
  StoreOptions options;
  options.max_wire_version = form.max_wire_version;
  CannedStore store(options);
  DocWriter command;
  command.add_text("find", "docs_100x5").open_document("sort").add_int32("_id", 1).close();
  command.open_document("projection").open_document("$sortKey").add_text("$meta", "sortKey");
  command.close().close();
  const std::string bytes = whole(ask(store, std::move(command)));
  const auto list = find_field(find_field(bytes, "cursor")->value, "firstBatch");
  FieldWalk walk(list->value);
  std::int64_t expected = 0;
  while (auto element = walk.next()) {
    REQUIRE(element->value.size() == form.bytes);
    REQUIRE(find_field(element->value, "_id")->integer() == expected);
    const auto key = find_field(element->value, "$sortKey");
    REQUIRE(key);
    REQUIRE(find_field(key->value, form.name)->integer() == expected);
    ++expected;
  }
  REQUIRE(expected == 5);
}

TEST_CASE("killCursors ends cursors and tells which it did not know", "[canned]") {
  CannedStore store({});
  const auto batch =
      batch_of(ask(store, DocWriter().add_text("find", "docs_50x500")), "firstBatch");
  DocWriter command;
  command.add_text("killCursors", "docs_50x500").open_array("cursors");
  command.add_int64("0", batch.id).add_int64("1", 12345).close();
  const auto reply = ask(store, std::move(command));
  REQUIRE(find_field(find_field(reply.head, "cursorsKilled")->value, "0")->integer() == batch.id);
  REQUIRE(find_field(find_field(reply.head, "cursorsNotFound")->value, "0")->integer() == 12345);
  REQUIRE(store.open_cursors() == 0);
  REQUIRE(code_of(get_more(store, batch.id, "docs_50x500", -1)) == 43);
}

TEST_CASE("a getMore for another collection's cursor does not find it", "[canned]") {
  CannedStore store({});
  const auto batch =
      batch_of(ask(store, DocWriter().add_text("find", "docs_50x500")), "firstBatch");
  REQUIRE(code_of(get_more(store, batch.id, "docs_51x500", -1)) == 43);
  REQUIRE(store.open_cursors() == 1);
}

TEST_CASE("counts, aggregations, writes and unknown commands are answered", "[canned]") {
  StoreOptions options;
  options.shard_count = 2;
  CannedStore store(options);
  REQUIRE(
      find_field(ask(store, DocWriter().add_text("count", "docs_50x501")).head, "n")->integer() ==
      251);
  DocWriter counting;
  counting.add_text("aggregate", "docs_50x501").open_array("pipeline").open_document("0");
  counting.open_document("$group").add_int32("_id", 1).open_document("n").add_int32("$sum", 1);
  counting.close().close().close().close();
  const std::string counted = ask(store, std::move(counting)).head;
  const auto list = find_field(find_field(counted, "cursor")->value, "firstBatch");
  REQUIRE(find_field(FieldWalk(list->value).next()->value, "n")->integer() == 251);
  DocWriter limited;
  limited.add_text("aggregate", "docs_50x501").open_array("pipeline").open_document("0");
  limited.add_int32("$limit", 2).close().close();
  REQUIRE(batch_of(ask(store, std::move(limited)), "firstBatch").numbers.size() == 2);
  DocWriter unseen;
  unseen.add_text("aggregate", "docs_50x501").open_array("pipeline").open_document("0").open_document("$match");
  unseen.open_document("_id").open_array("$in").close().close().close().close();
  unseen.open_document("1").open_document("$group").add_int32("_id", 2).close().close().close();
  REQUIRE(batch_of(ask(store, std::move(unseen)), "firstBatch").numbers.empty());
  const std::string insert = DocWriter().add_text("insert", "x").add_text("$db", "d").take();
  REQUIRE(find_field(answer_to(store, insert, 17).head, "n")->integer() == 17);
  REQUIRE(store.written_documents() == 17);
  REQUIRE(code_of(ask(store, DocWriter().add_int32("replSetGetStatus", 1))) == 59);
  REQUIRE(batch_of(ask(store, DocWriter().add_text("find", "users")), "firstBatch").id == 0);
  const std::string no_db = DocWriter().add_int32("ping", 1).take();
  REQUIRE(code_of(answer_to(store, no_db)) == 9);
}
