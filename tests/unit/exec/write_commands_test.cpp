// The write commands over scripted shards: what is sent where, and what the client gets.
#include "proxy/exec/write/write_child.h"
#include "tests/unit/exec/write_router.h"

namespace spillway::exec {
namespace {

using test::Router;
using test::Sent;
using test::split_at;

using Lines = std::vector<std::string>;

// JSON as the tests compare it: without spaces.
std::string compact(std::string text) {
  std::erase(text, ' ');
  return text;
}
Lines compact(Lines lines) {
  for (std::string& line : lines) line = compact(line);
  return lines;
}

std::string with_txn(std::string_view command, int number) {
  return std::string(command) + ", " + test::session_fields + ", 'txnNumber': {'$numberLong': '" +
         std::to_string(number) + "'}}";
}

std::size_t operations(const Sent& sent) {
  for (const char* list : {"documents", "updates", "deletes"}) {
    const ValueView value = sent.command.view()[list];
    if (value.is_array()) return value.as_document().count();
  }
  return 0;
}

std::optional<std::string> count_all(const Sent& sent) {
  const std::string n = std::to_string(operations(sent));
  if (sent.name() == "update") return "{'n': " + n + ", 'nModified': " + n + ", 'ok': 1.0}";
  return "{'n': " + n + ", 'ok': 1.0}";
}

std::optional<std::string> match_none(const Sent& sent) {
  if (sent.name() == "find")
    return "{'cursor': {'firstBatch': [], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  if (sent.name() == "findAndModify") {
    return "{'lastErrorObject': {'n': 0, 'updatedExisting': false}, 'value': null, 'ok': 1.0}";
  }
  return "{'n': 0, 'nModified': 0, 'ok': 1.0}";
}

TEST_CASE("an insert is split by shard, with its statement ids", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  const std::string reply =
      router.run(with_txn("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 20}, "
                          "{'_id': 3, 'a': 2}], 'ordered': false, "
                          "'writeConcern': {'w': 0}",
                          4));
  CHECK(compact(reply) == "{'ok':1.0}");
  CHECK(compact(router.sent()) == Lines{"s0{'insert':'c','ordered':false,'writeConcern':{'w':1},'txnNumber':4,"
                                        "'stmtIds':[0,2],'documents':[{'_id':1,'a':1},{'_id':3,'a':2}]}",
                                        "s1{'insert':'c','ordered':false,'writeConcern':{'w':1},'txnNumber':4,"
                                        "'stmtIds':[1],'documents':[{'_id':2,'a':20}]}"});
}

TEST_CASE("an ordered insert goes on in order and stops at an error", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.shard == 0) return count_all(sent);
    return "{'n': 0, 'writeErrors': [{'index': 0, 'code': 11000, 'errmsg': 'dup'}], 'ok': 1.0}";
  };
  const std::string reply = router.run(
      "{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 2}, {'_id': 3, 'a': 20}, "
      "{'_id': 4, 'a': "
      "3}]}");
  CHECK(compact(reply) ==
        "{'n':2,'writeErrors':[{'index':2,'code':11000,'errmsg':'dup'}],'ok':1.0}");
  CHECK(router.shards.sent.size() == 2);
  CHECK(operations(router.shards.sent[0]) == 2);
}

TEST_CASE("a write for one shard goes there untouched", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) {
    return "{'n': 1, 'opaque': 'x', '$clusterTime': 1, 'ok': 1.0}";
  };
  CHECK(compact(router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 11}]}")) ==
        "{'n':1,'opaque':'x','ok':1.0}");
  CHECK(compact(router.sent()) == Lines{"s1{'insert':'c','documents':[{'_id':1,'a':11}]}"});
}

TEST_CASE("documents without _id get one, first", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  router.run("{'insert': 'c', 'documents': [{'a': 11, 'b': 'x'}]}");
  REQUIRE(router.shards.sent.size() == 1);
  const DocView document =
      router.shards.sent[0].command.view()["documents"].as_document().first().as_document();
  CHECK(document.validate().has_value());
  CHECK(document.first().name == "_id");
  CHECK(document.first().type == BsonType::object_id);
  CHECK(document["b"].as_string() == "x");
}

TEST_CASE("what a child's operations may take leaves room for its body", "[write]") {
  for (const bool sequence : {false, true}) {
    const std::string list = ", 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 20}]";
    const BsonDoc body = test::doc("{'insert': 'c', 'comment': '" + std::string(3000, 'x') + "'" +
                                   (sequence ? "" : list) + ", '$db': 'db'}");
    wire::OpMsg message;
    message.body = body.view();
    const auto request = parse_request(message, {}, Clock::now());
    REQUIRE(request.has_value());
    WriteCommand command;
    command.list_name = "documents";
    command.contiguous = sequence;
    const std::size_t taken =
        limits::message_bytes_max - ChildMessage::operations_bytes_max(*request, command);
    CHECK(taken > 3000 + ChildMessage::envelope_bytes_max);
    CHECK(taken < 3000 + ChildMessage::envelope_bytes_max + 500);
  }
}

TEST_CASE("an insert that its new _ids make too long for one message takes several", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  // Three documents that fill a message but for a few bytes.
  BsonWriter document;
  document.append("a", 1).append("t", std::string((limits::message_bytes_max - 150) / 3, 'x'));
  const BsonDoc each = std::move(document).finish();
  const std::string reply =
      router.run("{'insert': 'c'}", "documents", {each.view(), each.view(), each.view()});
  CHECK(compact(reply) == "{'n':3,'ok':1.0}");
  CHECK(router.shards.sent.size() == 2);
}

TEST_CASE("the largest batch passes where there is little memory", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  router.shared().memory.process.set_limit(20 * limits::mib);
  constexpr int count = limits::write_batch_size_max;
  std::vector<BsonDoc> owned;
  SECTION("of insertions") {
    for (int i = 0; i < count; ++i) {
      BsonWriter out;
      out.append("_id", i).append("a", i % 20);
      owned.push_back(std::move(out).finish());
    }
    const std::vector<DocView> documents(owned.begin(), owned.end());
    CHECK(compact(router.run("{'insert': 'c', 'ordered': false}", "documents", documents)) ==
          "{'n':100000,'ok':1.0}");
  }
  SECTION("of updates") {
    for (int i = 0; i < count; ++i) {
      BsonWriter out;
      out.begin_document("q").append("a", i % 20).end();
      out.begin_document("u").begin_document("$set").append("b", i).end().end();
      owned.push_back(std::move(out).finish());
    }
    const std::vector<DocView> updates(owned.begin(), owned.end());
    CHECK(compact(router.run("{'update': 'c', 'ordered': false}", "updates", updates)) ==
          "{'n':100000,'nModified':100000,'ok':1.0}");
  }
  SECTION("of updates that are refused") {
    for (int i = 0; i < count; ++i) {
      BsonWriter out;
      out.begin_document("q").append("a", 1).end();
      out.begin_array("u").begin_document_item().begin_document("$set");
      out.append(i == 0 ? "b" : "a", "$x").end().end().end();
      owned.push_back(std::move(out).finish());
    }
    const std::vector<DocView> updates(owned.begin(), owned.end());
    const std::string reply =
        compact(router.run("{'update': 'c', 'ordered': false}", "updates", updates));
    CHECK(reply.find("{'n':1,'nModified':1,'writeErrors':[{'index':1,'code':115,'errmsg':'the") == 0);
  }
}

TEST_CASE("transaction numbers are refused where a shard keeps none", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}), false);
  router.shards.answer = count_all;
  for (const char* command :
       {"{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 20}]",
        "{'insert': 'unsharded', 'documents': [{'_id': 1}]",
        "{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': "
        "{'$inc': {'b': 1}}}]",
        "{'findAndModify': 'c', 'query': {'b': 1}, 'update': {'$inc': {'b': 1}}"}) {
    INFO(command);
    const std::string reply = router.run(with_txn(command, 1));
    CHECK(reply.find("Transaction numbers are only allowed on a replica set member or mongos") !=
          std::string::npos);
    CHECK(compact(reply).find("'code':20,") != std::string::npos);
  }
  CHECK(router.shards.sent.empty());
}

TEST_CASE("a lost shard is reported, and retried by drivers if it may be", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) {
    return sent.shard == 1 ? std::nullopt : count_all(sent);
  };
  const char* command =
      "{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 20}], 'ordered': false";
  CHECK(compact(router.run(std::string(command) + "}")) ==
        "{'n':1,'writeErrors':[{'index':1,'code':6,'errmsg':'Writeresultsunavailablefroms1::"
        "causedby::"
        "connectionreset'}],'ok':1.0}");
  const std::string labelled = compact(router.run(with_txn(command, 1)));
  CHECK(labelled.find("'ok':0.0") != std::string::npos);
  CHECK(labelled.find("'errorLabels':['RetryableWriteError']") != std::string::npos);
}

TEST_CASE("an ordered batch has one error, and null is no order", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const bool refused = GENERATE(false, true);
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.shard == 0) return count_all(sent);
    if (refused) return "{'ok': 0.0, 'errmsg': 'no', 'code': 8000, 'codeName': 'AtlasError'}";
    return std::nullopt;
  };
  const std::string ordered = GENERATE("", ", 'ordered': true", ", 'ordered': null");
  const std::string reply = compact(router.run("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 20}, "
                                               "{'_id': 3, 'a': 21}, {'_id': 4, 'a': 2}]" + ordered + "}"));
  CHECK_THAT(reply, Catch::StartsWith("{'n':1,'writeErrors':[{'index':1,"));
  CHECK(reply.find("'index':2") == std::string::npos);
  CHECK(router.shards.sent.size() == 2);
}

TEST_CASE("what every shard refuses is refused as one server does", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) {
    return "{'ok': 0.0, 'errmsg': 'Unknown modifier: $foo', 'code': 9, 'codeName': "
           "'FailedToParse'}";
  };
  CHECK(compact(router.run(
            "{'update': 'c', 'updates': [{'q': {}, 'u': {'$foo': {'b': 1}}, 'multi': true}]}")) ==
        "{'ok':0.0,'errmsg':'Unknownmodifier:$foo','code':9,'codeName':'FailedToParse'}");
}

TEST_CASE("multi updates go to every shard and are counted once each", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}"}));
  router.shards.answer = [](const Sent&) { return "{'n': 2, 'nModified': 1, 'ok': 1.0}"; };
  CHECK(
      compact(router.run(
          "{'update': 'c', 'updates': [{'q': {'a': {'$gt': 12}}, 'u': {'$set': {'b': 1}}, 'multi': "
          "true}]}")) == "{'n':4,'nModified':2,'ok':1.0}");
  CHECK(router.shards.sent.size() == 2);
}

TEST_CASE("an exact _id on another key stops at the shard that has it", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}", "{'a': 20}"}));
  router.shards.answer = [](const Sent& sent) {
    return sent.shard == 1 ? count_all(sent) : match_none(sent);
  };
  CHECK(compact(router.run("{'delete': 'c', 'deletes': [{'q': {'_id': 7}, 'limit': 1}]}")) ==
        "{'n':1,'ok':1.0}");
  CHECK(router.shards.sent.size() == 2);
}

TEST_CASE("one document of many shards is chosen by the sort and written by its _id", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "find") {
      return sent.shard == 0 ? "{'cursor': {'firstBatch': [{'_id': 1, 'x': 9}], 'id': 0, 'ns': "
                               "'db.c'}, 'ok': 1.0}"
                             : "{'cursor': {'firstBatch': [{'_id': 2, 'x': 8}], 'id': 0, 'ns': "
                               "'db.c'}, 'ok': 1.0}";
    }
    return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 2}, 'ok': 1.0}";
  };
  const std::string reply = router.run(
      "{'findAndModify': 'c', 'query': {'b': 1}, 'sort': {'x': 1}, 'update': {'$set': {'b': 2}}, "
      "'new': true}");
  CHECK(compact(reply) ==
        "{'lastErrorObject':{'n':1,'updatedExisting':true},'value':{'_id':2},'ok':1.0}");
  CHECK(compact(router.sent()) == Lines{"s0{'find':'c','filter':{'b':1},'sort':{'x':1},'projection'"
                                        ":{'_id':1,'x':1},'limit':1,'singleBatch':"
                                        "true}",
                                        "s1{'find':'c','filter':{'b':1},'sort':{'x':1},'projection'"
                                        ":{'_id':1,'x':1},'limit':1,'singleBatch':"
                                        "true}",
                                        "s1{'findAndModify':'c','query':{'$and':[{'b':1},{'_id':2,"
                                        "'x':{'$eq':8}}]},'sort':{'x':1},'update':{'$set':{'b':2}},'new':true}"});
}

TEST_CASE("under a collation a document is chosen by what the shards say they compared", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") {
      return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': null, 'ok': 1.0}";
    }
    // By bytes 'B' is less than 'a'.
    const std::string found = sent.shard == 0 ? "{'_id': 1, 'x': 'B', '$sortKey': ['b1']}"
                                              : "{'_id': 2, 'x': 'a', '$sortKey': ['a1']}";
    return "{'cursor': {'firstBatch': [" + found + "], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string command =
      "{'findAndModify': 'c', 'query': {'b': 1}, 'sort': {'x': 1}, 'remove': true, 'collation': {'locale': 'en'}}";
  const auto write = [&] { return compact(router.run(command)); };
  // These shards, which are no mongods, do not say it.
  CHECK(write().find("'code':115") != std::string::npos);
  CHECK(router.sent().empty());
  router.shards.offer_sort_key();
  CHECK(write() == "{'lastErrorObject':{'n':1,'updatedExisting':true},'value':null,'ok':1.0}");
  const Lines sent = compact(router.sent());
  REQUIRE(sent.size() == 3);
  CHECK(sent[0].find("'projection':{'_id':1,'x':1,'$sortKey':{'$meta':'sortKey'}}") != std::string::npos);
  CHECK(sent[2].starts_with("s1{'findAndModify':'c','query':{'$and':[{'b':1},{'_id':2,'x':{'$eq':'a'}}]}"));
}

TEST_CASE("the nearest document of all shards is chosen, or the best by score", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.offer_sort_key();
  const auto [query, far, near] = GENERATE(
      std::array<std::string, 3>{"'query': {'l': {'$near': [0, 0]}}", "5000.0", "10.0"},
      std::array<std::string, 3>{"'query': {'$text': {'$search': 'x'}}, 'sort': {'s': {'$meta': 'textScore'}}", "[1.0]",
                                 "[1.5]"});
  router.shards.answer = [far = far, near = near](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") return "{'lastErrorObject': {'n': 1}, 'value': null, 'ok': 1.0}";
    return "{'cursor': {'firstBatch': [{'_id': " + std::to_string(sent.shard) + ", '$sortKey': " +
           (sent.shard == 0 ? far : near) + "}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  router.run("{'findAndModify': 'c', 'remove': true, " + query + "}");
  const Lines sent = compact(router.sent());
  REQUIRE(sent.size() == 3);
  CHECK(sent[2].starts_with("s1{'findAndModify'"));
}

TEST_CASE("a document that has got another place in the sort since it was chosen is not written", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const std::string first = GENERATE(as<std::string>(), "{'_id': 1, 'x': 3}", "{'_id': 1, 'x': null}");
  int chosen = 0;
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    const auto found = [](const std::string& documents) {
      return "{'cursor': {'firstBatch': [" + documents + "], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    };
    if (sent.name() == "find") return found(sent.shard == 1 ? "{'_id': 2, 'x': 5}" : chosen++ == 0 ? first : "");
    const bool same = sent.shard == 1;  // the other one was moved to the end of the queue
    return same ? "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 2}, 'ok': 1.0}"
                : "{'lastErrorObject': {'n': 0, 'updatedExisting': false}, 'value': null, 'ok': 1.0}";
  };
  const std::string reply =
      router.run("{'findAndModify': 'c', 'query': {'b': 1}, 'sort': {'x': 1, '_id': 1}, 'remove': true}");
  CHECK(compact(reply) == "{'lastErrorObject':{'n':1,'updatedExisting':true},'value':{'_id':2},'ok':1.0}");
  Lines written;
  for (const std::string& line : compact(router.sent())) {
    if (line.find("'find':") == std::string::npos) written.push_back(line.substr(0, line.find(",'sort'")));
  }
  const std::string value = first.substr(first.find("'x': ") + 5, first.find('}') - first.find("'x': ") - 5);
  CHECK(written == Lines{"s0{'findAndModify':'c','query':{'$and':[{'b':1},{'_id':1,'x':{'$eq':" + value + "}}]}",
                         "s1{'findAndModify':'c','query':{'$and':[{'b':1},{'_id':2,'x':{'$eq':5}}]}"});
}

TEST_CASE("what a chosen document is sorted by within arrays is not looked at again", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const std::string held = GENERATE(as<std::string>(), "{'_id': 1, 'x': [{'y': 3}]}", "{'_id': 1, 'x': {'y': [3]}}",
                                    "{'_id': 1}");
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") {
      return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 1}, 'ok': 1.0}";
    }
    return "{'cursor': {'firstBatch': [" + (sent.shard == 0 ? held : "") + "], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  router.run("{'findAndModify': 'c', 'query': {'b': 1}, 'sort': {'x.y': 1}, 'remove': true}");
  CHECK(compact(router.sent()).back() ==
        "s0{'findAndModify':'c','query':{'$and':[{'b':1},{'_id':1}]},'sort':{'x.y':1},'remove':true}");
}

TEST_CASE("a replacement never changes the key of the document that it meets", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const std::string held = GENERATE(as<std::string>(), "{'_id': 7, 'a': 15}", "{'_id': 7}", "{'_id': 7, 'a': 15.0}");
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "update") return count_all(sent);
    if (sent.name() == "findAndModify")
      return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {}, 'ok': 1.0}";
    return "{'cursor': {'firstBatch': [" + held + "], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const bool same = held.find("15") != std::string::npos;
  const std::string replies[] = {
      router.run("{'update': 'c', 'updates': [{'q': {'_id': 7}, 'u': {'a': 15, 'x': 1}}]}"),
      router.run("{'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'a': 15, 'x': 1}}")};
  for (const std::string& reply : replies) {
    INFO(held << " " << reply);
    CHECK((reply.find("66") != std::string::npos) == !same);
  }
  std::size_t written = 0;
  for (const Sent& sent : router.shards.sent) {
    CHECK(sent.shard == 1);  // where the replacement belongs
    written += sent.name() != "find";
  }
  CHECK(written == (same ? 2 : 0));
}

TEST_CASE("findAndModify says that a replacement would move its document to another shard", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "find" && sent.shard == 0)
      return "{'cursor': {'firstBatch': [{'_id': 7, 'a': 5}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    return match_none(sent);
  };
  const std::string reply = router.run("{'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'a': 15, 'x': 1}}");
  CHECK(compact(reply).find("'code':66,") != std::string::npos);
}

TEST_CASE("an update by _id that sets the key to what it is goes where the document lives", "[write]") {
  const std::string pattern = GENERATE(as<std::string>(), "{'k': 1}", "{'k': 'hashed'}");
  Router router(split_at(pattern, {"{'k': {'$numberLong': '10'}}"}));
  const bool same = GENERATE(true, false);
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "find" && sent.shard == 1)
      return "{'cursor': {'firstBatch': [{'_id': 7, 'k': 'x'}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    if (sent.name() == "find") return match_none(sent);
    if (sent.name() == "update") return count_all(sent);
    return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {}, 'ok': 1.0}";
  };
  const std::string set = std::string("{'$set': {'k': '") + (same ? "x" : "y") + "', 'name': 'n'}}";
  const std::string update = "{'update': 'c', 'updates': [{'q': {'_id': 7}, 'u': " + set + "}]";
  const std::string modify = "{'findAndModify': 'c', 'query': {'_id': 7}, 'update': " + set;
  for (const std::string& command : {update, modify}) {
    const std::string reply = compact(router.run(command + "}"));
    INFO(reply);
    CHECK((reply.find("'code':66,") != std::string::npos) == !same);
  }
  std::vector<std::string> written;
  for (const std::string& line : compact(router.sent()))
    if (line.find("'find':") == std::string::npos) written.push_back(line);
  // The key stands in the filter: what was put in the document's place meanwhile is not met.
  const std::string query = "{'$and':[{'_id':7},{'_id':7,'k':{'$eq':'x'}}]}";
  if (same) {
    REQUIRE(written.size() == 2);
    CHECK(written[0].find("s1") == 0);
    CHECK(written[0].find("'q':" + query) != std::string::npos);
    CHECK(written[1].find("s1{'findAndModify':'c','query':" + query) == 0);
  } else {
    CHECK(written.empty());
  }
}

TEST_CASE("a multi update that sets the key writes all or nothing", "[write]") {
  Router router(split_at("{'k': 1}", {"{'k': 10}"}));
  const bool others = GENERATE(true, false);
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") return count_all(sent);
    if (!others || sent.shard == 0) return match_none(sent);
    return "{'cursor': {'firstBatch': [{'_id': 7}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string reply = compact(router.run(
      "{'update': 'c', 'updates': [{'q': {'b': 1}, 'u': {'$set': {'k': 5, 'x': 1}}, 'multi': true}]}"));
  const Lines lines = compact(router.sent());
  CHECK(lines[0] == "s0{'find':'c','filter':{'$and':[{'b':1},{'$nor':[{'k':{'$eq':5}}]}]},"
                    "'projection':{'_id':1},'limit':1,'singleBatch':true}");
  if (others) {
    CHECK(reply.find("'code':66,") != std::string::npos);
    CHECK(lines.size() == 2);
    return;
  }
  CHECK(reply == "{'n':2,'nModified':2,'ok':1.0}");
  REQUIRE(lines.size() == 4);
  CHECK(lines[3].find("'q':{'$and':[{'b':1},{'k':{'$eq':5}}]},'u':{'$set':{'k':5,'x':1}},'multi':true") !=
        std::string::npos);
}

TEST_CASE("a multi update that adds nothing to the key changes documents whose key is a number", "[write]") {
  Router router(split_at("{'k': 1}", {"{'k': 10}"}));
  router.shards.answer = [&](const Sent& sent) { return sent.name() == "find" ? match_none(sent) : count_all(sent); };
  const auto [update, kept] = GENERATE(table<std::string, std::string>({
      {"{'$inc': {'k': 0}}", "{'k':{'$type':'number'}}"},
      {"{'$mul': {'k': 1.0}}", "{'k':{'$type':['double','int','decimal']}}"},
  }));
  const std::string reply =
      compact(router.run("{'update': 'c', 'updates': [{'q': {'b': 1}, 'u': " + update + ", 'multi': true}]}"));
  CHECK(reply == "{'n':2,'nModified':2,'ok':1.0}");
  const Lines lines = compact(router.sent());
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].find("{'$nor':[" + kept + "]}") != std::string::npos);
  CHECK(lines[3].find("'q':{'$and':[{'b':1}," + kept + "]}") != std::string::npos);
}

TEST_CASE("a replacement without the key is for documents without it only", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const bool keyed = GENERATE(true, false);
  const std::string held = keyed ? "{'_id': 7, 'a': 15}" : "{'_id': 7}";
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "update") return count_all(sent);
    if (sent.name() == "findAndModify")
      return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {}, 'ok': 1.0}";
    if ((sent.shard == 1) != keyed) return match_none(sent);
    return "{'cursor': {'firstBatch': [" + held + "], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string replies[] = {
      router.run("{'update': 'c', 'updates': [{'q': {'_id': 7}, 'u': {'x': 1}}]}"),
      router.run("{'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'x': 1}}")};
  for (const std::string& reply : replies) {
    INFO(reply);
    CHECK((compact(reply).find("'code':61,") != std::string::npos) == keyed);
    CHECK((reply.find("missingShardKeyFields") != std::string::npos) == keyed);
  }
}

TEST_CASE("a multi update that computes the key runs where nothing matches only", "[write]") {
  Router router(split_at("{'k': 1}", {"{'k': 10}"}));
  const bool matches = GENERATE(true, false);
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find" || !matches) return match_none(sent);
    return "{'cursor': {'firstBatch': [{'_id': 7}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string reply = compact(router.run(
      "{'update': 'c', 'updates': [{'q': {'b': 1}, 'u': {'$inc': {'k': 5}}, 'multi': true}]}"));
  CHECK((reply.find("'code':66,") != std::string::npos) == matches);
  for (const Sent& sent : router.shards.sent) {
    if (sent.name() == "find") continue;
    CHECK(test::text_of(sent.command).find("$in") != std::string::npos);  // matches nothing
    CHECK(!matches);
  }
}

TEST_CASE("a replacement is inserted only when no shard has a document that matches", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const bool held = GENERATE(true, false);
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "find" && sent.shard == 0 && held)
      return "{'cursor': {'firstBatch': [{'_id': 7, 'a': 1}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    return match_none(sent);
  };
  const std::string update =
      "{'update': 'c', 'updates': [{'q': {'_id': 7}, 'u': {'_id': 7, 'a': 15}, 'upsert': true}]";
  const std::string modify =
      "{'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'_id': 7, 'a': 15}, 'upsert': true";
  const std::string replies[] = {router.run(update + "}"), router.run(modify + "}"),
                                 router.run(with_txn(update, 1)), router.run(with_txn(modify, 2))};
  for (const std::string& reply : replies) {
    INFO(reply);
    CHECK((compact(reply).find("'code':66,") != std::string::npos) == held);
  }
  std::size_t upserts = 0;
  for (const Sent& sent : router.shards.sent) {
    const DocView command = sent.command;
    const ValueView updates = command["updates"];
    const DocView op = updates.is_array() ? updates.as_document().first().as_document() : command;
    if (!op["upsert"].truthy()) continue;
    ++upserts;
    CHECK(sent.shard == 1);
  }
  CHECK(upserts == (held ? 0 : 4));
}

TEST_CASE("a retryable write of one document asks no shard that it does not concern", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.shard == 1) return std::nullopt;  // it is down
    if (sent.name() == "find")
      return "{'cursor': {'firstBatch': [{'_id': 7, 'a': 5}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    const DocView command = sent.command;
    const ValueView updates = command["updates"];
    const DocView query = updates.is_array()
                              ? updates.as_document().first().as_document()["q"].as_document()
                              : command["query"].as_document();
    if (query["_id"].is_document()) return match_none(sent);  // {$in: []}
    if (sent.name() == "update") return count_all(sent);
    return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 7}, 'ok': 1.0}";
  };
  for (const char* command :
       {"{'update': 'c', 'updates': [{'q': {'_id': 7}, 'u': {'a': 5, 'x': 1}}]",
        "{'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'a': 5, 'x': 1}"}) {
    const std::string reply = router.run(with_txn(command, 1));
    INFO(reply);
    CHECK(compact(reply).find("'ok':1.0") != std::string::npos);
    CHECK(compact(reply).find("'n':1") != std::string::npos);
  }
  for (const Sent& sent : router.shards.sent) CHECK(sent.shard == 0);
}

TEST_CASE("a findAndModify that concerns one shard runs in a transaction, which it begins once", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  int writes = 0;
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "find")
      return "{'cursor': {'firstBatch': [{'_id': 7, 'a': 5}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    if (++writes == 1) return match_none(sent);  // it has changed meanwhile
    return "{'lastErrorObject': {'n': 1, 'updatedExisting': true}, 'value': {'_id': 7}, 'ok': 1.0}";
  };
  const std::string reply = router.run(with_txn(
      "{'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'a': 5, 'x': 1}, 'autocommit': false, "
      "'startTransaction': true",
      1));
  INFO(reply);
  CHECK(compact(reply).find("'recoveryToken':{'recoveryShardId':'s0'}") != std::string::npos);
  std::vector<std::string> steps;
  for (const Sent& sent : router.shards.sent) {
    const DocView command = sent.command;
    steps.push_back(std::string(sent.name()) + (command["startTransaction"].truthy() ? " begins" : "") +
                    (command["autocommit"].exists() ? " within" : ""));
  }
  CHECK(steps == std::vector<std::string>{"find", "findAndModify begins within", "find within",
                                          "findAndModify within"});
}

TEST_CASE("without a sort any document of the chosen shard will do", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") return count_all(sent);
    return sent.shard == 0 ? match_none(sent)
                           : "{'cursor': {'firstBatch': [{'_id': 5}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  CHECK(compact(router.run("{'delete': 'c', 'deletes': [{'q': {'b': 1}, 'limit': 1}]}")) == "{'n':1,'ok':1.0}");
  CHECK(compact(router.sent()).back().find("{'q':{'b':1},'limit':1}") != std::string::npos);
}

TEST_CASE("a choice is repeated when the document changed meanwhile", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  int writes = 0;
  router.shards.answer = [&writes](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() == "find") {
      return sent.shard == 0
                 ? match_none(sent)
                 : "{'cursor': {'firstBatch': [{'_id': 5}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    }
    return ++writes < 3 ? match_none(sent) : count_all(sent);
  };
  CHECK(compact(router.run("{'delete': 'c', 'deletes': [{'q': {'b': 1}, 'limit': 1}]}")) ==
        "{'n':1,'ok':1.0}");
  CHECK(writes == 3);
  writes = -100;
  const std::string reply =
      compact(router.run("{'delete': 'c', 'deletes': [{'q': {'b': 1}, 'limit': 1}]}"));
  CHECK(reply.find("'code':112") != std::string::npos);
}

TEST_CASE("an upsert that matches nothing lands on its owner with its _id imposed", "[write]") {
  Router router(split_at("{'_id': 1}", {"{'_id': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    const ValueView updates = sent.command.view()["updates"];
    if (!updates.is_array()) return match_none(sent);
    const DocView op = updates.as_document().first().as_document();
    if (!op["upsert"].truthy()) return match_none(sent);
    return "{'n': 1, 'nModified': 0, 'upserted': [{'index': 0, '_id': 77}], 'ok': 1.0}";
  };
  const std::string reply = router.run(
      "{'update': 'c', 'updates': [{'q': {'x': 1}, 'u': {'$set': {'y': 2}}, 'upsert': true}]}");
  CHECK(compact(reply) == "{'n':1,'nModified':0,'upserted':[{'index':0,'_id':77}],'ok':1.0}");
  const Sent& last = router.shards.sent.back();
  CHECK(last.shard == 1);  // an ObjectId sorts after numbers
  const DocView op = last.command.view()["updates"].as_document().first().as_document();
  CHECK(op["u"].as_document().find_path("$setOnInsert._id").type == BsonType::object_id);
}

TEST_CASE("an upsert's shard key may be the one value of an $in", "[write]") {
  const char* query = GENERATE("{'a': {'$in': [15]}}", "{'a': {'$in': [15, 15.0]}}",
                               "{'a': {'$in': [15], '$exists': true}}");
  CAPTURE(query);
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    const ValueView updates = sent.command.view()["updates"];
    if (!updates.is_array() || !updates.as_document().first().as_document()["upsert"].truthy()) return match_none(sent);
    return "{'n': 1, 'nModified': 0, 'upserted': [{'index': 0, '_id': 77}], 'ok': 1.0}";
  };
  const auto upsert = [&](const std::string& q) {
    return compact(
        router.run("{'update': 'c', 'updates': [{'q': " + q + ", 'u': {'$set': {'y': 2}}, 'upsert': true}]}"));
  };
  CHECK(upsert(query) == "{'n':1,'nModified':0,'upserted':[{'index':0,'_id':77}],'ok':1.0}");
  const Sent& last = router.shards.sent.back();
  CHECK(last.shard == 1);
  const DocView op = last.command.view()["updates"].as_document().first().as_document();
  CHECK(op["u"].as_document().find_path("$setOnInsert.a").to_int64() == 15);
  CHECK(upsert("{'a': {'$in': [15, 16]}}").find("'code':61,") != std::string::npos);
}

TEST_CASE("a second attempt of a chosen write meets the shard that remembers the first",
          "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.shard == 1) return "{'n': 1, 'nModified': 1, 'retriedStmtIds': [0], 'ok': 1.0}";
    return match_none(sent);
  };
  const std::string reply = router.run(
      with_txn("{'update': 'c', 'updates': [{'q': {'b': 1}, 'u': {'$inc': {'b': 1}}}]", 3));
  CHECK(compact(reply) == "{'n':1,'nModified':1,'retriedStmtIds':[0],'ok':1.0}");
  REQUIRE(router.shards.sent.size() == 2);
  for (const Sent& sent : router.shards.sent) {
    const DocView op = sent.command.view()["updates"].as_document().first().as_document();
    CHECK(compact(test::text_of(op["q"].as_document())) == "{'_id':{'$in':[]}}");
  }
}

TEST_CASE("a transaction's statement for a second shard aborts it", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  const std::string autocommit = ", 'autocommit': false";
  const std::string first = compact(router.run(with_txn(
      "{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}], 'startTransaction': true" + autocommit,
      1)));
  CHECK(first == "{'n':1,'ok':1.0,'recoveryToken':{'recoveryShardId':'s0'}}");
  const std::string second = compact(
      router.run(with_txn("{'insert': 'c', 'documents': [{'_id': 2, 'a': 20}]" + autocommit, 1)));
  CHECK(second.find("'code':263,") != std::string::npos);
  CHECK(second.find("TransientTransactionError") == std::string::npos);
  REQUIRE(router.shards.sent.size() == 2);
  CHECK(router.shards.sent[1].name() == "abortTransaction");
  CHECK(router.shards.sent[1].shard == 0);
  const std::string third = compact(
      router.run(with_txn("{'insert': 'c', 'documents': [{'_id': 3, 'a': 1}]" + autocommit, 1)));
  CHECK(third.find("'code':251,") != std::string::npos);
}

TEST_CASE("what the proxy refuses within a transaction aborts it", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") return count_all(sent);
    return "{'cursor': {'firstBatch': [{'_id': 7, 'a': 11}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string autocommit = ", 'autocommit': false";
  const auto commands_sent = [&](const char* name) {
    return std::count_if(router.shards.sent.begin(), router.shards.sent.end(),
                         [name](const Sent& sent) { return sent.name() == name; });
  };
  const char* const refused[] = {
      "{'update': 'c', 'updates': [{'q': {'a': 15}, 'u': {'$set': {'a': 16}}}]",
      "{'insert': 'c', 'documents': [{'_id': 2, 'a': [1]}]",
      "{'update': 'c', 'updates': [{'q': {'_id': 7}, 'u': {'a': 15}}]",  // it has another key
      "{'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'a': 15}",
  };
  const std::string begun =
      "{'insert': 'c', 'documents': [{'_id': 1, 'a': 20}], 'startTransaction': true" + autocommit;
  int number = 0;
  for (const char* const command : refused) {
    INFO(command);
    router.shards.sent.clear();
    ++number;
    router.run(with_txn(begun, number));
    const std::string refusal = compact(router.run(with_txn(command + autocommit, number)));
    CHECK(refusal.find("'ok':0.0") != std::string::npos);
    CHECK(router.shards.sent.back().name() == "abortTransaction");
    CHECK(router.shards.sent.back().shard == 1);
    const std::string commit =
        compact(router.run(with_txn("{'commitTransaction': 1" + autocommit, number)));
    CHECK(commit.find("'code':251,") != std::string::npos);
    CHECK(commands_sent("commitTransaction") == 0);
    CHECK(commands_sent("abortTransaction") == 1);
  }
  // One that is begun twice goes on as it was.
  router.shards.sent.clear();
  router.run(with_txn(begun, 9));
  CHECK(compact(router.run(with_txn(begun, 9))).find("'code':117,") != std::string::npos);
  CHECK(compact(router.run(with_txn("{'commitTransaction': 1" + autocommit, 9))).find("'ok':1.0") !=
        std::string::npos);
  CHECK(commands_sent("abortTransaction") == 0);
}

TEST_CASE("a replacement in a transaction is chosen within it", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") return count_all(sent);
    return "{'cursor': {'firstBatch': [{'_id': 7, 'a': 15}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string replace =
      "{'update': 'c', 'updates': [{'q': {'_id': 7}, 'u': {'a': 15, 'x': 1}}], 'autocommit': false";
  CHECK(router.run(with_txn(replace + ", 'startTransaction': true, 'readConcern': {'level': 'snapshot'}", 1))
            .find("errmsg") == std::string::npos);
  // Before the transaction begins, a find has no snapshot.
  CHECK(router.shards.sent.front().command.view().find_path("readConcern.level").as_string() == "local");
  CHECK(router.shards.sent.back().command.view().find_path("readConcern.level").as_string() == "snapshot");
  CHECK(router.run(with_txn(replace, 1)).find("errmsg") == std::string::npos);
  std::size_t started = 0;
  std::vector<bool> chosen_within;
  for (const Sent& sent : router.shards.sent) {
    const DocView command = sent.command;
    if (sent.name() == "find") chosen_within.push_back(command["txnNumber"].exists() && command["autocommit"].exists());
    if (command["startTransaction"].truthy()) ++started;
  }
  CHECK(chosen_within == std::vector<bool>{false, true});  // before it begins there is nothing to see
  CHECK(started == 1);
}

TEST_CASE("a command of several steps begins its transaction with the first", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") return count_all(sent);
    return "{'cursor': {'firstBatch': [{'_id': 7, 'a': 15}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const std::string exact = "{'q': {'a': 15}, 'u': {'$set': {'x': 1}}}";
  const std::string chosen = "{'q': {'_id': 7}, 'u': {'a': 15, 'x': 1}}";
  const std::string reply = router.run(with_txn(
      "{'update': 'c', 'updates': [" + exact + ", " + chosen + ", " + exact + "], 'autocommit': false, " +
          "'startTransaction': true, 'readConcern': {'level': 'snapshot'}",
      1));
  CHECK(reply.find("errmsg") == std::string::npos);
  std::vector<std::string> steps;
  for (const Sent& sent : router.shards.sent) {
    const DocView command = sent.command;
    steps.push_back(std::string(sent.name()) + (command["startTransaction"].truthy() ? " begins" : "") +
                    (command["readConcern"].exists() ? " reads" : "") +
                    (command["txnNumber"].exists() && command["autocommit"].exists() ? " within" : ""));
  }
  CHECK(steps == std::vector<std::string>{"update begins reads within", "find within", "update within",
                                          "update within"});
}

TEST_CASE("a numbered write whose reply found no memory is to be sent again with its number") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  Error no_memory(ErrorCode::ingress_request_rate_limit_exceeded, "no memory");
  no_memory.labels = {"SystemOverloadedError", "RetryableError"};
  const bool sent = GENERATE(false, true);
  (sent ? router.shards.fails_sent : router.shards.fails_unsent) = no_memory;
  const std::string command = std::string("{'findAndModify': 'c', 'query': {'a': 1}, 'update': {'$inc': {'n': 1}}, ") +
                              test::session_fields + ", 'txnNumber': {'$numberLong': '1'}}";
  const std::string refused = compact(router.run(command));
  CHECK(refused.find("'code':462,") != std::string::npos);
  CHECK((refused.find("'RetryableWriteError'") != std::string::npos) == sent);
}

TEST_CASE("a first statement that found no memory begins its transaction when it is sent again", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  Error no_memory(ErrorCode::ingress_request_rate_limit_exceeded, "no memory");
  no_memory.labels = {"SystemOverloadedError", "RetryableError"};
  const std::string insert = "{'insert': 'c', 'documents': [{'_id': 1, 'a': 20}], 'autocommit': false";
  const std::string begun = insert + ", 'startTransaction': true";
  SECTION("nothing was sent") {
    router.shards.fails_unsent = no_memory;
    const std::string refused = compact(router.run(with_txn(begun, 1)));
    CHECK(refused.find("'code':462,") != std::string::npos);
    CHECK(refused.find("'RetryableError'") != std::string::npos);
    CHECK(router.shards.sent.empty());
    CHECK(compact(router.run(with_txn(begun, 1))).find("'ok':1.0") != std::string::npos);
    CHECK(compact(router.run(with_txn(insert, 1))).find("'ok':1.0") != std::string::npos);
  }
  SECTION("a later one goes on") {
    CHECK(compact(router.run(with_txn(begun, 1))).find("'ok':1.0") != std::string::npos);
    router.shards.fails_unsent = no_memory;
    CHECK(compact(router.run(with_txn(insert, 1))).find("'RetryableError'") != std::string::npos);
    CHECK(compact(router.run(with_txn(insert, 1))).find("'ok':1.0") != std::string::npos);
  }
  SECTION("its shard has begun it: that number is used") {
    router.shards.fails_sent = no_memory;
    const std::string refused = compact(router.run(with_txn(begun, 1)));
    CHECK(refused.find("'TransientTransactionError'") != std::string::npos);
    CHECK(refused.find("'RetryableError'") == std::string::npos);
    CHECK(router.shards.sent.back().name() == "abortTransaction");
    CHECK(compact(router.run(with_txn(begun, 2))).find("'ok':1.0") != std::string::npos);
  }
  SECTION("its commit was sent: how it ended is unknown, and nothing may be done twice") {
    CHECK(compact(router.run(with_txn(begun, 1))).find("'ok':1.0") != std::string::npos);
    const std::string commit = "{'commitTransaction': 1, 'autocommit': false, '$db': 'admin'";
    router.shards.fails_sent = no_memory;
    const std::string unknown = compact(router.run(with_txn(commit, 1)));
    CHECK(unknown.find("'code':6,") != std::string::npos);
    CHECK(unknown.find("'errorLabels':['RetryableWriteError']") != std::string::npos);
    CHECK(compact(router.run(with_txn(commit, 1))).find("'ok':1.0") != std::string::npos);
  }
}

TEST_CASE("collections are made within a transaction as documents are", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) { return "{'ok': 1.0}"; };
  const std::string autocommit = ", 'autocommit': false";
  const std::string started = ", 'startTransaction': true" + autocommit;
  const std::string made = compact(router.run(with_txn("{'create': 'other'" + started, 1)));
  CHECK(made == "{'ok':1.0,'recoveryToken':{'recoveryShardId':'s0'}}");
  CHECK(compact(router.run(with_txn("{'commitTransaction': 1" + autocommit, 1))).find("'ok':1.0") != std::string::npos);
  CHECK(router.shards.sent.back().shard == 0);
  const std::size_t sent = router.shards.sent.size();
  const std::string both = compact(router.run(with_txn("{'createIndexes': 'c', 'indexes': []" + started, 2)));
  CHECK(both.find("'code':263,") != std::string::npos);
  CHECK(router.shards.sent.size() == sent);
}

TEST_CASE("views and collations that shards could not keep to are refused", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) { return "{'ok': 1.0}"; };
  const auto code = [&](const char* command) {
    const std::string reply = compact(router.run(command));
    const std::size_t at = reply.find("'code':");
    return at == std::string::npos ? 0 : std::stoi(reply.substr(at + 7));
  };
  CHECK(code("{'create': 'v', 'viewOn': 'c', 'pipeline': []}") == 115);
  CHECK(code("{'create': 'v', 'viewOn': 'd', 'pipeline': [{'$lookup': {'from': 'c', 'as': 'x', "
             "'localField': 'a', 'foreignField': 'a'}}]}") == 115);
  CHECK(code("{'collMod': 'v', 'viewOn': 'c', 'pipeline': []}") == 115);
  CHECK(code("{'create': 'c', 'collation': {'locale': 'en'}}") == 72);
  CHECK(router.shards.sent.empty());
  CHECK(code("{'create': 'v', 'viewOn': 'd', 'pipeline': []}") == 0);
  CHECK(code("{'create': 'd', 'collation': {'locale': 'en'}}") == 0);
  CHECK(code("{'create': 'c', 'collation': {'locale': 'simple'}}") == 0);
  CHECK(router.shards.sent.size() == 4);
}

TEST_CASE("commits go to the transaction's shard, by its token too", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) { return "{'ok': 1.0}"; };
  const std::string autocommit = ", 'autocommit': false";
  router.run(with_txn(
      "{'insert': 'c', 'documents': [{'_id': 1, 'a': 20}], 'startTransaction': true" + autocommit,
      1));
  CHECK(compact(router.run(with_txn(
            "{'commitTransaction': 1, 'writeConcern': {'w': 'majority'}" + autocommit, 1))) ==
        "{'ok':1.0,'recoveryToken':{'recoveryShardId':'s1'}}");
  CHECK(router.shards.sent.back().shard == 1);
  CHECK(router.shards.sent.back().command.view()["writeConcern"].exists());
  const std::string by_token = router.run(with_txn(
      "{'commitTransaction': 1, 'recoveryToken': {'recoveryShardId': 's0'}" + autocommit, 9));
  CHECK(compact(by_token).find("'ok':1.0") != std::string::npos);
  CHECK(router.shards.sent.back().shard == 0);
  CHECK_FALSE(router.shards.sent.back().command.view()["recoveryToken"].exists());
  const std::size_t sent = router.shards.sent.size();
  for (const char* token : {"", ", 'recoveryToken': {}"}) {
    const std::string lost =
        compact(router.run(with_txn("{'commitTransaction': 1" + autocommit + token, 10)));
    CHECK(lost.find("'code':251,") != std::string::npos);
  }
  CHECK(router.shards.sent.size() == sent);
}

TEST_CASE("sessions are started, ended and killed", "[transactions]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) { return "{'n': 1, 'ok': 1.0}"; };
  CHECK(compact(router.run("{'startSession': 1}")).find("'timeoutMinutes':30,'ok':1.0") !=
        std::string::npos);
  router.run(with_txn(
      "{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}], 'startTransaction': true, 'autocommit': "
      "false",
      1));
  const std::string id =
      "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}";
  CHECK(compact(router.run("{'endSessions': [" + id + "], 'writeConcern': {'w': 0}}")) == "{'ok':1.0}");
  REQUIRE(router.shards.sent.size() == 4);
  CHECK(router.shards.sent[1].name() == "abortTransaction");
  CHECK(router.shards.sent[2].name() == "endSessions");
  CHECK_FALSE(router.shards.sent[2].command.view()["writeConcern"].exists());
  CHECK(compact(router.run("{'endSessions': [5]}")).find("'code':14,") != std::string::npos);
  CHECK(compact(router.run("{'killAllSessions': [{'user': 'x'}]}")).find("'ok':0.0") !=
        std::string::npos);
  CHECK(compact(router.run("{'killAllSessionsByPattern': [{}]}")) == "{'ok':1.0}");
}

TEST_CASE("a unique index that shards could not keep is not made by collMod either", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = [](const Sent&) { return "{'ok': 1.0}"; };
  const auto refused = [&](const std::string& command) {
    return compact(router.run(command)).find("'code':67,") != std::string::npos;
  };
  CHECK(refused("{'collMod': 'c', 'index': {'keyPattern': {'email': 1}, 'unique': true}}"));
  CHECK(refused("{'collMod': 'c', 'index': {'keyPattern': {'email': 1}, 'prepareUnique': true}}"));
  CHECK(refused("{'collMod': 'c', 'index': {'name': 'email_1', 'unique': true}}"));
  CHECK(refused("{'createIndexes': 'c', 'indexes': [{'key': {'email': 1}, 'name': 'x', 'prepareUnique': true}]}"));
  CHECK(router.shards.sent.empty());
  CHECK_FALSE(refused("{'collMod': 'c', 'index': {'keyPattern': {'a': 1, 'email': 1}, 'unique': true}}"));
  CHECK_FALSE(refused("{'collMod': 'c', 'index': {'name': 'email_1', 'hidden': true}}"));
  CHECK_FALSE(refused("{'collMod': 'd', 'index': {'keyPattern': {'email': 1}, 'unique': true}}"));
}

TEST_CASE("batches are counted before they are read", "[write]") {
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  router.shards.answer = count_all;
  for (const char* command :
       {"{'insert': 'c', 'documents': []}", "{'insert': 'unsharded', 'documents': []}",
        "{'delete': 'c', 'deletes': []}"}) {
    CHECK(compact(router.run(command)).find("'code':16,") != std::string::npos);
  }
  CHECK(compact(router.run("{'insert': 'c'}")).find("'code':40414,") != std::string::npos);
  CHECK(compact(router.run("{'insert': 5, 'documents': [{}]}")).find("'code':73,") !=
        std::string::npos);
  CHECK(router.shards.sent.empty());
}

TEST_CASE("the copies of a large write over shards are paid for, or it is refused before it begins") {
  const std::string text(100'000, 'x');
  const bool modifies = GENERATE(true, false);
  const std::string command =
      modifies ? "{'findAndModify': 'c', 'query': {'b': 1}, 'update': {'$set': {'x': '" + text + "'}}}"
               : "{'update': 'c', 'updates': [{'q': {'b': 1}, 'u': {'$set': {'x': '" + text + "'}}}]}";
  Router router(split_at("{'a': 1}", {"{'a': 10}"}));
  const MemoryBudget& writes = router.shared().memory.writes;
  std::uint64_t charged = 0;
  router.shards.answer = [&](const Sent& sent) -> std::optional<std::string> {
    charged = std::max(charged, writes.usage().used_bytes);
    if (sent.name() == "find") {
      const std::string documents = sent.shard == 1 ? "{'_id': 7, 'a': 15}" : "";
      return "{'cursor': {'firstBatch': [" + documents + "], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
    }
    return "{'n': 1, 'nModified': 1, 'lastErrorObject': {'n': 1}, 'value': {'_id': 7}, 'ok': 1.0}";
  };
  CHECK(router.run(command).find("'ok' : 1.0") != std::string::npos);
  CHECK(charged >= 2 * text.size());
  CHECK(writes.usage().used_bytes == 0);
  router.shards.sent.clear();
  router.shared().memory.process.set_limit(3 * text.size());
  const auto others = Buffer::allocate(router.shared().memory.process, 2 * text.size());
  REQUIRE(others);
  const std::string refused = router.run(command);
  CHECK(refused.find("NoWritesPerformed") != std::string::npos);
  CHECK(router.shards.sent.empty());
}

TEST_CASE("a limit refuses a write with the label that nothing was written, by every name of it") {
  const auto [command, labelled] = GENERATE(table<std::string, bool>({
      {"{'insert': 'c', 'documents': [{'a': 1}]}", true},
      {"{'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'b': 1}}}]}", true},
      {"{'delete': 'c', 'deletes': [{'q': {'a': 1}, 'limit': 1}]}", true},
      {"{'findAndModify': 'c', 'query': {'a': 1}, 'remove': true}", true},
      {"{'findandmodify': 'c', 'query': {'a': 1}, 'remove': true}", true},
      {"{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {'a': 1}}], 'nsInfo': [{'ns': 'db.c'}]}", true},
      {"{'find': 'c', 'filter': {'a': 1}}", false},
  }));
  CAPTURE(command);
  Router router(split_at("{'a': 1}", {}));
  LimitSettings settings;
  settings.per[static_cast<std::size_t>(LimitKey::address)] = {.operations_per_second = 1};
  router.shared().limits.configure(settings);
  REQUIRE_FALSE(router.client().limits.enter(router.shared().limits, LimitKey::address, "10.0.0.1"));
  REQUIRE(router.run("{'ping': 1}").find("'ok' : 1.0") != std::string::npos);
  const std::string refused = router.run(command);
  CHECK(refused.find("RetryableError") != std::string::npos);
  CHECK((refused.find("NoWritesPerformed") != std::string::npos) == labelled);
  CHECK(router.shards.sent.empty());
}

}  // namespace
}  // namespace spillway::exec
