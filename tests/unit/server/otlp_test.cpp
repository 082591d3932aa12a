// Spans as a collector reads them: the names of the protocol (opentelemetry/proto/trace/v1) and of the conventions.
#include "proxy/server/traces/otlp.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "cursor/bson_writer.h"

namespace spillway::server {
namespace {

using Commands = std::vector<std::unique_ptr<exec::TracedCommand>>;

const TimePoint began(std::chrono::seconds(1'000));

std::unique_ptr<exec::TracedCommand> traced(MemoryBudget& budget) {
  auto command = std::make_unique<exec::TracedCommand>(*budget.try_reserve(1));
  command->parent = *exec::parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  command->name = "find";
  command->db = "app";
  command->collection = "users";
  command->server = "[::1]:27017";
  command->began = began;
  command->ended = began + std::chrono::microseconds(1'500);
  command->began_wall_ns = 1'700'000'000'123'456'789;
  command->inside = std::chrono::microseconds(210);
  command->reply_bytes = 4'242;
  return command;
}

shard::TracedCall call_to(const char* shard, std::uint8_t attempt, std::int32_t error) {
  return {.shard = shard,
          .command = "find",
          .host = {"db1.example.net", 27018},
          .attempt = attempt,
          .error = error,
          .began = began + std::chrono::microseconds(100),
          .ended = began + std::chrono::microseconds(900)};
}

BsonDoc decoded(const std::string& text) {
  INFO(text);
  auto document = BsonDoc::from_json(text);
  REQUIRE(document.has_value());
  return *std::move(document);
}

DocView only(ValueView array) {
  REQUIRE(array.is_array());
  return array.as_document().first().as_document();
}

std::vector<DocView> spans_of(DocView request) {
  const DocView resource = only(request["resourceSpans"]);
  std::vector<DocView> spans;
  for (const Element& span : only(resource["scopeSpans"])["spans"].as_document()) spans.push_back(span.as_document());
  return spans;
}

// Each value as its type and text.
std::map<std::string, std::string> attributes_of(DocView of) {
  std::map<std::string, std::string> found;
  for (const Element& each : of["attributes"].as_document()) {
    const DocView attribute = each.as_document();
    const Element value = attribute["value"].as_document().first();
    std::string& text = found[std::string(attribute["key"].as_string())];
    CHECK(text.empty());
    text = std::string(value.name) + " " + (value.is_string() ? std::string(value.as_string()) : to_json(value));
  }
  return found;
}

struct Sent {
  explicit Sent(Commands commands) {
    SpanIds ids(7);
    text = otlp_request({"0.1.0", "router:27017"}, commands, ids);
    document = decoded(text);
    spans = spans_of(document.view());
  }
  std::string text;
  BsonDoc document;
  std::vector<DocView> spans;
};

Commands one(std::unique_ptr<exec::TracedCommand> command) {
  Commands commands;
  commands.push_back(std::move(command));
  return commands;
}

}  // namespace

TEST_CASE("a command is a span of kind server below the client's, a call one of kind client below it", "[otlp]") {
  MemoryBudget budget("traces", 0);
  auto command = traced(budget);
  command->calls.add(call_to("shard0", 1, 0));
  const Sent sent(one(std::move(command)));
  REQUIRE(sent.spans.size() == 2);
  const DocView server = sent.spans[0], client = sent.spans[1];
  for (const DocView span : sent.spans) {
    CHECK(span["traceId"].as_string() == "0af7651916cd43dd8448eb211c80319c");
    CHECK(span["spanId"].as_string().size() == 16);
    CHECK(span["name"].as_string() == "find app.users");
    CHECK_FALSE(span["status"].exists());
  }
  CHECK(server["parentSpanId"].as_string() == "b7ad6b7169203331");
  CHECK(client["parentSpanId"].as_string() == server["spanId"].as_string());
  CHECK(client["spanId"].as_string() != server["spanId"].as_string());
  CHECK(server["kind"].as_int32() == 2);
  CHECK(client["kind"].as_int32() == 3);
  CHECK(server["flags"].as_int32() == 0x301);
  CHECK(client["flags"].as_int32() == 0x101);
  // 64-bit numbers are text.
  CHECK(server["startTimeUnixNano"].as_string() == "1700000000123456789");
  CHECK(server["endTimeUnixNano"].as_string() == "1700000000124956789");
  CHECK(client["startTimeUnixNano"].as_string() == "1700000000123556789");
  CHECK(client["endTimeUnixNano"].as_string() == "1700000000124356789");
}

TEST_CASE("attributes have the names of the conventions for databases, and no values of documents", "[otlp]") {
  MemoryBudget budget("traces", 0);
  auto command = traced(budget);
  command->calls.add(call_to("shard1", 1, 6));
  command->calls.add(call_to("shard1", 2, 0));
  command->calls.add(call_to("shard0", 1, 0));
  const Sent sent(one(std::move(command)));
  CHECK(attributes_of(sent.spans[0]) ==
        std::map<std::string, std::string>{
            {"db.system.name", "stringValue mongodb"},
            {"db.operation.name", "stringValue find"},
            {"db.namespace", "stringValue app"},
            {"db.collection.name", "stringValue users"},
            {"server.address", "stringValue ::1"},
            {"server.port", "intValue 27017"},
            {"spillway.shards",
             R"(arrayValue { "values" : [ { "stringValue" : "shard1" }, { "stringValue" : "shard0" } ] })"},
            {"spillway.inside_us", "intValue 210"},
            {"spillway.reply_bytes", "intValue 4242"}});
  CHECK(attributes_of(sent.spans[1]) ==
        std::map<std::string, std::string>{{"db.system.name", "stringValue mongodb"},
                                           {"db.operation.name", "stringValue find"},
                                           {"db.namespace", "stringValue app"},
                                           {"db.collection.name", "stringValue users"},
                                           {"server.address", "stringValue db1.example.net"},
                                           {"server.port", "intValue 27018"},
                                           {"db.response.status_code", "stringValue 6"},
                                           {"error.type", "stringValue 6"},
                                           {"spillway.shard", "stringValue shard1"},
                                           {"spillway.attempt", "intValue 1"}});
  CHECK(attributes_of(sent.spans[2])["spillway.attempt"] == "intValue 2");
  const DocView resource = only(sent.document.view()["resourceSpans"])["resource"].as_document();
  CHECK(attributes_of(resource) == std::map<std::string, std::string>{{"service.name", "stringValue spillway"},
                                                                      {"service.version", "stringValue 0.1.0"},
                                                                      {"service.instance.id",
                                                                       "stringValue router:27017"}});
}

TEST_CASE("a failure is a status with the name of its code", "[otlp]") {
  MemoryBudget budget("traces", 0);
  auto command = traced(budget);
  command->error = 11'000;
  const Sent sent(one(std::move(command)));
  const DocView status = sent.spans[0]["status"].as_document();
  CHECK(status["code"].as_int32() == 2);
  CHECK(status["message"].as_string() == "DuplicateKey");
  CHECK(attributes_of(sent.spans[0])["db.response.status_code"] == "stringValue 11000");
}

TEST_CASE("a command without a collection is named by its database, a call without a host has none", "[otlp]") {
  MemoryBudget budget("traces", 0);
  auto command = traced(budget);
  command->collection.clear();
  command->inside.reset();
  auto call = call_to("shard0", 1, 133);
  call.host = {};
  command->calls.add(std::move(call));
  const Sent sent(one(std::move(command)));
  CHECK(sent.spans[0]["name"].as_string() == "find app");
  CHECK_FALSE(attributes_of(sent.spans[0]).contains("db.collection.name"));
  CHECK_FALSE(attributes_of(sent.spans[0]).contains("spillway.inside_us"));
  CHECK_FALSE(attributes_of(sent.spans[1]).contains("server.address"));
}

TEST_CASE("any name becomes JSON within the bytes reserved for a span", "[otlp]") {
  MemoryBudget budget("traces", 0);
  Commands commands;
  std::size_t spans = 0;
  for (int i = 0; i < 512; ++i) {
    auto command = traced(budget);
    command->name = std::string(64, '"');
    command->db = std::string(63, '\\');
    command->collection = std::string(255, '"');
    command->error = 11'000;
    auto call = call_to("s", 1, 11'000);
    call.command = std::string(64, '"');
    command->calls.add(std::move(call));
    spans += command->spans();
    commands.push_back(std::move(command));
  }
  const Sent sent(std::move(commands));
  CHECK(sent.spans.size() == spans);
  CHECK(sent.text.size() < spans * otlp_span_bytes_max);
  std::set<std::string> ids;
  for (const DocView span : sent.spans) ids.emplace(span["spanId"].as_string());
  CHECK(ids.size() == spans);
}

TEST_CASE("a collector's partial success is read in both encodings of a number", "[otlp]") {
  CHECK(rejected_spans("") == 0);
  CHECK(rejected_spans("{}") == 0);
  CHECK(rejected_spans(R"({"partialSuccess":{}})") == 0);
  CHECK(rejected_spans(R"({"partialSuccess":{"rejectedSpans":"17","errorMessage":"no"}})") == 17);
  CHECK(rejected_spans(R"({ "partialSuccess" : { "rejectedSpans" : 3 } })") == 3);
  CHECK(rejected_spans(R"({"rejectedSpans")") == 0);
  CHECK(rejected_spans(R"({"rejectedSpans":"x"})") == 0);
}

}  // namespace spillway::server
