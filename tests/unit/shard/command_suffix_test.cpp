// Elements that a router appends to a client's command, and the times that a shard's reply names.
#include <catch2/catch.hpp>

#include "allocator/limits.h"
#include "proxy/shard/reply_verdict.h"
#include "proxy/wire/op_msg.h"
#include "tests/unit/shard/shard_support.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {

using Message = std::vector<std::uint8_t>;

constexpr std::size_t before_sections = 20;

void append_sequence(Message& message, std::string_view name, const std::vector<BsonDoc>& documents) {
  message.push_back(1);
  const std::size_t start = message.size();
  message.resize(start + 4);
  message.insert(message.end(), name.begin(), name.end());
  message.push_back(0);
  for (const BsonDoc& each : documents) {
    message.insert(message.end(), each.view().data(), each.view().data() + each.size());
  }
  store_le(message.data() + start, static_cast<std::int32_t>(message.size() - start));
}

enum class Order { body_only, body_first, body_last, body_between };

// A whole message with this body, and what it has otherwise.
Message message_of(Order order, DocView body, std::int32_t request_id = 7) {
  const std::vector<BsonDoc> documents{json(R"({"_id": 1})"), json(R"({"_id": 2, "x": "yz"})")};
  Message message;
  wire::begin_op_msg(message, request_id, 0, 0);
  if (order == Order::body_last || order == Order::body_between) append_sequence(message, "documents", documents);
  wire::append_body(message, body);
  if (order == Order::body_first) append_sequence(message, "documents", documents);
  if (order == Order::body_between) append_sequence(message, "more", documents);
  wire::finish_op_msg(message);
  return message;
}

// The sections of a message in pieces that end at these places.
Command in_pieces(const Message& message, std::initializer_list<std::size_t> ends) {
  Command command;
  std::size_t from = before_sections;
  for (const std::size_t end : ends) {
    command.sections[command.section_count++] = {const_cast<std::uint8_t*>(message.data()) + from, end - from};
    from = end;
  }
  command.sections[command.section_count++] = {const_cast<std::uint8_t*>(message.data()) + from, message.size() - from};
  return command;
}

Message as_sent(const Command& command) {
  OutgoingMessage outgoing;
  Message sent;
  for (const iovec& piece : outgoing.lay_out(command, 7)) {
    const auto* bytes = static_cast<const std::uint8_t*>(piece.iov_base);
    sent.insert(sent.end(), bytes, bytes + piece.iov_len);
  }
  return sent;
}

const BsonDoc body = json(R"({"insert": "c", "ordered": true, "$db": "d"})");
const BsonDoc suffix = json(R"({"shardVersion": [1, 2], "databaseVersion": {"lastMod": 1}})");
const BsonDoc whole =
    json(R"({"insert": "c", "ordered": true, "$db": "d", "shardVersion": [1, 2], "databaseVersion": {"lastMod": 1}})");

}  // namespace

TEST_CASE("a suffix ends the body, wherever that stands and however the message is cut") {
  const Order order = GENERATE(Order::body_only, Order::body_first, Order::body_last, Order::body_between);
  const Message plain = message_of(order, body), expected = message_of(order, whole);
  const auto check = [&](Command command) {
    if (as_sent(command) != plain) FAIL("without a suffix the message is another one");
    const std::size_t bytes = command.bytes();
    command.suffix = elements_of(suffix);
    if (as_sent(command) != expected) FAIL("the suffix stands elsewhere");
    if (command.bytes() != bytes + suffix.size() - 5) FAIL("the suffix is not counted");
  };
  check(in_pieces(plain, {}));
  for (std::size_t one = before_sections; one <= plain.size(); ++one) {
    check(in_pieces(plain, {one}));
    for (std::size_t two = one; two <= plain.size(); ++two) check(in_pieces(plain, {one, two}));
  }
  check(in_pieces(plain, {before_sections + 1, before_sections + 4, before_sections + 6}));
  check(in_pieces(plain, {plain.size() - 3, plain.size() - 2, plain.size() - 1}));
}

TEST_CASE("the pieces that commands are made of take a suffix") {
  Command command = Command::of_body(body);
  command.suffix = elements_of(suffix);
  CHECK(as_sent(command) == message_of(Order::body_only, whole));
  const Message plain = message_of(Order::body_first, body);
  command = Command::of_sections(Bytes(plain).subspan(before_sections));
  command.suffix = elements_of(suffix);
  CHECK(as_sent(command) == message_of(Order::body_first, whole));
  CHECK(elements_of(DocView()).empty());
}

TEST_CASE("sections without a body, or damaged ones, have no place for a suffix") {
  Message message;
  wire::begin_op_msg(message, 7, 0, 0);
  append_sequence(message, "documents", {json(R"({"_id": 1})")});
  CHECK_FALSE(Command::of_sections(Bytes(message).subspan(before_sections)).find_body());
  CHECK_FALSE(Command().find_body());
  const Message plain = message_of(Order::body_first, body);
  CHECK(Command::of_sections(Bytes(plain).subspan(before_sections)).find_body()->size == body.size());
  CHECK_FALSE(Command::of_sections(Bytes(plain).subspan(before_sections, body.size())).find_body());
  Message other_kind = plain;
  other_kind[before_sections] = 2;
  CHECK_FALSE(Command::of_sections(Bytes(other_kind).subspan(before_sections)).find_body());
  Message negative = plain;
  store_le(negative.data() + before_sections + 1, std::int32_t{-1});
  CHECK_FALSE(Command::of_sections(Bytes(negative).subspan(before_sections)).find_body());
}

TEST_CASE("a suffix arrives once with each attempt, in whatever pieces the network takes it") {
  const std::size_t piece = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{7});
  FaultOptions faults;
  faults.read_bytes_max = faults.write_bytes_max = piece;
  World world(faults);
  ScriptedServer server(world.loop, world.network, "a", 1);
  std::vector<BsonDoc> seen;
  server.answer = [&](DocView command) {
    seen.emplace_back(command);
    return json(server.commands < 3 ? R"({"ok": 0, "code": 262, "errmsg": "x"})" : R"({"ok": 1})");
  };
  world.connect("mongodb://a:1/");
  const Message plain = message_of(Order::body_last, body);
  Command command = Command::of_sections(Bytes(plain).subspan(before_sections));
  command.suffix = elements_of(suffix);
  CallOptions options;
  options.retry = RetryPolicy::idempotent;
  const auto call = world.start(command, options);
  REQUIRE(world.run_until([&] { return call->done(); }, 1min));
  CHECK(call->ok());
  REQUIRE(seen.size() == 3);
  for (const BsonDoc& each : seen) CHECK(to_json(each) == to_json(whole));
  CHECK(Bytes(server.last_command).size() == message_of(Order::body_last, whole).size());
}

TEST_CASE("a compressed command has its suffix") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  server.compression = {"zlib"};
  GatewayOptions options;
  options.compressors = "zlib";
  world.connect("mongodb://a:1/", options);
  BsonWriter writer;
  writer.append("insert", "c").append("text", std::string_view(std::string(2000, 'x')));
  const BsonDoc long_body = std::move(writer).finish();
  const Message plain = message_of(Order::body_first, long_body);
  Command command = Command::of_sections(Bytes(plain).subspan(before_sections));
  command.suffix = elements_of(suffix);
  const auto call = world.start(command, {});
  REQUIRE(world.run_until([&] { return call->done(); }, 1min));
  REQUIRE(call->ok());
  CHECK(server.compressed_messages == 1);
  const auto request = wire::parse_op_msg(server.last_command);
  REQUIRE(request.has_value());
  CHECK(request->body["text"].as_string().size() == 2000);
  CHECK(to_json(request->body["databaseVersion"]) == to_json(suffix.view()["databaseVersion"]));
  REQUIRE(request->sequences.size() == 1);
  CHECK(request->sequences[0].count == 2);
}

TEST_CASE("a command that its suffix makes too long is refused before it is sent") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/");
  const auto ended = [&](const Command& command) {
    const auto call = world.start(command, {});
    REQUIRE(world.run_until([&] { return call->done(); }, 1min));
    return call;
  };
  const auto body_of = [](std::size_t bytes) {
    BsonWriter writer;
    writer.append("insert", "c").append("x", std::string_view(std::string(bytes - 5 - 14 - 8, 'x')));
    BsonDoc made = std::move(writer).finish();
    REQUIRE(made.size() == bytes);
    return made;
  };
  SECTION("a body") {
    const std::size_t room = limits::internal_document_bytes_max - elements_of(suffix).size();
    for (const std::size_t bytes : {room, room + 1}) {
      const BsonDoc large = body_of(bytes);
      Command command = Command::of_body(large);
      command.suffix = elements_of(suffix);
      const auto call = ended(command);
      CHECK(call->code() == (bytes == room ? 0 : 10334));
      if (bytes > room) CHECK(call->message().find("no room for the") != std::string::npos);
    }
    CHECK(server.commands == 1);
  }
  SECTION("a message") {
    Message message;
    wire::begin_op_msg(message, 7, 0, 0);
    wire::append_body(message, body);
    const BsonDoc large = body_of(limits::document_bytes_max);
    const std::size_t head = message.size() + 1 + 4 + sizeof "documents";
    append_sequence(message, "documents", {large, large, body_of(limits::message_bytes_max - head - 2 * large.size())});
    REQUIRE(message.size() == limits::message_bytes_max);
    Command command = Command::of_sections(Bytes(message).subspan(before_sections));
    CHECK(ended(command)->ok());
    command.suffix = elements_of(suffix);
    CHECK(ended(command)->code() == 10334);
    CHECK(server.commands == 1);
  }
  SECTION("and one without a body") {
    Message message;
    append_sequence(message, "documents", {json(R"({"_id": 1})")});
    Command command = Command::of_sections(message);
    command.suffix = elements_of(suffix);
    CHECK(ended(command)->code() == 1);
    CHECK(server.commands == 0);
  }
  CHECK(world.gateway->states()[0].hosts[0].in_use == 0);
}

// --- replies

TEST_CASE("a reply tells its times") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/");
  const auto answered = [&](std::string_view reply) {
    const BsonDoc answer = json(reply);
    server.answer = [&](DocView) { return answer; };
    return world.call(ping);
  };
  SECTION("whether it went well or not") {
    const char* const reply = GENERATE(
        R"({"n": 1, "ok": 1, "$clusterTime": {"clusterTime": {"$timestamp": {"t": 5, "i": 6}}},
            "operationTime": {"$timestamp": {"t": 3, "i": 4}}})",
        R"({"operationTime": {"$timestamp": {"t": 3, "i": 4}}, "ok": 0, "code": 13388, "errmsg": "x",
            "$clusterTime": {"clusterTime": {"$timestamp": {"t": 5, "i": 6}}}})",
        R"({"n": 0, "writeConcernError": {"code": 11602, "errmsg": "longer when relabelled"}, "ok": 1,
            "$clusterTime": {"clusterTime": {"$timestamp": {"t": 5, "i": 6}}},
            "operationTime": {"$timestamp": {"t": 3, "i": 4}}})");
    const auto call = answered(reply);
    REQUIRE(call->ok());
    const Reply& got = **call->result;
    REQUIRE(got.operation_time().type == BsonType::timestamp);
    CHECK(load_le<std::uint32_t>(got.operation_time().bytes.data() + 4) == 3);
    CHECK(load_le<std::uint32_t>(got.operation_time().bytes.data()) == 4);
    CHECK(to_json(got.cluster_time()) == to_json(got.body()["$clusterTime"].as_document()));
    CHECK(got.cluster_time()["clusterTime"].type == BsonType::timestamp);
  }
  SECTION("if it has any") {
    const char* const reply = GENERATE(R"({"ok": 1})", R"({"ok": 1, "operationTime": 5, "$clusterTime": 6})",
                                       R"({"ok": 1, "operationTimes": {"$timestamp": {"t": 3, "i": 4}}})");
    const auto call = answered(reply);
    REQUIRE(call->ok());
    CHECK_FALSE((*call->result)->operation_time().exists());
    CHECK((*call->result)->cluster_time().empty());
  }
  SECTION("if it does not stream") {
    BsonWriter writer;
    writer.append_timestamp("operationTime", 5);
    writer.append("text", std::string_view(std::string(1'000'000, 'x'))).append("ok", 1.0);
    const BsonDoc large = std::move(writer).finish();
    server.answer = [&](DocView) { return large; };
    for (const bool stream : {false, true}) {
      CallOptions options;
      options.stream = stream;
      const auto call = world.call(ping, options);
      REQUIRE(call->ok());
      CHECK((*call->result)->streaming() == stream);
      CHECK((*call->result)->operation_time().exists() == !stream);
    }
  }
}

TEST_CASE("a shard's word on a stale table goes to the caller as it is, once") {
  World world;
  ScriptedServer server(world.loop, world.network, "a", 1);
  world.connect("mongodb://a:1/");
  const int code = GENERATE(13388, 63, 150, 249, 343, 227, 169);
  const bool written = GENERATE(false, true);
  const std::string number = std::to_string(code);
  const BsonDoc answer =
      json(written ? R"({"n": 0, "writeErrors": [{"index": 0, "code": )" + number + R"(, "errmsg": "x"}], "ok": 1})"
                   : R"({"ok": 0, "code": )" + number + R"(, "errmsg": "x", "ns": "d.c"})");
  server.answer = [&](DocView) { return answer; };
  for (const RetryPolicy policy : {RetryPolicy::none, RetryPolicy::not_idempotent, RetryPolicy::idempotent}) {
    CallOptions options;
    options.retry = policy;
    const int before = server.commands;
    const auto call = world.call(ping, options);
    REQUIRE(call->ok());
    CHECK(to_json((*call->result)->body()) == to_json(answer));
    CHECK(server.commands == before + 1);
  }
}
