// bulkWrite: what the shards are sent, and what the client hears.
#include "tests/unit/exec/write_router.h"

namespace spillway::exec {
namespace {

using test::Router;
using test::Sent;
using test::split_at;
using test::text_of;

// Shards on which everything succeeds.
std::optional<std::string> all_is_well(const Sent& sent) {
  const DocView command = sent.command.view();
  const auto count = [&](const char* list) {
    return std::to_string(command[list].is_array() ? command[list].as_document().count() : 0);
  };
  if (sent.name() == "insert") return "{'n': " + count("documents") + ", 'ok': 1.0}";
  if (sent.name() == "update") return "{'n': " + count("updates") + ", 'nModified': 1, 'ok': 1.0}";
  return "{'n': " + count("deletes") + ", 'ok': 1.0}";
}

struct Fixture {
  Router router{split_at("{'a': 1}", {})};
  Fixture() { router.shards.answer = all_is_well; }

  BsonDoc run(const std::string& more, const std::string& ops,
              const char* collections = "[{'ns': 'db.c'}, {'ns': 'other.d'}]") {
    return test::doc(text(more, ops, collections));
  }
  std::string text(const std::string& more, const std::string& ops, const std::string& collections) {
    router.shards.sent.clear();
    return router.run("{'bulkWrite': 1, 'ops': " + ops + ", 'nsInfo': " + collections + more + ", '$db': 'admin'}");
  }
  std::vector<std::string> sent() const {
    std::vector<std::string> all;
    for (const Sent& each : router.shards.sent) all.push_back(text_of(each.command.view()));
    return all;
  }
  static std::string batch(const BsonDoc& reply) {
    return text_of(reply.view()["cursor"].as_document()["firstBatch"].as_document());
  }
};

std::string shown(const char* json) { return text_of(test::doc(json).view()); }

const char* const mixed =
    "[{'insert': 0, 'document': {'_id': 1}}, {'insert': 0, 'document': {'_id': 2}},"
    " {'update': 1, 'filter': {'x': 1}, 'updateMods': {'$set': {'y': 1}}, 'upsert': true, 'multi': true},"
    " {'delete': 0, 'filter': {'_id': 1}}, {'delete': 0, 'filter': {'z': 1}, 'multi': true},"
    " {'insert': 0, 'document': {'_id': 3}}]";

TEST_CASE("bulkWrite sends neighbours of one kind and collection together") {
  Fixture f;
  const BsonDoc reply = f.run(", 'errorsOnly': true, 'comment': 'k'", mixed);
  CHECK(f.sent() == std::vector<std::string>{
      shown("{'insert': 'c', 'ordered': true, 'comment': 'k', '$db': 'db', 'documents': [{'_id': 1}, {'_id': 2}]}"),
      shown("{'update': 'd', 'ordered': true, 'comment': 'k', '$db': 'other', 'updates': [{'q': {'x': 1}, 'u': "
            "{'$set': {'y': 1}}, 'upsert': true, 'multi': true}]}"),
      shown("{'delete': 'c', 'ordered': true, 'comment': 'k', '$db': 'db', 'deletes': [{'q': {'_id': 1}, 'limit': 1}, "
            "{'q': {'z': 1}, 'limit': 0}]}"),
      shown("{'insert': 'c', 'ordered': true, 'comment': 'k', '$db': 'db', 'documents': [{'_id': 3}]}")});
  CHECK(text_of(reply.view()) ==
        shown("{'cursor': {'firstBatch': [], 'id': {'$numberLong': '0'}, 'ns': 'admin.$cmd.bulkWrite'}, 'ok': 1.0, "
              "'nErrors': 0, 'nInserted': 3, 'nMatched': 1, 'nModified': 1, 'nUpserted': 0, 'nDeleted': 2}"));
}

TEST_CASE("unordered, bulkWrite sends all of one kind and collection together") {
  Fixture f;
  f.run(", 'errorsOnly': true, 'ordered': false", mixed);
  std::vector<std::string> names;
  for (const Sent& each : f.router.shards.sent) names.push_back(each.name());
  CHECK(names == std::vector<std::string>{"insert", "update", "delete"});
  CHECK(f.router.shards.sent.at(0).command.view()["documents"].as_document().count() == 3);
}

TEST_CASE("bulkWrite tells of each operation where the client wants to hear of it") {
  const bool ordered = GENERATE(true, false);
  Fixture f;
  f.router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "update") return all_is_well(sent);
    return "{'n': 1, 'nModified': 0, 'upserted': [{'index': 0, '_id': 7}], 'ok': 1.0}";
  };
  const BsonDoc reply = f.run(ordered ? "" : ", 'ordered': false", mixed);
  CHECK(Fixture::batch(reply) ==
        text_of(test::doc("{'b': [{'ok': 1.0, 'idx': 0, 'n': 1}, {'ok': 1.0, 'idx': 1, 'n': 1}, {'ok': 1.0, 'idx': 2, "
                          "'n': 1, 'nModified': 0, 'upserted': {'_id': 7}}, {'ok': 1.0, 'idx': 3, 'n': 1}, {'ok': 1.0, "
                          "'idx': 4, 'n': 1}, {'ok': 1.0, 'idx': 5, 'n': 1}]}")
                    .view()["b"].as_document()));
  CHECK(reply.view()["nUpserted"].to_int64() == 1);
  CHECK(reply.view()["nMatched"].to_int64() == 0);
}

TEST_CASE("an error ends an ordered bulkWrite, and not an unordered one") {
  const bool ordered = GENERATE(true, false);
  Fixture f;
  f.router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "insert") return all_is_well(sent);
    return "{'n': 1, 'writeErrors': [{'index': 1, 'code': 11000, 'errmsg': 'dup', 'keyValue': {'_id': 2}}], 'ok': 1.0}";
  };
  const BsonDoc reply = f.run(ordered ? ", 'errorsOnly': true" : ", 'errorsOnly': true, 'ordered': false", mixed);
  CHECK(Fixture::batch(reply) ==
        text_of(test::doc("{'b': [{'ok': 0.0, 'idx': 1, 'code': 11000, 'errmsg': 'dup', 'keyValue': {'_id': 2}, "
                          "'n': 0}]}")
                    .view()["b"].as_document()));
  CHECK(reply.view()["nErrors"].to_int64() == 1);
  CHECK(f.router.shards.sent.size() == (ordered ? 1 : 3));
}

TEST_CASE("a command that fails as a whole fails its operations, or bulkWrite if nothing was written") {
  Fixture f;
  f.router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "update") return all_is_well(sent);
    return "{'ok': 0.0, 'code': 14, 'errmsg': 'no'}";
  };
  BsonDoc reply = f.run(", 'errorsOnly': true", mixed);
  CHECK(reply.view()["nErrors"].to_int64() == 1);
  CHECK(reply.view()["nInserted"].to_int64() == 2);
  CHECK(f.router.shards.sent.size() == 2);
  reply = f.run(", 'errorsOnly': true, 'ordered': false", mixed);
  CHECK(reply.view()["nErrors"].to_int64() == 1);
  CHECK(reply.view()["nDeleted"].to_int64() == 2);
  reply = f.run("", "[{'update': 0, 'filter': {}, 'updateMods': {'a': 1}}]");
  CHECK(reply.view()["code"].to_int64() == 14);
}

TEST_CASE("bulkWrite gives its deletes no field that delete does not have") {
  Fixture f;
  f.run(", 'errorsOnly': true, 'bypassDocumentValidation': false",
        "[{'insert': 0, 'document': {'_id': 1, 'a': 1}}, {'delete': 0, 'filter': {'a': 1}}]");
  const auto sent = f.sent();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].find("bypassDocumentValidation") != std::string::npos);
  CHECK(sent[1].find("bypassDocumentValidation") == std::string::npos);
}

TEST_CASE("statements of bulkWrite keep their numbers") {
  Fixture f;
  const char* const session = ", 'lsid': {'id': {'$binary': 'AAAAAAAAQACAAAAAAAAAAA==', '$type': '04'}}, 'txnNumber': "
                              "{'$numberLong': '3'}, 'errorsOnly': true";
  f.run(session, mixed);
  std::vector<std::string> ids;
  for (const Sent& each : f.router.shards.sent) ids.push_back(text_of(each.command.view()["stmtIds"].as_document()));
  const auto of = [](const char* json) { return text_of(test::doc(json).view()["i"].as_document()); };
  CHECK(ids == std::vector<std::string>{of("{'i': [0, 1]}"), of("{'i': [2]}"), of("{'i': [3, 4]}"), of("{'i': [5]}")});
  // The host is lost in the middle: the driver sends everything again, and what was executed is known by its number.
  f.router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "update") return all_is_well(sent);
    return std::nullopt;
  };
  const BsonDoc reply = f.run(session, mixed);
  CHECK_FALSE(reply.view()["ok"].truthy());
  CHECK(text_of(reply.view()["errorLabels"].as_document()).find("RetryableWriteError") != std::string::npos);
}

TEST_CASE("bulkWrite in a transaction begins it once") {
  Fixture f;
  f.run(", 'lsid': {'id': {'$binary': 'AAAAAAAAQACAAAAAAAAAAA==', '$type': '04'}}, 'txnNumber': {'$numberLong': '3'}, "
        "'autocommit': false, 'startTransaction': true, 'readConcern': {'level': 'majority'}",
        "[{'insert': 0, 'document': {'_id': 1}}, {'insert': 1, 'document': {'_id': 1}}]");
  REQUIRE(f.router.shards.sent.size() == 2);
  const DocView first = f.router.shards.sent[0].command.view(), second = f.router.shards.sent[1].command.view();
  CHECK(first["startTransaction"].truthy());
  CHECK(first["readConcern"].exists());
  CHECK_FALSE(first["stmtIds"].exists());
  CHECK_FALSE(second["startTransaction"].exists());
  CHECK_FALSE(second["readConcern"].exists());
  CHECK(second["autocommit"].exists());
}

TEST_CASE("results of bulkWrite that fill more than a batch come by getMore") {
  Fixture f;
  const BsonDoc reply = f.run(", 'cursor': {'batchSize': 2}", mixed);
  const DocView cursor = reply.view()["cursor"].as_document();
  CHECK(cursor["firstBatch"].as_document().count() == 2);
  CHECK(reply.view()["nInserted"].to_int64() == 3);
  const auto id = cursor["id"].to_int64().value_or(0);
  REQUIRE(id != 0);
  const BsonDoc next = test::doc(f.router.run("{'getMore': {'$numberLong': '" + std::to_string(id) +
                                              "'}, 'collection': '$cmd.bulkWrite', '$db': 'admin'}"));
  CHECK(next.view()["cursor"].as_document()["nextBatch"].as_document().count() == 4);
}

TEST_CASE("what is wrong with a bulkWrite is said before anything is written") {
  struct Case {
    const char* ops;
    const char* collections;
    std::int64_t code;
  };
  const Case cases[] = {
      {"[]", "[{'ns': 'db.c'}]", 16},
      {"[{'insert': 0, 'document': {}}]", "[]", 16},
      {"[{'insert': 1, 'document': {}}]", "[{'ns': 'db.c'}]", 2},
      {"[{'insert': -1, 'document': {}}]", "[{'ns': 'db.c'}]", 2},
      {"[{'insert': 'x', 'document': {}}]", "[{'ns': 'db.c'}]", 14},
      {"[{'insert': 0}]", "[{'ns': 'db.c'}]", 40414},
      {"[{'insert': 0, 'document': 1}]", "[{'ns': 'db.c'}]", 14},
      {"[{'insert': 0, 'document': {}, 'filter': {}}]", "[{'ns': 'db.c'}]", 40415},
      {"[{'update': 0, 'filter': {}}]", "[{'ns': 'db.c'}]", 40414},
      {"[{'delete': 0}]", "[{'ns': 'db.c'}]", 40414},
      {"[{'document': {}, 'insert': 0}]", "[{'ns': 'db.c'}]", 9},
      {"[{'insert': 0, 'document': {}}]", "[{'ns': 'db'}]", 73},
      {"[{'insert': 0, 'document': {}}]", "[{'ns': 'local.c'}]", 20},
      {"[{'insert': 0, 'document': {}}]", "[{'n': 'db.c'}]", 40415},
      {"[{'insert': 0, 'document': {}}]", "[{}]", 40414},
      {"[{'insert': 0, 'document': {}}]", "[{'ns': 'db.c', 'bypassDocumentValidation': true}]", 40415},
      {"[{'insert': 0, 'document': {}}]", "[{'ns': 'db.c', 'ns': 'db.d'}]", 40413},
      {"[7]", "[{'ns': 'db.c'}]", 14},
      {"7", "[{'ns': 'db.c'}]", 14},
  };
  const auto code = [](std::int64_t number) { return "'code' : " + std::to_string(number) + ","; };
  Fixture f;
  for (const Case& each : cases) {
    INFO(each.ops << each.collections);
    CHECK(f.text("", each.ops, each.collections).find(code(each.code)) != std::string::npos);
    CHECK(f.router.shards.sent.empty());
  }
  for (const auto& [more, number] : {std::pair(", 'what': 1", 40415), std::pair(", 'ordered': 'x'", 14),
                                     std::pair(", 'cursor': 1", 14)}) {
    CHECK(f.text(more, mixed, "[{'ns': 'db.c'}, {'ns': 'other.d'}]").find(code(number)) != std::string::npos);
  }
}

std::string inserts(int operations) {
  std::string ops;
  for (int i = 0; i < operations; ++i) ops += (i == 0 ? "[" : ", ") + std::string("{'insert': 0, 'document': {}}");
  return ops + "]";
}

// All but this much of what cursors may have.
Reservation take_all_but(Fixture& f, std::uint64_t bytes) {
  MemoryBudget& cursors = f.router.shared().memory.cursors;
  cursors.set_limit(limits::mib);
  auto held = cursors.try_reserve(limits::mib - bytes);
  REQUIRE(held);
  return *std::move(held);
}

std::string labels_of(const BsonDoc& reply) {
  const ValueView labels = reply.view()["errorLabels"];
  return labels.is_array() ? text_of(labels.as_document()) : "";
}

TEST_CASE("bulkWrite writes nothing that it has no room to tell of") {
  Fixture f;
  const Reservation held = take_all_but(f, 16 * limits::kib);
  const BsonDoc reply = f.run("", inserts(1'000));
  CHECK(reply.view()["code"].to_int64() == 462);
  CHECK(labels_of(reply).find("NoWritesPerformed") != std::string::npos);
  CHECK(f.router.shards.sent.empty());
}

TEST_CASE("what bulkWrite has written is not offered for a retry, unless shards would know it again") {
  const bool numbered = GENERATE(false, true);
  Fixture f;
  const Reservation held = take_all_but(f, 16 * limits::kib);
  f.router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.command.view()["insert"].as_string() == "d") return all_is_well(sent);
    return "{'ok': 0.0, 'code': 13, 'errmsg': 'no'}";
  };
  const std::string ops = "[{'insert': 1, 'document': {}}, " + inserts(1'000).substr(1);
  const BsonDoc reply = f.run(std::string(", 'errorsOnly': true, 'ordered': false") +
                                  (numbered ? ", 'txnNumber': {'$numberLong': '1'}, 'lsid': {'id': {'$binary': "
                                              "{'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}"
                                            : ""),
                              ops);
  REQUIRE(f.router.shards.sent.size() == 2);
  CHECK(reply.view()["code"].to_int64() == (numbered ? 462 : 6));
  CHECK((labels_of(reply).find("RetryableError") != std::string::npos) == numbered);
}

}  // namespace
}  // namespace spillway::exec
