#include "proxy/exec/write/write_target.h"

#include "tests/unit/exec/write_support.h"

namespace spillway::exec {
namespace {

using test::doc;
using test::split_at;

std::string shown(const Result<WriteTarget>& target) {
  if (target.has_error()) return "error " + std::to_string(target.error().code);
  static constexpr const char* names[] = {"one", "all", "until_found", "choose", "all_kept", "moves"};
  std::string text = names[static_cast<std::size_t>(target->route)];
  for (const catalog::ShardIndex shard : target->shards) text += " " + std::to_string(shard);
  if (target->check_key) text += " checked";
  if (target->upsert_after) text += " then upsert";
  return text;
}

struct Case {
  const char* op;
  const char* target;
};

void check(const catalog::CollectionRouting& routing, WriteKind kind,
           std::initializer_list<Case> cases) {
  for (const Case& one : cases) {
    INFO(one.op);
    const BsonDoc op = doc(one.op);
    const auto statement = parse_statement(op, kind);
    REQUIRE(statement.has_value());
    CHECK(shown(target_statement(routing, *statement)) == one.target);
  }
}

TEST_CASE("a replacement upsert gets the _id that the key lacks", "[write]") {
  const auto routing = split_at("{'a': 1, '_id': 1}", {"{'a': 10, '_id': 0}"});
  check(routing, WriteKind::update,
        {{"{'q': {'x': 1}, 'u': {'a': 5, 'x': 1}, 'upsert': true}", "choose 0 1 checked then upsert"},
         {"{'q': {'x': 1}, 'u': {'a': 5, 'x': 1}}", "error 61"}});
}

TEST_CASE("deletions go where their filter points", "[write]") {
  const auto routing = split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}"});
  check(routing, WriteKind::remove,
        {{"{'q': {'a': 5}, 'limit': 1}", "one 0"},
         {"{'q': {'a': 5}, 'limit': 0}", "one 0"},
         {"{'q': {'a': {'$gt': 15}}, 'limit': 0}", "all 1 2"},
         {"{'q': {'a': {'$gt': 25}}, 'limit': 1}", "one 2"},
         {"{'q': {}, 'limit': 0}", "all 0 1 2"},
         {"{'q': {'_id': 7}, 'limit': 1}", "until_found 0 1 2"},
         {"{'q': {'_id': 7, 'a': {'$gt': 15}}, 'limit': 1}", "until_found 1 2"},
         {"{'q': {'_id': 'x'}, 'limit': 1, 'collation': {'locale': 'de'}}", "choose 0 1 2"},
         {"{'q': {'_id': 7}, 'limit': 1, 'collation': {'locale': 'de'}}", "until_found 0 1 2"},
         {"{'q': {'_id': {'$gt': 7}}, 'limit': 1}", "choose 0 1 2"},
         {"{'q': {'b': 1}, 'limit': 1}", "choose 0 1 2"}});
}

TEST_CASE("updates go where their filter points, and keep the shard key", "[write]") {
  // "checked": the document tells whether its key would change.
  const auto routing = split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}"});
  check(routing, WriteKind::update,
        {{"{'q': {'a': 5}, 'u': {'$set': {'b': 1}}}", "one 0"},
         {"{'q': {'b': 5}, 'u': {'$set': {'b': 1}}}", "choose 0 1 2"},
         {"{'q': {'b': 5}, 'u': {'$set': {'b': 1}}, 'multi': true}", "all 0 1 2"},
         {"{'q': {'_id': 5}, 'u': {'$set': {'b': 1}}}", "until_found 0 1 2"},
         // A collation may match another key than it names.
         {"{'q': {'a': 'X'}, 'u': {'$set': {'a': 'X', 'b': 1}}, 'collation': {'locale': 'en', 'strength': 2}}",
          "choose 0 1 2 checked"},
         {"{'q': {'a': 5}, 'u': {'$set': {'a': 5}}, 'collation': {'locale': 'en', 'strength': 2}}", "one 0"},
         // The key stays as it is …
         {"{'q': {'a': 5}, 'u': {'$set': {'a': 5}}}", "one 0"},
         {"{'q': {'a': 5}, 'u': {'$set': {'a': 5.0}}}", "one 0"},
         {"{'q': {'a': 5}, 'u': {'a': 5, 'b': 2}}", "one 0"},
         {"{'q': {'a': 5}, 'u': {'$setOnInsert': {'a': 6}}}", "one 0"},
         {"{'q': {'a': 5}, 'u': [{'$set': {'a': 5}}]}", "one 0"},
         {"{'q': {'a': null}, 'u': {'$unset': {'a': 1}}}", "one 0"},
         {"{'q': {'a': 5}, 'u': {'$set': {'a': 5}}, 'multi': true}", "one 0"},
         // … or the document tells.
         {"{'q': {'a': 5}, 'u': {'$set': {'a': 6}}}", "choose 0 checked"},
         {"{'q': {'a': 5}, 'u': {'$set': {'a.x': 6}}}", "choose 0 checked"},
         {"{'q': {'a': 5}, 'u': {'$inc': {'a': 1}}}", "choose 0 checked"},
         {"{'q': {'a': 5}, 'u': {'$unset': {'a': 1}}}", "choose 0 checked"},
         {"{'q': {'a': 5}, 'u': {'$rename': {'b': 'a'}}}", "choose 0 checked"},
         {"{'q': {'a': 5}, 'u': {'$rename': {'a': 'b'}}}", "choose 0 checked"},
         {"{'q': {'a': 5}, 'u': {'a': 6}}", "choose 0 checked"},
         {"{'q': {'a': 5}, 'u': {'b': 6}}", "choose 0 checked"},
         {"{'q': {'b': 5}, 'u': {'$set': {'a': 6}}}", "choose 0 1 2 checked"},
         {"{'q': {'_id': 5}, 'u': {'$set': {'a': 6, 'b': 1}}}", "choose 0 1 2 checked"},
         {"{'q': {'_id': 5}, 'u': {'$set': {'a': 6}}, 'multi': true}", "all_kept 0 1 2 checked"},
         {"{'q': {'_id': 5}, 'u': {'$set': {'a': 6}}, 'upsert': true}",
          "choose 0 1 2 checked then upsert"},
         {"{'q': {'a': 5}, 'u': {'$setOnInsert': {'a': 6}}, 'upsert': true}",
          "choose 0 checked then upsert"},
         // A replacement shows where its document must live.
         {"{'q': {'b': 5}, 'u': {'a': 15}}", "choose 1 checked"},
         {"{'q': {'a': {'$gt': 25}}, 'u': {'a': 15}}", "choose 2 checked"},
         // … and an upsert only when no shard has one that matches.
         {"{'q': {'b': 5}, 'u': {'a': 15}, 'upsert': true}", "choose 0 1 2 checked then upsert"},
         {"{'q': {'a': {'$gt': 25}}, 'u': {'a': 15}, 'upsert': true}",
          "choose 2 checked then upsert"},
         {"{'q': {'b': 5}, 'u': {'a': [1, 2]}}", "error 61"},
         // Every server refuses these: one shard's words will do.
         {"{'q': {}, 'u': {'b': 1}, 'multi': true}", "one 0"},
         {"{'q': {}, 'u': {'$set': {'b': 1}, 'c': 1}}", "one 0"},
         // Pipelines
         {"{'q': {'b': 1}, 'u': [{'$set': {'c': 1}}, {'$unset': 'd'}]}", "choose 0 1 2"},
         {"{'q': {'b': 1}, 'u': [{'$set': {'a': 1}}]}", "choose 0 1 2 checked"},
         {"{'q': {'b': 1}, 'u': [{'$set': {'a': {'$literal': '$x'}}}]}", "choose 0 1 2 checked"},
         {"{'q': {'b': 1}, 'u': [{'$unset': ['x', 'a']}]}", "choose 0 1 2 checked"},
         {"{'q': {'b': 1}, 'u': [{'$set': {'a': '$b'}}]}", "error 115"},
         {"{'q': {'b': 1}, 'u': [{'$set': {'a': {'$add': [1, 2]}}}]}", "error 115"},
         {"{'q': {'b': 1}, 'u': [{'$replaceWith': '$x'}]}", "error 115"},
         // Upserts
         {"{'q': {'a': 5}, 'u': {'$set': {'b': 1}}, 'upsert': true}", "one 0"},
         {"{'q': {'b': 5}, 'u': {'$set': {'b': 1}}, 'upsert': true}", "choose 0 1 2 then upsert"},
         {"{'q': {'b': 5}, 'u': {'$set': {'b': 1}}, 'upsert': true, 'multi': true}",
          "all 0 1 2 then upsert"},
         {"{'q': {'_id': 5}, 'u': {'$set': {'b': 1}}, 'upsert': true}",
          "until_found 0 1 2 then upsert"},
         {"{'q': {'a': {'$gt': 30}}, 'u': {'$set': {'b': 1}}, 'upsert': true}",
          "one 2 then upsert"}});
}

TEST_CASE("in a cluster the shard sees to the key, and an update with its old value may move a document", "[write]") {
  auto routing = split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}"});
  routing.cluster.emplace();
  check(routing, WriteKind::update,
        {{"{'q': {'a': 5}, 'u': {'$set': {'b': 1}}}", "one 0"},
         {"{'q': {'a': 5}, 'u': {'$set': {'a': 6}}}", "moves 0"},
         {"{'q': {'a': 5, 'b': 1}, 'u': {'$inc': {'a': 1}}}", "moves 0"},
         {"{'q': {'a': 15}, 'u': {'a': 6}}", "moves 1"},
         {"{'q': {'a': 5}, 'u': [{'$set': {'a': '$b'}}]}", "moves 0"},
         {"{'q': {'a': 5}, 'u': {'$setOnInsert': {'a': 6}}, 'upsert': true}", "moves 0"},
         {"{'q': {'a': 5}, 'u': {'$set': {'a': 6}}, 'multi': true}", "one 0"},
         {"{'q': {'b': 5}, 'u': {'$set': {'a': 6}}}", "choose 0 1 2"},
         {"{'q': {'b': 5}, 'u': {'$set': {'a': 6}}, 'multi': true}", "all 0 1 2"},
         {"{'q': {'_id': 5}, 'u': {'$set': {'a': 6}}}", "until_found 0 1 2"},
         {"{'q': {'b': 5}, 'u': [{'$set': {'a': '$b'}}]}", "choose 0 1 2"},
         {"{'q': {'b': 5}, 'u': [{'$set': {'a': '$b'}}], 'upsert': true}", "error 115"},
         {"{'q': {'b': 5}, 'u': {'a': 15}}", "one 1"},
         {"{'q': {'b': 5}, 'u': {'a': [1, 2]}}", "error 61"},
         {"{'q': {'a': 'x'}, 'u': {'a': 15}, 'collation': {'locale': 'en', 'strength': 2}}", "choose 0 1 2"},
         {"{'q': {'b': 5}, 'u': {'a': 15}, 'upsert': true}", "choose 0 1 2 then upsert"}});
  const BsonDoc op = doc("{'q': {'b': 5}, 'u': {'a': 15}}");
  auto modifies = parse_statement(op, WriteKind::update);
  modifies->returns_document = true;
  CHECK(shown(target_statement(routing, *modifies)) == "choose 0 1 2");
}

TEST_CASE("a statement may have been executed where it goes, and where its upsert would", "[write]") {
  const auto by_a = split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}"});
  const auto by_id = split_at("{'_id': 1}", {"{'_id': 10}", "{'_id': 20}"});
  struct Possible {
    const catalog::CollectionRouting& routing;
    const char* op;
    catalog::ShardSet shards;
  };
  const Possible cases[] = {
      {by_a, "{'q': {'b': 5}, 'u': {'a': 15}}", {1}},
      {by_a, "{'q': {'b': 5}, 'u': {'a': 15}, 'upsert': true}", {0, 1, 2}},
      {by_a, "{'q': {'a': {'$gt': 25}}, 'u': {'a': 15}, 'upsert': true}", {1, 2}},
      {by_a, "{'q': {'a': {'$gt': 25}}, 'u': {'$set': {'b': 1}}, 'upsert': true}", {2}},  // 61
      {by_a, "{'q': {'a': {'$gt': 15}}, 'u': {'$set': {'b': 1}}}", {1, 2}},
      // The next attempt's new _id is another.
      {by_id, "{'q': {'_id': {'$lt': 5}}, 'u': {'$set': {'b': 1}}, 'upsert': true}", {0, 1, 2}},
      {by_id, "{'q': {'_id': {'$lt': 5}}, 'u': {'b': 1}, 'upsert': true}", {0, 1, 2}},
  };
  for (const Possible& one : cases) {
    INFO(one.op);
    const BsonDoc op = doc(one.op);
    const auto statement = parse_statement(op, WriteKind::update);
    REQUIRE(statement.has_value());
    const auto target = target_statement(one.routing, *statement);
    REQUIRE(target.has_value());
    CHECK(possible_shards(one.routing, *statement, *target) == one.shards);
  }
}

TEST_CASE("a key of _id alone never refuses an update", "[write]") {
  const auto routing = split_at("{'_id': 1}", {"{'_id': 10}"});
  check(routing, WriteKind::update,
        {{"{'q': {'_id': 5}, 'u': {'b': 1}}", "one 0"},
         {"{'q': {'_id': 5}, 'u': {'$set': {'_id': 6}}}", "one 0"},
         {"{'q': {'x': 5}, 'u': {'b': 1}}", "choose 0 1"},
         {"{'q': {'x': 5}, 'u': {'b': 1}, 'upsert': true}", "choose 0 1 then upsert"},
         {"{'q': {'x': 5}, 'u': [{'$replaceWith': '$y'}]}", "choose 0 1"}});
}

TEST_CASE("a dotted shard key is kept by updates above it", "[write]") {
  const auto routing = split_at("{'a.b': 1, 'c': 1}", {"{'a.b': 10, 'c': 0}"});
  check(routing, WriteKind::update,
        {{"{'q': {'a.b': 5, 'c': 1}, 'u': {'$set': {'a': {'b': 5, 'd': 1}}}}", "one 0"},
         {"{'q': {'a.b': 5, 'c': 1}, 'u': {'$set': {'a': {'d': 1}}}}", "choose 0 checked"},
         {"{'q': {'a.b': 5, 'c': 1}, 'u': {'$set': {'a': 7}}}", "choose 0 checked"},
         {"{'q': {'a.b': 5, 'c': 1}, 'u': {'$set': {'a.d': 7}}}", "one 0"},
         {"{'q': {'a.b': 5, 'c': 1}, 'u': {'a': {'b': 5}, 'c': 1.0}}", "one 0"},
         {"{'q': {'a.b': 5, 'c': 1}, 'u': {'a': {'b': 5}}}", "choose 0 checked"}});
}

TEST_CASE("a document tells whether an update changes its key", "[write]") {
  const auto by_a = split_at("{'a': 1}", {"{'a': 10}"}).key;
  const auto hashed = catalog::ShardKeyPattern::parse(doc("{'a': 'hashed'}")).value();
  const auto dotted = split_at("{'a.b': 1, 'c': 1}", {"{'a.b': 10, 'c': 0}"}).key;
  struct Kept {
    const catalog::ShardKeyPattern& key;
    const char* document;
    const char* update;
    bool kept;
  };
  const Kept cases[] = {
      {by_a, "{'_id': 1, 'a': 5}", "{'$set': {'a': 5, 'x': 1}}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'$set': {'a': 5.0}}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'$set': {'a': 6}}", false},
      {by_a, "{'_id': 1, 'a': 5}", "{'$set': {'a': [5]}}", false},
      {by_a, "{'_id': 1}", "{'$set': {'a': null}}", true},  // missing has the key of null
      {by_a, "{'_id': 1, 'a': null}", "{'$unset': {'a': ''}}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'$unset': {'a': ''}}", false},
      {by_a, "{'_id': 1, 'a': 5}", "{'$inc': {'a': 0}}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'$inc': {'a': 0.0}}", true},
      {by_a, "{'_id': 1, 'a': {'$numberLong': '5'}}", "{'$inc': {'a': 0.0}}", false},  // it may lose digits
      {by_a, "{'_id': 1, 'a': 5}", "{'$inc': {'a': 1}}", false},
      {by_a, "{'_id': 1}", "{'$inc': {'a': 0}}", false},
      {by_a, "{'_id': 1, 'a': 5}", "{'$mul': {'a': 1}}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'$min': {'a': 7}}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'$min': {'a': 3}}", false},
      {by_a, "{'_id': 1, 'a': 5}", "{'$max': {'a': 3}}", true},
      {by_a, "{'_id': 1}", "{'$max': {'a': 3}}", false},
      {by_a, "{'_id': 1, 'a': 5}", "{'$setOnInsert': {'a': 7}}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'$currentDate': {'a': true}}", false},
      {by_a, "{'_id': 1, 'a': 5, 'b': 5}", "{'$rename': {'b': 'a'}}", true},
      {by_a, "{'_id': 1, 'a': 5, 'b': 6}", "{'$rename': {'b': 'a'}}", false},
      {by_a, "{'_id': 1, 'a': 5}", "{'$rename': {'b': 'a'}}", true},  // there is nothing to rename
      {by_a, "{'_id': 1, 'a': 5}", "{'$rename': {'a': 'b'}}", false},
      {by_a, "{'_id': 1}", "{'$rename': {'a': 'b'}}", true},
      {by_a, "{'_id': 1, 'a': {'x': 1}}", "{'$set': {'a.x': 1}}", true},
      {by_a, "{'_id': 1, 'a': {'x': 1}}", "{'$set': {'a.y': null}}", false},
      {by_a, "{'_id': 1, 'a': 5}", "{'a': 5.0, 'x': 1}", true},
      {by_a, "{'_id': 1, 'a': 5}", "{'x': 1}", false},
      {by_a, "{'_id': 1}", "{'x': 1}", true},
      {by_a, "{'_id': 1, 'a': 5}", "[{'$set': {'a': 5}}, {'$unset': 'x'}]", true},
      {by_a, "{'_id': 1, 'a': 5}", "[{'$unset': 'a'}]", false},
      {hashed, "{'_id': 1, 'a': 5}", "{'$set': {'a': 5.0}}", true},  // numbers hash alike
      {hashed, "{'_id': 1, 'a': 5}", "{'$set': {'a': '5'}}", false},
      {hashed, "{'_id': 1}", "{'$set': {'a': null}}", true},
      {dotted, "{'_id': 1, 'a': {'b': 5}, 'c': 1}", "{'$set': {'a': {'b': 5, 'd': 1}, 'c': 1}}", true},
      {dotted, "{'_id': 1, 'a': {'b': 5}, 'c': 1}", "{'$set': {'a': {'d': 1}}}", false},
      {dotted, "{'_id': 1, 'a': {'b': 5}, 'c': 1}", "{'$set': {'a': 7}}", false},
      {dotted, "{'_id': 1, 'c': 1}", "{'$set': {'a': 7}}", true},  // neither has an a.b
      {dotted, "{'_id': 1, 'c': 1}", "{'$set': {'a': [{'b': 1}]}}", false},
      {dotted, "{'_id': 1, 'a': {'b': 5}, 'c': 1}", "{'$set': {'a.b': 5, 'c': 2}}", false},
      {dotted, "{'_id': 1, 'a': {'b': 5}, 'c': 1}", "{'$set': {'a.d': 7}}", true},
  };
  for (const Kept& one : cases) {
    INFO(one.document << " " << one.update);
    const bool pipeline = one.update[0] == '[';
    const BsonDoc op = doc(std::string("{'q': {'_id': 1}, 'u': ") + one.update + "}");
    const auto statement = parse_statement(op, WriteKind::update);
    REQUIRE(statement.has_value());
    CHECK((statement->style == UpdateStyle::pipeline) == pipeline);
    const BsonDoc document = doc(one.document);
    const auto checked = check_key_kept(one.key, *statement, document);
    CHECK(checked.has_value() == one.kept);
    if (!checked.has_error()) continue;
    const bool omits_key = statement->style == UpdateStyle::replacement && !doc(one.update).view()["a"].exists();
    CHECK(checked.error().is(omits_key ? ErrorCode::shard_key_not_found : ErrorCode::immutable_field));
  }
}

TEST_CASE("new documents go to the owner of their key", "[write]") {
  const auto routing = split_at("{'a': 1}", {"{'a': 10}"});
  CHECK(shown(target_insert(routing, doc("{'_id': 1, 'a': 3}"), nullptr)) == "one 0");
  CHECK(shown(target_insert(routing, doc("{'_id': 1, 'a': 30}"), nullptr)) == "one 1");
  CHECK(shown(target_insert(routing, doc("{'_id': 1}"), nullptr)) == "one 0");
  CHECK(shown(target_insert(routing, doc("{'_id': 1, 'a': [1]}"), nullptr)) == "error 61");
  const auto by_id = split_at("{'_id': 1}", {"{'_id': 10}"});
  const ObjectId id{};
  CHECK(shown(target_insert(by_id, doc("{'x': 1}"), &id)) ==
        "one 1");  // an ObjectId sorts after numbers
  CHECK(shown(target_insert(by_id, doc("{'_id': [1]}"), nullptr)) ==
        "one 0");  // the shard refuses it
}

TEST_CASE("an upsert that matches nothing is planned", "[write]") {
  const ObjectId id{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto by_a = split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}"});
  const auto by_id = split_at("{'_id': 1}", {"{'_id': 10}"});
  const std::string oid = "{'$oid':'0102030405060708090a0b0c'}";
  struct Plan {
    const catalog::CollectionRouting& routing;
    const char* op;
    std::string plan;
  };
  const Plan plans[] = {
      {by_a, "{'q': {'b': 1}, 'u': {'$set': {'c': 1}}}", "0"},
      {by_a, "{'q': {'b': 1}, 'u': {'$setOnInsert': {'a': 25}}}", "2"},
      {by_a, "{'q': {'b': 1}, 'u': {'$set': {'a': 15}}}", "1"},
      {by_a, "{'q': {'b': 1}, 'u': {'$inc': {'a': 15}}}", "error 61"},
      {by_a, "{'q': {'a': {'$gt': 15}}, 'u': {'$set': {'b': 1}}}", "error 61"},
      {by_a, "{'q': {'$or': [{'a': 1}, {'a': 2}]}, 'u': {'$set': {'b': 1}}}", "error 61"},
      {by_a, "{'q': {'b': 1}, 'u': [{'$set': {'c': 1}}]}", "error 61"},
      {by_a, "{'q': {'b': 1}, 'u': {'a': 15}}", "1"},
      {by_id, "{'q': {'x': 1}, 'u': {'$set': {'_id': 3}}}", "0"},
      {by_id, "{'q': {'x': 1}, 'u': {'$set': {'y': 1}}}",
       "1 {'$set':{'y':1},'$setOnInsert':{'_id':" + oid + "}}"},
      {by_id, "{'q': {'x': 1}, 'u': {'$setOnInsert': {'y': 1}}}",
       "1 {'$setOnInsert':{'_id':" + oid + ",'y':1}}"},
      {by_id, "{'q': {'_id': {'$in': [4]}}, 'u': {'$set': {'y': 1}}}",
       "0 {'$set':{'y':1},'$setOnInsert':{'_id':4}}"},
      {by_id, "{'q': {'x': 1}, 'u': {'y': 1}}", "1 {'_id':" + oid + ",'y':1}"},
      {by_id, "{'q': {'x': 1}, 'u': {'_id': 3, 'y': 1}}", "0"},
  };
  for (const Plan& one : plans) {
    INFO(one.op);
    const BsonDoc op = doc(one.op);
    const auto statement = parse_statement(op, WriteKind::update);
    REQUIRE(statement.has_value());
    const auto plan = plan_upsert(one.routing, *statement, id);
    std::string text;
    if (plan.has_error()) {
      text = "error " + std::to_string(plan.error().code);
    } else {
      text = std::to_string(plan->shard);
      if (plan->update) {
        std::string update = test::text_of(*plan->update);
        std::erase(update, ' ');
        text += " " + update;
      }
    }
    CHECK(text == one.plan);
  }
}

TEST_CASE("object ids are distinct", "[write]") {
  const ObjectId first = make_object_id();
  const ObjectId second = make_object_id();
  CHECK(first != second);
  CHECK(std::equal(first.begin() + 4, first.begin() + 9, second.begin() + 4));
}

}  // namespace
}  // namespace spillway::exec
