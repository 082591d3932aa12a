// What the router says of itself and of the shards behind it, in OP_MSG and OP_QUERY.
#include "proxy/wire/op_query.h"
#include "tests/sim/sim_support.h"

namespace spillway::test {

namespace {

// What clients learn of versions: hello's, and buildInfo's.
std::string versions(SimWorld& world, SimClient& client) {
  const BsonDoc hello = call(world, client, R"({"hello": 1, "$db": "admin"})");
  const BsonDoc build = call(world, client, R"({"buildInfo": 1, "$db": "admin"})");
  return fmt::format("{} {}", hello.view()["maxWireVersion"].to_int64().value_or(-1),
                     build.view()["version"].as_string());
}

struct QueryReply {
  std::int32_t flags = 0;
  BsonDoc document;
};

Task<QueryReply> send_query(Transport* transport, std::vector<std::uint8_t> query) {
  iovec piece{query.data(), query.size()};
  auto writing = write_all(*transport, {&piece, 1});
  SPILLWAY_CHECK(co_await writing);
  std::vector<std::uint8_t> message(limits::message_header_bytes);
  auto reading_header = read_exactly(*transport, message);
  SPILLWAY_CHECK(co_await reading_header);
  message.resize(static_cast<std::size_t>(wire::parse_header(message).value().message_length));
  auto reading = read_exactly(*transport, MutableBytes(message).subspan(limits::message_header_bytes));
  SPILLWAY_CHECK(co_await reading);
  QueryReply reply;
  reply.flags = load_le<std::int32_t>(message.data() + limits::message_header_bytes);
  reply.document = BsonDoc(wire::parse_op_reply(message).value());
  co_return reply;
}

// Over a connection of its own.
QueryReply query(SimWorld& world, std::string_view collection, std::string_view document) {
  auto [near, far] = world.network(0).pair();
  world.worker(0).serve(std::move(far), 1'000);
  std::vector<std::uint8_t> message;
  wire::encode_op_query(message, 1, collection, json(document));
  QueryReply reply = world.run(send_query(near.get(), std::move(message)));
  near->close();
  return reply;
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

TEST_CASE("with apiStrict a hello goes by its new name") {
  SimWorld world(sharded_world(1, 20));
  auto client = world.client();
  CHECK(is_ok(call(world, *client, R"({"hello": 1, "apiVersion": "1", "apiStrict": true, "$db": "admin"})")));
  CHECK(code_of(call(world, *client, R"({"isMaster": 1, "apiVersion": "1", "apiStrict": true, "$db": "admin"})")) == 323);
  CHECK(is_ok(call(world, *client, R"({"isMaster": 1, "apiVersion": "1", "$db": "admin"})")));
  CHECK(code_of(call(world, *client, R"({"ping": 1, "apiStrict": true, "$db": "admin"})")) == 4886600);
}

}  // namespace spillway::test
