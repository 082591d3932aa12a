// Which commands are traced, and what is kept of them.
#include "proxy/exec/core/tracer.h"

#include <fmt/format.h>

#include <random>

#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "tests/unit/exec/write_router.h"

namespace spillway::exec {
namespace {

using test::Router;
using test::Sent;
using test::split_at;

constexpr const char* parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr const char* unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

// A router whose traced commands are kept.
struct Traced : Router {
  explicit Traced(std::vector<std::string> bounds = {"{'a': 10}"}) : Router(split_at("{'a': 1}", bounds)) {
    shared().memory.traces.set_limit(1 << 20);
    shared().tracer = std::make_unique<Tracer>(shared().memory.traces, shared().metrics, [this](auto command) {
      if (full) return false;
      commands.push_back(std::move(command));
      return true;
    });
    shards.answer = [](const Sent& sent) -> std::optional<std::string> {
      if (sent.name() == "find") return "{'cursor': {'firstBatch': [{'a': 1}], 'id': 0, 'ns': 'db.c'}, 'ok': 1.0}";
      return "{'n': 1, 'ok': 1.0}";
    };
  }
  const TracedCommand& only() {
    REQUIRE(commands.size() == 1);
    return *commands.front();
  }
  std::vector<std::unique_ptr<TracedCommand>> commands;
  bool full = false;
};

std::string with_comment(const std::string& comment) {
  return "{'find': 'c', 'filter': {'a': 1}, 'comment': " + comment + "}";
}

TEST_CASE("a traceparent is read as the specification has it") {
  const auto read = parse_traceparent(parent);
  REQUIRE(read);
  CHECK(read->sampled);
  CHECK(read->trace_id.front() == 0x0a);
  CHECK(read->trace_id.back() == 0x9c);
  CHECK(read->span_id.front() == 0xb7);
  CHECK(read->span_id.back() == 0x31);
  REQUIRE(parse_traceparent(unsampled));
  CHECK_FALSE(parse_traceparent(unsampled)->sampled);
  const std::string ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
  const std::pair<std::string, bool> forms[] = {
      {"00-" + ids + "-ff", true},   // flags of the future
      {"00-" + ids + "-03", true},
      {"01-" + ids + "-01", true},   // a later version …
      {"cc-" + ids + "-01-what-the-future-brings", true},
      {"cc-" + ids + "-01.what", false},  // … goes on after a dash
      {"00-" + ids + "-01-more", false},
      {"00-" + ids + "-01 ", false},
      {" 00-" + ids + "-01", false},
      {"ff-" + ids + "-01", false},
      {"0-" + ids + "-01", false},
      {"00-" + ids + "-1", false},
      {"00-" + ids + "-0g", false},
      {"0x-" + ids + "-01", false},
      {"00_" + ids + "-01", false},
      {"00-" + ids + "_01", false},
      {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false},
      {"00-00000000000000000000000000000000-b7ad6b7169203331-01", false},
      {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false},
      {"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", false},
      {"", false},
      {"00", false},
      {std::string(55, '-'), false},
      {std::string(55, '0'), false},
      {std::string(10'000, 'a'), false},
  };
  for (const auto& [text, good] : forms) {
    CAPTURE(text);
    CHECK(parse_traceparent(text).has_value() == good);
  }
}

TEST_CASE("a traceparent with any byte changed is another one or none") {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = parent;
    const std::size_t at = random() % text.size();
    text[at] = static_cast<char>(random());
    if (random() % 4 == 0) text.resize(random() % 60, '0');
    const auto read = parse_traceparent(text);
    CAPTURE(i, text);
    if (read) CHECK(text.find_first_not_of("0123456789abcdef-") == std::string::npos);
    if (text.size() < 55) CHECK_FALSE(read);
  }
}

TEST_CASE("a command brings its traceparent in one of several forms") {
  const std::string text = parent;
  const std::pair<std::string, bool> forms[] = {
      {"'" + text + "'", true},
      {"{'traceparent': '" + text + "'}", true},
      {"{'who': 'me', 'traceparent': '" + text + "'}", true},
      {R"('{\"traceparent\": \")" + text + R"(\"}')", true},
      {"'app=1,traceparent=" + text + ",more=2'", true},
      {"'traceparent: " + text + "'", true},
      {"'" + std::string(unsampled) + "'", false},
      {"'a comment'", false},
      {"'traceparent'", false},
      {"'traceparent='", false},
      {"'" + std::string(2'000, 'x') + "traceparent=" + text + "'", false},
      {"{'traceparent': 5}", false},
      {"{'traceparent': {}}", false},
      {"{'traceparent': '" + text + "-x'}", false},
      {"7", false},
      {"['" + text + "']", false},
      {"null", false},
  };
  for (const auto& [comment, traced] : forms) {
    CAPTURE(comment);
    Traced router;
    const std::string reply = router.run(with_comment(comment));
    CHECK(reply.find("'ok' : 1.0") != std::string::npos);
    CHECK(router.commands.size() == (traced ? 1 : 0));
    CHECK(router.shards.sent.back().command.view()["comment"].exists());
  }
}

TEST_CASE("$traceCtx names the parent span, goes before the comment, and does not reach shards") {
  const std::string context = fmt::format("'$traceCtx': {{'traceparent': '{}', 'tracestate': 'a=b'}}", parent);
  const std::string other = "00-11111111111111111111111111111111-2222222222222222-01";
  Traced router;
  router.run("{'find': 'c', 'filter': {'a': 1}, 'comment': '" + other + "', " + context + "}");
  CHECK(router.only().parent.trace_id.front() == 0x0a);
  CHECK_FALSE(router.shards.sent.back().command.view()["$traceCtx"].exists());
  // What it should not be is no error.
  for (const char* wrong : {"{}", "5", "'text'", "{'traceparent': 1}", "{'traceparent': 'nonsense'}"}) {
    router.commands.clear();
    CAPTURE(wrong);
    const std::string reply =
        router.run("{'find': 'c', 'filter': {'a': 1}, '$traceCtx': " + std::string(wrong) + "}");
    CHECK(reply.find("'ok' : 1.0") != std::string::npos);
    CHECK(router.commands.empty());
  }
}

TEST_CASE("a traced command tells names, times, sizes and its calls") {
  Traced router;
  router.client().local = "10.0.0.7:27017";
  router.taken = std::chrono::microseconds(420);
  const std::string reply = router.run("{'find': 'c', 'filter': {'ssn': '078-05-1120'}, 'comment': '" +
                                       std::string(parent) + "'}");
  const TracedCommand& traced = router.only();
  CHECK(traced.name == "find");
  CHECK(traced.db == "db");
  CHECK(traced.collection == "c");
  CHECK(traced.server == "10.0.0.7:27017");
  CHECK(traced.error == 0);
  CHECK(traced.inside == std::chrono::microseconds(420));
  CHECK(traced.reply_bytes == test::doc(reply).size() + 4);  // the cursor's id is a long, which JSON does not show
  CHECK(traced.ended >= traced.began);
  CHECK(traced.began_wall_ns > 1'700'000'000'000'000'000);
  REQUIRE(traced.calls.calls().size() == 2);
  CHECK(traced.calls.calls()[0].shard == "s0");
  CHECK(traced.calls.calls()[0].command == "find");
  CHECK(traced.calls.calls()[1].shard == "s1");
  CHECK(traced.spans() == 3);
}

TEST_CASE("commands without a collection name none, and no user's name stands in its place") {
  const std::tuple<std::string, std::string, std::string> commands[] = {
      {"'ping': 1", "db", ""},
      {"'dropUser': 'ann'", "db", ""},
      {"'insert': 'c', 'documents': [{'a': 5}]", "db", "c"},
      {"'aggregate': 1, 'pipeline': [], 'cursor': {}", "db", ""},
      {"'getMore': {'$numberLong': '5'}, 'collection': 'd'", "db", "d"},
      {"'killCursors': 'd', 'cursors': []", "db", "d"},
      {"'explain': {'find': 'e'}", "db", "e"},
      {"'noSuchCommand': 'f'", "db", ""},
  };
  for (const auto& [command, db, collection] : commands) {
    CAPTURE(command);
    Traced router;
    router.run(fmt::format("{{{}, 'comment': '{}'}}", command, parent));
    CHECK(router.only().db == db);
    CHECK(router.only().collection == collection);
  }
  Traced router;
  router.run(fmt::format("{{'renameCollection': 'x.y', 'to': 'x.z', 'comment': '{}'}}", parent));
  CHECK(router.only().db == "x");
  CHECK(router.only().collection == "y");
}

TEST_CASE("a traced command that fails has its code, from a shard, the router or a refusal") {
  const std::string comment = fmt::format(", 'comment': '{}'}}", parent);
  {
    Traced router;
    router.shards.answer = [](const Sent&) {
      return "{'ok': 0.0, 'code': 11000, 'codeName': 'DuplicateKey', 'errmsg': 'E11000 { ssn: 1 }'}";
    };
    router.run("{'find': 'c', 'filter': {'a': 1}" + comment);
    CHECK(router.only().error == 11000);
  }
  {
    Traced router;
    router.run("{'find': 'c', 'filter': 5" + comment);
    CHECK(router.only().error == 14);
    CHECK(router.only().calls.calls().empty());
  }
  Traced router;
  router.run("{'noSuchCommand': 1" + comment);
  CHECK(router.only().error == 59);
}

TEST_CASE("spans have a bound a second, and what is beyond it is counted") {
  Traced router;
  const auto most = static_cast<std::size_t>(Tracer::spans_per_second_max);
  const std::string command = with_comment(fmt::format("'{}'", parent));
  std::size_t spans = 0;
  for (std::size_t i = 0; i < most; ++i) {
    router.run(command);
    for (const auto& traced : router.commands) spans += traced->spans();
    router.commands.clear();
  }
  CHECK(spans == most);
  const std::uint64_t dropped = router.shared().metrics.spans_dropped.value();
  CHECK(dropped > 0);
  spillway::test::advance_time(std::chrono::seconds(1));
  router.run(command);
  CHECK(router.only().spans() == 2);
  CHECK(router.shared().metrics.spans_dropped.value() == dropped);
}

TEST_CASE("traced commands take no more memory than their budget has") {
  Traced router;
  const std::string command = with_comment(fmt::format("'{}'", parent));
  std::size_t spans = 0, ran = 0;
  for (; router.shared().metrics.spans_dropped.value() == 0; ++ran) {
    REQUIRE(ran < 1'000);
    router.run(command);
  }
  for (const auto& traced : router.commands) spans += traced->spans();
  CHECK(spans > 500);
  const BudgetUsage usage = router.shared().memory.traces.usage();
  CHECK(usage.used_bytes <= usage.limit_bytes);
  CHECK(usage.refusals > 0);
  router.commands.clear();
  CHECK(router.shared().memory.traces.usage().used_bytes == 0);
}

TEST_CASE("what the queue has no room for is counted") {
  Traced router;
  router.full = true;
  router.run(with_comment(fmt::format("'{}'", parent)));
  CHECK(router.shared().metrics.spans_dropped.value() == 2);
  CHECK(router.shared().memory.traces.usage().used_bytes == 0);
}

}  // namespace
}  // namespace spillway::exec
