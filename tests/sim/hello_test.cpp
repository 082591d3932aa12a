// What the router says of itself and of the shards behind it, in OP_MSG and OP_QUERY.
#include "proxy/wire/op_msg.h"
#include "tests/sim/sim_support.h"
#include "tests/support/op_query_client.h"

namespace spillway::test {

namespace {

// What clients learn of versions: hello's, and buildInfo's.
std::string versions(SimWorld& world, SimClient& client) {
  const BsonDoc hello = call(world, client, R"({"hello": 1, "$db": "admin"})");
  const BsonDoc build = call(world, client, R"({"buildInfo": 1, "$db": "admin"})");
  return fmt::format("{} {}", hello.view()["maxWireVersion"].to_int64().value_or(-1),
                     build.view()["version"].as_string());
}

Task<bool> send_message(Transport* transport, std::vector<std::uint8_t> message) {
  iovec piece{message.data(), message.size()};
  auto writing = write_all(*transport, {&piece, 1});
  co_return co_await writing;
}

// Empty: the connection ended.
Task<std::vector<std::uint8_t>> receive_message(Transport* transport) {
  std::vector<std::uint8_t> message(limits::message_header_bytes);
  auto reading_header = read_exactly(*transport, message);
  const bool begun = co_await reading_header;
  if (!begun) co_return std::vector<std::uint8_t>();
  message.resize(static_cast<std::size_t>(wire::parse_header(message).value().message_length));
  auto reading = read_exactly(*transport, MutableBytes(message).subspan(limits::message_header_bytes));
  const bool whole = co_await reading;
  if (!whole) message.clear();
  co_return message;
}

// A client's end of a new connection.
std::unique_ptr<Transport> dial(SimWorld& world) {
  auto [near, far] = world.network(0).pair();
  world.worker(0).serve(std::move(far), 1'000);
  return std::move(near);
}

struct QueryReply {
  std::int32_t flags = 0;
  BsonDoc document;
};

// Over a connection of its own.
QueryReply query(SimWorld& world, std::string_view collection, std::string_view document) {
  const auto transport = dial(world);
  std::vector<std::uint8_t> message;
  wire::encode_op_query(message, 1, collection, json(document));
  REQUIRE(world.run(send_message(transport.get(), std::move(message))));
  message = world.run(receive_message(transport.get()));
  REQUIRE_FALSE(message.empty());
  transport->close();
  return {load_le<std::int32_t>(message.data() + limits::message_header_bytes),
          BsonDoc(wire::parse_op_reply(message).value())};
}

}  // namespace

TEST_CASE("the versions that clients learn stay as they are while shards are down") {
  SimWorldOptions options = sharded_world(3, 20);
  options.shards[1].max_wire_version = 17;
  SimWorld world(std::move(options));
  auto client = world.client();
  REQUIRE(versions(world, *client) == "17 6.0.0");
  world.shard(1).die();
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "17 6.0.0");
  for (const std::size_t shard : {0U, 2U}) world.shard(shard).die();
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "17 6.0.0");
  CHECK(versions(world, *world.client()) == "17 6.0.0");
  for (std::size_t shard = 0; shard < 3; ++shard) world.shard(shard).restart();
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "17 6.0.0");
}

TEST_CASE("before a shard has answered, clients learn of the oldest version that shards may have") {
  SimWorldOptions options = sharded_world(1, 20);
  options.faults.refuse_percent = 100;
  SimWorld world(std::move(options));
  auto client = world.client();
  CHECK(versions(world, *client) == "8 4.2.0");
  world.set_faults({});
  world.run_for(minutes(1));
  CHECK(versions(world, *client) == "21 7.0.0");
}

TEST_CASE("a legacy find is told that it failed, in a way that is no document") {
  SimWorld world(sharded_world(1, 20));
  for (const char* collection : {"app.users", "admin.$cmd.sys.inprog"}) {
    const QueryReply reply = query(world, collection, R"({"_id": 1})");
    INFO(collection);
    CHECK(reply.flags == (2 | 8));
    CHECK(reply.document.view()["$err"].is_string());
    CHECK(code_of(reply.document) == 352);
    CHECK_FALSE(reply.document.view()["ok"].exists());
  }
  const QueryReply command = query(world, "app.$cmd", R"({"find": "users"})");
  CHECK(command.flags == 8);
  CHECK(command.document.view()["ok"].exists());
  CHECK_FALSE(is_ok(command.document));
  CHECK(code_of(command.document) == 352);
  const QueryReply hello = query(world, "admin.$cmd", R"({"isMaster": 1})");
  CHECK(hello.flags == 8);
  CHECK(is_ok(hello.document));
}

TEST_CASE("a hello that waits keeps no long message, and is counted") {
  SimWorld world(sharded_world(1, 20));
  const auto client = world.client();
  const BsonDoc first = call(world, *client, R"({"hello": 1, "$db": "admin"})");
  const auto wait = [&](std::size_t padding) {
    BsonWriter hello;
    hello.append("hello", std::int32_t{1}).append("topologyVersion", first.view()["topologyVersion"]);
    hello.append("maxAwaitTimeMS", std::int64_t{86'400'000}).append("padding", std::string(padding, 'x'));
    hello.append("$db", "admin");
    return start(world, *client, std::move(hello).finish());
  };
  const auto large = wait(60'000);
  CHECK(world.run_until([&] { return large->done; }, seconds(1)));
  const auto usual = wait(300);
  CHECK_FALSE(world.run_until([&] { return usual->done; }, seconds(1)));
  CHECK(world.shared().memory.requests.usage().used_bytes < 4 * limits::kib);
  const auto& counted = world.shared().metrics.commands[exec::command_named("hello")->index];
  CHECK(counted.total.value() == 3);
  client->close();
  world.run_for(seconds(1));
  require_quiet(world);
}

TEST_CASE("a legacy query with a damaged document within is not passed on") {
  SimWorld world(sharded_world(1, 20));
  const auto transport = dial(world);
  std::vector<std::uint8_t> message;
  wire::encode_op_query(message, 1, "app.$cmd", json(R"({"listCollections": 1, "filter": {"name": "abcdefgh"}})"));
  const std::string_view text(reinterpret_cast<const char*>(message.data()), message.size());
  message[text.find("abcdefgh") - 4] = 200;  // the string's length
  REQUIRE(world.run(send_message(transport.get(), std::move(message))));
  message = world.run(receive_message(transport.get()));
  REQUIRE_FALSE(message.empty());
  CHECK(BsonDoc(wire::parse_op_reply(message).value()).view()["ok"].to_double() == 0.0);
  CHECK(world.shard(0).seen("listCollections") == 0);
  transport->close();
}

TEST_CASE("with apiStrict a hello goes by its new name") {
  SimWorld world(sharded_world(1, 20));
  auto client = world.client();
  CHECK(is_ok(call(world, *client, R"({"hello": 1, "apiVersion": "1", "apiStrict": true, "$db": "admin"})")));
  CHECK(code_of(call(world, *client, R"({"isMaster": 1, "apiVersion": "1", "apiStrict": true, "$db": "admin"})")) ==
        323);
  CHECK(is_ok(call(world, *client, R"({"isMaster": 1, "apiVersion": "1", "$db": "admin"})")));
  CHECK(code_of(call(world, *client, R"({"ping": 1, "apiStrict": true, "$db": "admin"})")) == 4886600);
}

TEST_CASE("a stream of hellos misses no change that comes while one of them is written") {
  SimWorldOptions options = sharded_world(1, 20);
  options.faults.window_bytes = 128;  // no hello fits: it is written as far as it is read
  SimWorld world(std::move(options));
  auto busy = world.client();
  CHECK(is_ok(call(world, *busy, R"({"ping": 1, "$db": "admin"})")));
  const auto transport = dial(world);
  std::vector<std::uint8_t> message;
  wire::begin_op_msg(message, 1, 0, wire::flags::exhaust_allowed);
  wire::append_body(message, json(R"({"hello": 1, "topologyVersion": {"processId": {"$oid": "000000000000000000000000"},
      "counter": {"$numberLong": "0"}}, "maxAwaitTimeMS": 10000, "$db": "admin"})"));
  wire::finish_op_msg(message);
  REQUIRE(world.run(send_message(transport.get(), std::move(message))));
  world.run_for(seconds(11));
  world.shutdown().begin(seconds(15));
  world.run_for(seconds(1));
  const TimePoint told = Clock::now();
  message = world.run(receive_message(transport.get()));
  const auto before = wire::parse_op_msg_reply(message);
  REQUIRE(before.has_value());
  CHECK(is_ok(before->body));
  CHECK(before->has_flag(wire::flags::more_to_come));
  message = world.run(receive_message(transport.get()));
  const auto after = wire::parse_op_msg_reply(message);
  REQUIRE(after.has_value());
  CHECK(code_of(after->body) == 91);
  CHECK_FALSE(after->has_flag(wire::flags::more_to_come));
  CHECK(Clock::now() - told < milliseconds(100));
  transport->close();
}

TEST_CASE("a hello fails as tests want it, of the application that they name") {
  SimWorld world(sharded_world(1, 20));
  world.shared().parameters.test_commands = true;
  auto control = world.client();
  const auto plan = [&](std::string_view mode, std::string_view data) {
    return is_ok(call(world, *control, fmt::format(R"({{"configureFailPoint": "failCommand", "mode": {},
        "data": {{"failCommands": ["hello", "isMaster"], "appName": "mine", {}}}, "$db": "admin"}})", mode, data)));
  };
  const std::string_view mine = R"({"hello": 1, "client": {"application": {"name": "mine"}, "driver": {"name": "d",
      "version": "1"}, "os": {"type": "t"}}, "$db": "admin"})";
  REQUIRE(plan(R"({"times": 1})", R"("errorCode": 91)"));
  CHECK(is_ok(call(world, *control, R"({"hello": 1, "$db": "admin"})")));
  auto client = world.client();
  CHECK(code_of(call(world, *client, mine)) == 91);
  CHECK(is_ok(call(world, *client, R"({"hello": 1, "$db": "admin"})")));

  REQUIRE(plan(R"({"times": 1})", R"("closeConnection": true)"));
  CHECK_FALSE(try_call(world, *client, json(R"({"isMaster": 1, "$db": "admin"})")).has_value());
  client = world.client();
  CHECK(is_ok(call(world, *client, mine)));

  REQUIRE(plan(R"({"times": 1})", R"("blockConnection": true, "blockTimeMS": 700)"));
  const TimePoint asked = Clock::now();
  CHECK(is_ok(call(world, *client, R"({"hello": 1, "$db": "admin"})")));
  CHECK(Clock::now() - asked >= milliseconds(700));

  // In OP_QUERY, too: the application is named by the same hello.
  REQUIRE(plan(R"({"times": 1})", R"("errorCode": 11600)"));
  const std::string_view legacy = R"({"isMaster": 1, "client": {"application": {"name": "mine"}, "driver":
      {"name": "d", "version": "1"}, "os": {"type": "t"}}})";
  CHECK(code_of(query(world, "admin.$cmd", legacy).document) == 11600);
  CHECK(is_ok(query(world, "admin.$cmd", legacy).document));
}

TEST_CASE("a stream of hellos ends with the one that tests make fail") {
  SimWorld world(sharded_world(1, 20));
  world.shared().parameters.test_commands = true;
  auto control = world.client();
  const BsonDoc now = call(world, *control, R"({"hello": 1, "$db": "admin"})");
  const auto transport = dial(world);
  std::vector<std::uint8_t> message;
  wire::begin_op_msg(message, 1, 0, wire::flags::exhaust_allowed);
  BsonWriter hello;
  hello.append("hello", 1).append("topologyVersion", now.view()["topologyVersion"]);
  hello.append("maxAwaitTimeMS", 10'000).append("$db", "admin");
  wire::append_body(message, std::move(hello).finish());
  wire::finish_op_msg(message);
  REQUIRE(world.run(send_message(transport.get(), std::move(message))));
  world.run_for(seconds(1));
  REQUIRE(is_ok(call(world, *control, R"({"configureFailPoint": "failCommand", "mode": {"times": 1},
      "data": {"failCommands": ["hello"], "errorCode": 91}, "$db": "admin"})")));
  const auto next = [&] {
    message = world.run(receive_message(transport.get()));
    REQUIRE_FALSE(message.empty());
    return wire::parse_op_msg_reply(message).value();
  };
  const auto awaited = next();
  CHECK(is_ok(awaited.body));
  CHECK(awaited.has_flag(wire::flags::more_to_come));
  const auto failed = next();
  CHECK(code_of(failed.body) == 91);
  CHECK_FALSE(failed.has_flag(wire::flags::more_to_come));
  transport->close();
}

TEST_CASE("a shutdown ends what tests have made wait") {
  SimWorld world(sharded_world(1, 20));
  world.shared().parameters.test_commands = true;
  auto client = world.client();
  REQUIRE(is_ok(call(world, *client, R"({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data":
      {"failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 1000000000}, "$db": "admin"})")));
  REQUIRE(world.run(client->send(json(R"({"ping": 1, "$db": "admin"})"))));
  world.run_for(seconds(1));
  world.shutdown().begin(Duration::zero());
  const auto reply = world.run(client->receive());
  REQUIRE(reply.has_value());
  CHECK(code_of(*reply) == 11600);
}

}  // namespace spillway::test
