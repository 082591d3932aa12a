#include "proxy/wire/hello.h"

#include <string>

#include "tests/unit/wire/wire_support.h"

namespace spillway::wire {
namespace {

constexpr const char* process = R"("processId": {"$oid": "0102030405060708090a0b0c"})";

std::int32_t code_of_hello(std::string_view json) { return code_of(parse_hello(doc(json))); }

std::string with_client(std::string_view client) {
  return "{\"hello\": 1, \"client\": " + std::string(client) + "}";
}

std::string version(std::string_view counter, std::string_view rest = "") {
  return "{\"hello\": 1, \"topologyVersion\": {" + std::string(process) +
         ", \"counter\": " + std::string(counter) + "}" + std::string(rest) + "}";
}

std::string client_with(std::string_view more) {
  return R"({"driver": {"name": "d", "version": "1"}, "os": {"type": "Linux"})" +
         std::string(more) + "}";
}

}  // namespace

TEST_CASE("all_fields_of_hello_are_read") {
  const BsonDoc command = doc(
      R"({"hello": 1, "helloOk": true, "$db": "admin", "loadBalanced": true,
          "compression": ["zstd"],
          "client": {"application": {"name": "app"}, "driver": {"name": "d", "version": "1"},
                     "os": {"type": "Linux"}, "platform": "p"},
          "saslSupportedMechs": "admin.u", "speculativeAuthenticate": {"saslStart": 1},
          "topologyVersion": {"processId": {"$oid": "0102030405060708090a0b0c"},
                              "counter": {"$numberLong": "4"}},
          "maxAwaitTimeMS": 10000, "internalClient": {}})");
  const Result<HelloRequest> hello = parse_hello(command);
  REQUIRE(hello);
  CHECK(hello->is_hello);
  CHECK(hello->hello_ok);
  CHECK(hello->load_balanced);
  CHECK(hello->internal_client);
  REQUIRE(hello->client);
  CHECK(hello->client->find("platform").as_string() == "p");
  CHECK(hello->application_name == "app");
  REQUIRE(hello->compression);
  CHECK(hello->compression->first().as_string() == "zstd");
  CHECK(hello->sasl_supported_mechs == "admin.u");
  REQUIRE(hello->speculative_authenticate);
  REQUIRE(hello->topology_version);
  CHECK(hello->topology_version->counter == 4);
  CHECK(hello->topology_version->process_id.size() == 12);
  CHECK(hello->topology_version->process_id[11] == 12);
  CHECK(hello->max_await_time_ms == 10'000);
  CHECK(check_exhaust_hello(*hello).has_value());
}

TEST_CASE("nobody_waits_longer_than_a_day") {
  const BsonDoc command = doc(R"({"hello": 1, "maxAwaitTimeMS": {"$numberLong": "9223372036854775807"},
      "topologyVersion": {"processId": {"$oid": "0102030405060708090a0b0c"}, "counter": {"$numberLong": "0"}}})");
  const Result<HelloRequest> hello = parse_hello(command);
  REQUIRE(hello);
  CHECK(hello->max_await_time_ms == 86'400'000);
}

TEST_CASE("a_bare_is_master_has_none_of_them") {
  const BsonDoc command = doc(R"({"isMaster": 1, "unknown": [1, 2]})");
  const Result<HelloRequest> hello = parse_hello(command);
  REQUIRE(hello);
  CHECK_FALSE(hello->is_hello);
  CHECK_FALSE(hello->hello_ok);
  CHECK_FALSE(hello->client);
  CHECK_FALSE(hello->compression);
  CHECK_FALSE(hello->sasl_supported_mechs);
  CHECK_FALSE(hello->topology_version);
  CHECK_FALSE(hello->load_balanced);
  CHECK_FALSE(hello->internal_client);
  CHECK(code_of(check_exhaust_hello(*hello)) == 51763);
}

TEST_CASE("load_balanced_must_be_said_where_it_is_true") {
  for (const bool said : {false, true}) {
    HelloRequest hello;
    hello.load_balanced = said;
    CHECK(code_of(check_load_balanced(hello, true)) == (said ? 0 : 354));
    CHECK(code_of(check_load_balanced(hello, false)) == (said ? 354 : 0));
  }
}

TEST_CASE("client_metadata_must_name_driver_and_system") {
  CHECK(code_of_hello(with_client(client_with(""))) == 0);
  CHECK(code_of_hello(with_client("{}")) == 183);
  CHECK(code_of_hello(with_client(R"({"driver": {"name": "d", "version": "1"}})")) == 183);
  CHECK(code_of_hello(with_client(R"({"os": {"type": "Linux"}})")) == 183);
  CHECK(code_of_hello(with_client(R"({"driver": {"name": "d"}, "os": {"type": "x"}})")) == 183);
  CHECK(code_of_hello(with_client(R"({"driver": {"version": "1"}, "os": {"type": "x"}})")) == 183);
  CHECK(code_of_hello(with_client(
            R"({"driver": {"name": "d", "version": "1"}, "os": {"name": "x"}})")) == 183);
  CHECK(code_of_hello(
            with_client(R"({"driver": {"name": 1, "version": "1"}, "os": {"type": "x"}})")) == 14);
  CHECK(code_of_hello(with_client(R"({"driver": "d", "os": {"type": "x"}})")) == 14);
  CHECK(code_of_hello(with_client(R"("text")")) == 14);
  CHECK(code_of_hello(with_client(client_with(R"(, "application": {"name": 1})"))) == 14);
  CHECK(code_of_hello(with_client(client_with(R"(, "application": 1)"))) == 14);
  CHECK(code_of_hello(with_client(client_with(R"(, "application": {})"))) == 0);
}

TEST_CASE("client_metadata_sizes_are_limited") {
  const auto application = [](std::size_t size) {
    return with_client(
        client_with(R"(, "application": {"name": ")" + std::string(size, 'a') + "\"}"));
  };
  CHECK(code_of_hello(application(128)) == 0);
  CHECK(code_of_hello(application(129)) == 184);
  const auto platform = [](std::size_t size) {
    return client_with(R"(, "platform": ")" + std::string(size, 'p') + "\"");
  };
  const std::size_t base = doc(platform(0)).size();
  CHECK(code_of_hello(with_client(platform(512 - base))) == 0);
  CHECK(code_of_hello(with_client(platform(513 - base))) == 185);
}

TEST_CASE("client_metadata_comes_once") {
  const BsonDoc with = doc(with_client(client_with("")));
  const BsonDoc without = doc(R"({"hello": 1})");
  const BsonDoc malformed = doc(R"({"hello": 1, "client": {"application": "x"}})");
  CHECK(check_metadata_not_repeated(with, true).has_value());
  CHECK(code_of(check_metadata_not_repeated(with, false)) == 186);
  CHECK(code_of(check_metadata_not_repeated(malformed, false)) == 186);
  CHECK(check_metadata_not_repeated(without, false).has_value());
}

TEST_CASE("topology_version_and_await_time_go_together") {
  const std::string await = R"(, "maxAwaitTimeMS": 5)";
  CHECK(code_of_hello(version("1", await)) == 0);
  CHECK(code_of_hello(version("1")) == 51760);
  CHECK(code_of_hello(R"({"hello": 1, "maxAwaitTimeMS": 5})") == 51760);
  CHECK(code_of_hello(version("-1", await)) == 51758);
  CHECK(code_of_hello(version("1", R"(, "maxAwaitTimeMS": -1)")) == 51759);
  CHECK(code_of_hello(version("\"x\"", await)) == 14);
  CHECK(code_of_hello(version("1", R"(, "maxAwaitTimeMS": "x")")) == 14);
  CHECK(code_of_hello(R"({"hello": 1, "topologyVersion": {"counter": 1}, "maxAwaitTimeMS": 5})") ==
        14);
  CHECK(code_of_hello(R"({"hello": 1, "topologyVersion": 1, "maxAwaitTimeMS": 5})") == 14);
}

TEST_CASE("hello_waits_while_the_version_is_the_same") {
  const std::uint8_t mine[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::uint8_t other[12] = {};
  const BsonDoc command = doc(version("4", R"(, "maxAwaitTimeMS": 5)"));
  const Result<HelloRequest> hello = parse_hello(command);
  REQUIRE(hello);
  CHECK(hello_waits(*hello, {mine, 4}).value());
  CHECK_FALSE(hello_waits(*hello, {mine, 5}).value());
  CHECK_FALSE(hello_waits(*hello, {other, 4}).value());
  CHECK_FALSE(hello_waits(*hello, {other, 3}).value());
  CHECK(code_of(hello_waits(*hello, {mine, 3})) == 51761);
  const BsonDoc bare = doc(R"({"hello": 1})");
  CHECK_FALSE(hello_waits(*parse_hello(bare), {mine, 4}).value());
}

TEST_CASE("other_fields_have_their_types") {
  CHECK(code_of_hello(R"({"hello": 1, "compression": "zstd"})") == 14);
  CHECK(code_of_hello(R"({"hello": 1, "compression": [1]})") == 14);
  CHECK(code_of_hello(R"({"hello": 1, "compression": []})") == 0);
  CHECK(code_of_hello(R"({"hello": 1, "saslSupportedMechs": 1})") == 14);
  CHECK(code_of_hello(R"({"hello": 1, "speculativeAuthenticate": 1})") == 14);
}

TEST_CASE("malformed_metadata_inside_a_good_frame_is_an_error") {
  BsonDoc good = doc(with_client(client_with("")));
  RecycledBytes bytes = std::move(good).take();
  std::size_t errors = 0;
  for (std::size_t at = 4; at + 1 < bytes.size(); ++at) {
    RecycledBytes corrupt = bytes;
    corrupt[at] = 0x7e;
    errors += parse_hello(DocView::trusted(corrupt.data())).has_value() ? 0 : 1;
  }
  CHECK(errors > bytes.size() / 3);
}

}  // namespace spillway::wire
