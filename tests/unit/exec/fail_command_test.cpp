// The fail points: what drivers' tests make of a router.
#include <fmt/format.h>

#include "proxy/config/parameters.h"
#include "proxy/exec/core/fail_command.h"
#include "proxy/exec/read/change_stream.h"
#include "tests/unit/exec/write_router.h"

namespace spillway::exec {
namespace {

using test::Router;
using test::Sent;
using test::split_at;

struct FailingRouter : Router {
  explicit FailingRouter() : Router(split_at("{'a': 1}", {"{'a': 10}"})) {
    shared().parameters.test_commands = true;
    shards.answer = [](const Sent& sent) -> std::optional<std::string> {
      if (sent.name() == "find")
        return "{'cursor': {'firstBatch': [], 'id': {'$numberLong': '0'}, 'ns': 'db.c'}, 'ok': 1.0}";
      return "{'n': 1, 'nModified': 1, 'ok': 1.0}";
    };
  }
  BsonDoc ask(std::string_view json) { return test::doc(run(json)); }
  // Found in the text: messages have quotes.
  std::int64_t code(std::string_view json) {
    const std::string reply = run(json);
    const std::size_t at = reply.find("'code' : ");
    return at == std::string::npos ? 0 : std::stoll(reply.substr(at + 9));
  }
  void plan(std::string_view mode, std::string_view data) {
    INFO(mode << data);
    const BsonDoc reply = ask("{'configureFailPoint': 'failCommand', 'mode': " + std::string(mode) +
                              ", 'data': " + std::string(data) + "}");
    INFO(test::text_of(reply));
    REQUIRE(reply.view()["ok"].truthy());
  }
};

constexpr const char* insert_one = "{'insert': 'c', 'documents': [{'a': 1}]}";
constexpr const char* transaction_fields =
    ", 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}, "
    "'txnNumber': {'$numberLong': '1'}, 'autocommit': false";

TEST_CASE("there are no fail points unless test commands are enabled") {
  FailingRouter router;
  const char* const names = GENERATE("configureFailPoint", "waitForFailPoint");
  router.shared().parameters.test_commands = false;
  const std::string command = std::string("{'") + names + "': 'failCommand', 'mode': 'alwaysOn'}";
  CHECK(router.code(command) == 59);
  const auto is_listed = [&] { return router.run("{'listCommands': 1}").find(names) != std::string::npos; };
  CHECK_FALSE(is_listed());
  router.shared().parameters.test_commands = true;
  CHECK(router.code(command) != 59);
  CHECK(is_listed());
  CHECK(router.code(std::string("{'") + names + "': 'failCommand', 'mode': 'alwaysOn', '$db': 'db'}") == 13);
}

TEST_CASE("a fail point's name and mode are checked, and what was set stays") {
  FailingRouter router;
  router.plan("'alwaysOn'", "{'failCommands': ['ping'], 'errorCode': 7}");
  const auto code = [&](const std::string& rest) {
    return router.code("{'configureFailPoint': 'failCommand'" + rest + "}");
  };
  CHECK(router.code("{'configureFailPoint': 'failGetMore', 'mode': 'off'}") == 266);
  CHECK(code("") == 20);
  CHECK(code(", 'mode': 'on'") == 2);
  CHECK(code(", 'mode': 1") == 14);
  CHECK(code(", 'mode': {}") == 2);
  CHECK(code(", 'mode': {'times': 'x'}") == 14);
  CHECK(code(", 'mode': {'times': 1.5}") == 2);
  CHECK(code(", 'mode': {'times': -1}") == 2);
  CHECK(code(", 'mode': {'skip': 3000000000}") == 2);
  CHECK(code(", 'mode': {'activationProbability': 'x'}") == 14);
  CHECK(code(", 'mode': {'activationProbability': 2}") == 2);
  CHECK(code(", 'mode': 'alwaysOn', 'data': 1") == 14);
  CHECK(code(", 'mode': 'alwaysOn', 'data': {'blockConnection': true}") == 72);
  CHECK(code(", 'mode': 'alwaysOn', 'data': {'blockConnection': true, 'blockTimeMS': -1}") == 72);
  CHECK(code(", 'mode': 'alwaysOn', 'data': {'appName': '" + std::string(20'000, 'x') + "'}") == 2);
  CHECK(router.code("{'ping': 1}") == 7);
  CHECK(code(", 'mode': 'off'") == 0);
  CHECK(router.code("{'ping': 1}") == 0);
}

TEST_CASE("commands fail by name, and only they count") {
  FailingRouter router;
  router.plan("{'times': 2}", "{'failCommands': ['find', 'dropIndexes', 'configureFailPoint'], 'errorCode': 10107}");
  CHECK(router.code("{'ping': 1}") == 0);
  const BsonDoc reply = router.ask("{'find': 'c'}");
  CHECK(reply.view()["code"].to_int64() == 10107);
  CHECK(reply.view()["codeName"].as_string() == "NotWritablePrimary");
  CHECK_FALSE(reply.view()["errorLabels"].exists());
  CHECK(router.shards.sent.empty());
  CHECK(router.code("{'deleteIndexes': 'c', 'index': '*'}") == 10107);
  CHECK(router.code("{'find': 'c'}") == 0);
  CHECK_FALSE(router.shared().fail_command.on());
  const BsonDoc again = router.ask("{'configureFailPoint': 'failCommand', 'mode': 'off'}");
  CHECK(again.view()["count"].to_int64() == 2);
}

TEST_CASE("a getMore that has its cursor fails, and the cursor is gone") {
  FailingRouter router;
  router.shards.answer = [](const Sent& sent) -> std::optional<std::string> {
    if (sent.name() != "find") return "{'ok': 1.0}";
    return "{'cursor': {'firstBatch': [{'_id': 1}], 'id': {'$numberLong': '5'}, 'ns': 'db.c'}, 'ok': 1.0}";
  };
  const BsonDoc opened = router.ask("{'find': 'c', 'batchSize': 1}");
  INFO(test::text_of(opened));
  const auto id = opened.view().find_path("cursor.id").to_int64();
  REQUIRE(id);
  router.ask(
      "{'configureFailPoint': 'failGetMoreAfterCursorCheckout', 'mode': {'times': 1}, 'data': {'errorCode': 91}}");
  const std::string more = fmt::format("{{'getMore': {{'$numberLong': '{}'}}, 'collection': 'c'}}", *id);
  CHECK(router.code(more) == 91);
  CHECK(router.code(more) == 43);
  const Error of_stream = error_of_stream(Error(91, "gone"));
  CHECK(of_stream.labels == std::vector<std::string>{"ResumableChangeStreamError"});
  CHECK(error_of_stream(Error(2, "wrong")).labels.empty());
}

TEST_CASE("the modes of a fail point") {
  FailingRouter router;
  const std::string data = "{'failCommands': ['ping'], 'errorCode': 5}";
  router.plan("{'skip': 2}", data);
  for (const std::int64_t expected : {0, 0, 5, 5}) CHECK(router.code("{'ping': 1}") == expected);
  router.plan("{'activationProbability': 0}", data);
  for (int i = 0; i < 10; ++i) CHECK(router.code("{'ping': 1}") == 0);
  router.plan("{'activationProbability': 1}", data);
  for (int i = 0; i < 10; ++i) CHECK(router.code("{'ping': 1}") == 5);
  router.plan("{'activationProbability': 0.5}", data);
  int failed = 0;
  for (int i = 0; i < 400; ++i) failed += router.code("{'ping': 1}") == 5;
  CHECK((failed > 100 && failed < 300));  // 10 sigma
}

TEST_CASE("a fail point may concern one application, connection, namespace") {
  FailingRouter router;
  router.client().application_name = "mine";
  router.client().connection_id = 12;
  const auto fails = [&](const std::string& filter, const char* command) {
    router.plan("'alwaysOn'", "{'failCommands': ['find', 'getMore'], 'errorCode': 5, " + filter + "}");
    return router.code(command) == 5;
  };
  CHECK(fails("'appName': 'mine'", "{'find': 'c'}"));
  CHECK_FALSE(fails("'appName': 'other'", "{'find': 'c'}"));
  CHECK(fails("'threadName': 'conn12'", "{'find': 'c'}"));
  CHECK_FALSE(fails("'threadName': 'conn1'", "{'find': 'c'}"));
  CHECK(fails("'namespace': 'db.c'", "{'find': 'c'}"));
  CHECK_FALSE(fails("'namespace': 'db.d'", "{'find': 'c'}"));
  CHECK(fails("'namespace': 'db.c'", "{'getMore': {'$numberLong': '5'}, 'collection': 'c'}"));
  router.client().internal = true;
  CHECK_FALSE(fails("'failInternalCommands': false", "{'find': 'c'}"));
  CHECK(fails("'failInternalCommands': true", "{'find': 'c'}"));
  router.plan("'alwaysOn'", "{'failAllCommands': true, 'failInternalCommands': true, 'errorCode': 5}");
  CHECK(router.code("{'ping': 1}") == 5);
}

TEST_CASE("labels of planned failures: the plan's, or those of a transaction") {
  FailingRouter router;
  const auto labels = [&](const std::string& data, const std::string& command) {
    router.plan("{'times': 1}", "{'failCommands': ['insert', 'commitTransaction'], " + data + "}");
    const BsonDoc reply = router.ask(command);
    CHECK_FALSE(reply.view()["ok"].truthy());
    const ValueView found = reply.view()["errorLabels"];
    return found.exists() ? test::text_of(found.as_document()) : std::string();
  };
  const std::string started = std::string("{'insert': 'c', 'documents': [{'a': 1}], 'startTransaction': true") +
                              transaction_fields + "}";
  const std::string commit = std::string("{'commitTransaction': 1, '$db': 'admin'") + transaction_fields + "}";
  CHECK(labels("'errorCode': 91, 'errorLabels': ['Foo', 'Bar']", insert_one) == "{ '0' : 'Foo', '1' : 'Bar' }");
  CHECK(labels("'errorCode': 91", insert_one).empty());
  CHECK(labels("'errorCode': 112", started) == "{ '0' : 'TransientTransactionError' }");
  CHECK(labels("'errorCode': 10107", started) == "{ '0' : 'TransientTransactionError' }");
  CHECK(labels("'errorCode': 11000", started).empty());
  CHECK(labels("'errorCode': 10107, 'errorLabels': []", started).empty());
  CHECK(labels("'errorCode': 10107", commit).empty());
  CHECK(labels("'errorCode': 251", commit) == "{ '0' : 'TransientTransactionError' }");
  CHECK(router.shards.sent.empty());
}

TEST_CASE("errorExtraInfo joins the error") {
  FailingRouter router;
  router.plan("'alwaysOn'", "{'failCommands': ['create'], 'errorCode': 227, 'errorExtraInfo': {'ns': 'db.c'}}");
  CHECK(router.ask("{'create': 'c'}").view()["ns"].as_string() == "db.c");
}

TEST_CASE("a write concern's error is added to what the command answers") {
  FailingRouter router;
  router.plan("{'times': 2}",
              "{'failCommands': ['insert', 'ping', 'find'], 'writeConcernError': {'code': 12345, 'errmsg': 'hello'}}");
  CHECK_FALSE(router.ask("{'ping': 1}").view()["writeConcernError"].exists());
  CHECK_FALSE(router.ask("{'find': 'c'}").view()["writeConcernError"].exists());
  const BsonDoc reply = router.ask(insert_one);
  CHECK(reply.view()["n"].to_int64() == 1);
  CHECK(reply.view()["ok"].truthy());
  CHECK(reply.view().find_path("writeConcernError.code").to_int64() == 12345);
  CHECK(router.shards.sent.back().name() == "insert");
  // A failure of the command's own stays.
  router.shards.answer = [](const Sent&) -> std::optional<std::string> {
    return "{'n': 0, 'writeErrors': [{'index': 0, 'code': 11000, 'errmsg': 'dup'}], 'ok': 1.0}";
  };
  const BsonDoc failed = router.ask(insert_one);
  CHECK(failed.view()["writeErrors"].is_array());
  CHECK(failed.view().find_path("writeConcernError.errmsg").as_string() == "hello");
  CHECK_FALSE(router.ask(insert_one).view()["writeConcernError"].exists());
}

TEST_CASE("labels of a write concern's error") {
  FailingRouter router;
  router.plan("{'times': 1}", "{'failCommands': ['insert'], 'writeConcernError': {'code': 91}, "
                              "'errorLabels': ['RetryableWriteError']}");
  CHECK(test::text_of(router.ask(insert_one).view()["errorLabels"].as_document()) == "{ '0' : 'RetryableWriteError' }");
}

TEST_CASE("a planned failure may close the connection, and wait") {
  FailingRouter router;
  router.plan("{'times': 1}", "{'failCommands': ['ping'], 'closeConnection': true}");
  CHECK(router.run("{'ping': 1}") == "closed");
  CHECK(router.code("{'ping': 1}") == 0);
  const auto taken = [&](const char* command, std::int64_t code) {
    const TimePoint begun = Clock::now();
    CHECK(router.code(command) == code);
    return Clock::now() - begun;
  };
  router.plan("'alwaysOn'", "{'failCommands': ['ping'], 'blockConnection': true, 'blockTimeMS': 300}");
  CHECK(taken("{'ping': 1}", 0) == std::chrono::milliseconds(300));
  CHECK(taken("{'ping': 1, 'maxTimeMS': 100}", 50) == std::chrono::milliseconds(100));
  router.plan("'alwaysOn'",
              "{'failCommands': ['ping'], 'blockConnection': true, 'blockTimeMS': 300, 'errorCode': 91}");
  CHECK(taken("{'ping': 1}", 91) == std::chrono::milliseconds(300));
  CHECK(taken("{'waitForFailPoint': 'failCommand', 'timesEntered': 4, 'maxTimeMS': 1000}", 0) == Duration::zero());
  CHECK(taken("{'waitForFailPoint': 'failCommand', 'timesEntered': 5, 'maxTimeMS': 1000}", 50) ==
        std::chrono::seconds(1));
}

}  // namespace
}  // namespace spillway::exec
