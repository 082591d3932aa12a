// The router logs in on its shard connections, and its monitors do not.
#include "proxy/shard/log_in.h"

#include <algorithm>
#include <climits>
#include <catch2/catch.hpp>

#include "proxy/auth/users.h"
#include "proxy/base/log.h"
#include "proxy/shard/connection_string.h"
#include "tests/unit/shard/shard_support.h"

using namespace spillway;
using namespace spillway::shard;
using namespace spillway::test;
using namespace std::chrono_literals;

namespace {

// A server's users, asked command by command. One conversation at a time.
struct Door {
  explicit Door(bool sha256 = true, bool skips = true) : skips_empty(skips) {
    take_user("admin", "spillway", "open sesame", sha256);
  }

  void take_user(const std::string& db, const std::string& name, std::string_view password, bool sha256 = true) {
    auth::UserSpec user{name, db, {}, {}, {}};
    for (const auth::Hash hash : {auth::Hash::sha1, auth::Hash::sha256}) {
      if (hash == auth::Hash::sha256 && !sha256) continue;
      const auto prepared = auth::scram_password(hash, name, password);
      (hash == auth::Hash::sha1 ? user.sha1 : user.sha256) =
          auth::make_credentials(hash, **prepared, auth::bytes_of("a salt of some bytes"), 4096);
    }
    table.emplace(std::vector<auth::UserSpec>{user});
  }

  BsonDoc answer(DocView command) {
    const std::string_view name = command.first().name;
    seen.emplace_back(name);
    if (name == "saslStart" && starts_left-- <= 0) return json(R"({"ok": 0, "code": 91, "errmsg": "shutting down"})");
    if (name == "saslStart") return start(command);
    if (name == "saslContinue") return go_on(command);
    if (name == "authenticate") return json(x509 ? R"({"ok": 1, "user": "CN=x"})" : refusal);
    return json(logged_in ? R"({"ok": 1})"
                          : R"({"ok": 0, "code": 13, "errmsg": "requires authentication"})");
  }

  std::optional<auth::UserTable> table;
  bool skips_empty;
  bool x509 = false;
  bool logged_in = false;
  int starts_left = INT_MAX;  // before it shuts down
  std::string mechanism;
  std::vector<std::string> seen;

 private:
  static constexpr const char* refusal =
      R"({"ok": 0, "code": 18, "codeName": "AuthenticationFailed", "errmsg": "Authentication failed."})";

  BsonDoc start(DocView command) {
    mechanism = command["mechanism"].as_string();
    const auto hash = auth::scram_mechanism(mechanism);
    const auto text = std::string(auth::text_of(command["payload"].as_binary().data));
    const auto first = auth::parse_client_first(text);
    auto check = table->credentials(*hash, command["$db"].as_string(), first->user);
    server.emplace(*hash, *first, check.credentials, check.known);
    return step(server->first_message(), false);
  }
  BsonDoc go_on(DocView command) {
    const auto text = std::string(auth::text_of(command["payload"].as_binary().data));
    if (text.empty()) {
      logged_in = true;
      return step("", true);
    }
    const auto last = server->finish(text);
    if (last.has_error()) return json(refusal);
    logged_in = skips_empty;
    return step(*last, skips_empty);
  }
  static BsonDoc step(std::string_view payload, bool done) {
    BsonWriter out;
    out.append("conversationId", std::int32_t{1}).append("done", done);
    out.append_binary("payload", 0, auth::bytes_of(payload)).append("ok", 1.0);
    return std::move(out).finish();
  }

  std::optional<auth::ScramServer> server;
};

struct Guarded {
  explicit Guarded(Door& door) : server(world.loop, world.network, "a", 1) {
    server.answer = [&door](DocView command) { return door.answer(command); };
  }
  World world;
  ScriptedServer server;
};

auth::ServiceLogin::Ptr login(auth::ServiceMechanism mechanism,
                              const char* password = "open sesame") {
  return auth::ServiceLogin::make(mechanism, "spillway", "admin", auth::Secret::make(password))
      .value();
}

}  // namespace

TEST_CASE("a connection string's user logs in") {
  for (const bool skips : {true, false}) {
    for (const char* mechanism : {"SCRAM-SHA-256", "SCRAM-SHA-1"}) {
      Door door(true, skips);
      Guarded guarded(door);
      guarded.world.connect(std::string("mongodb://spillway:open%20sesame@a:1/?authMechanism=") +
                            mechanism);
      const auto call = guarded.world.call(R"({"find": "x", "$db": "app"})");
      CHECK(call->ok());
      CHECK(door.logged_in);
      CHECK(door.mechanism == mechanism);
      CHECK(door.seen.size() == (skips ? 3 : 4));
      guarded.world.disconnect();
    }
  }
}

TEST_CASE("security.shards logs in where the string names no user") {
  Door door;
  Guarded guarded(door);
  GatewayOptions options;
  options.login = login(auth::ServiceMechanism::scram_sha_256);
  guarded.world.connect("mongodb://a:1/", options);
  CHECK(guarded.world.call(R"({"find": "x", "$db": "app"})")->ok());
  CHECK(door.logged_in);
  guarded.world.disconnect();
}

TEST_CASE("the mechanism that a server does not tell is SCRAM-SHA-1") {
  Door door(false);
  Guarded guarded(door);
  GatewayOptions options;
  options.login = login(auth::ServiceMechanism::negotiated);
  guarded.world.connect("mongodb://a:1/", options);
  CHECK(guarded.world.call(R"({"find": "x", "$db": "app"})")->ok());
  CHECK(door.mechanism == "SCRAM-SHA-1");
  guarded.world.disconnect();
}

TEST_CASE("a wrong password is told, and not to clients as theirs") {
  Door door;
  Guarded guarded(door);
  GatewayOptions options;
  options.login = login(auth::ServiceMechanism::scram_sha_256, "wrong");
  guarded.world.connect("mongodb://a:1/", options);
  const auto call = guarded.world.call(R"({"find": "x", "$db": "app"})");
  REQUIRE(!call->ok());
  CHECK(call->code() == 6);
  CHECK(call->message().find("a:1 does not let the router log in as spillway of admin: "
                             "Authentication failed. (code 18)") != std::string::npos);
  CHECK(call->message().find("wrong") == std::string::npos);
  CHECK(!door.logged_in);
  guarded.world.disconnect();
}

TEST_CASE("refused logins are told once a minute, with the remedy, and their end") {
  const auto since = log::recent().total;
  const auto lines = [&](std::string_view text) {
    const log::Recent recent = log::recent();
    const auto last = static_cast<std::ptrdiff_t>(recent.total - since);
    return std::count_if(recent.lines.end() - last, recent.lines.end(),
                         [&](const std::string& line) { return line.find(text) != line.npos; });
  };
  Door door;
  Guarded guarded(door);
  guarded.server.role = Role::primary;
  guarded.server.members = {"a:1"};
  GatewayOptions options;
  options.login = login(auth::ServiceMechanism::scram_sha_256);
  door.take_user("admin", "spillway", "another password");
  guarded.world.connect("mongodb://a:1/?replicaSet=rs0", options);
  const auto attempts = [&] { return std::count(door.seen.begin(), door.seen.end(), "saslStart"); };
  for (int i = 0; i < 60; ++i) {
    const auto call = guarded.world.call(R"({"find": "x", "$db": "app"})");
    CHECK(call->code() == 6);
    CHECK(call->took < 1s);
    CHECK(call->message().find("does not let the router log in") != std::string::npos);
    guarded.world.run(500ms);
  }
  CHECK(attempts() >= 6);
  CHECK(attempts() <= 16);
  CHECK(lines("compare the user and the password (security.shards") >= 1);
  CHECK(lines("compare the user and the password (security.shards") <= 2);
  CHECK(lines("a:1 is primary") == 1);
  CHECK(lines("lost a:1") == 0);
  door.take_user("admin", "spillway", "open sesame");
  guarded.world.run(11s);
  CHECK(guarded.world.call(R"({"find": "x", "$db": "app"})")->ok());
  CHECK(lines("a:1 lets the router log in now") == 1);
  guarded.world.disconnect();
}

TEST_CASE("a server that shuts down while it is asked for a login has refused none") {
  const std::uint64_t since = log::recent().total;
  Door door;
  door.starts_left = 0;
  Guarded guarded(door);
  guarded.server.role = Role::primary;
  guarded.server.members = {"a:1"};
  GatewayOptions options;
  options.login = login(auth::ServiceMechanism::scram_sha_256);
  guarded.world.connect("mongodb://a:1/?replicaSet=rs0", options);
  const auto call = guarded.world.start(R"({"find": "x", "$db": "app"})");
  guarded.world.run(5s);
  door.starts_left = INT_MAX;
  guarded.world.run(2s);
  CHECK(call->done());
  CHECK(guarded.world.call(R"({"find": "x", "$db": "app"})")->ok());
  const log::Recent recent = log::recent();
  const auto last = static_cast<std::ptrdiff_t>(recent.total - since);
  CHECK(std::none_of(recent.lines.end() - last, recent.lines.end(), [](const std::string& line) {
    return line.find("does not let the router log in") != line.npos;
  }));
  guarded.world.disconnect();
}

TEST_CASE("a server that shuts down before the second key is tried is not used without a login") {
  Door door;
  door.take_user("local", "__system", "serverKey");
  door.starts_left = 1;
  Guarded guarded(door);
  GatewayOptions options;
  const auto other = auth::Secret::make("otherKey"), right = auth::Secret::make("serverKey");
  options.login = auth::ServiceLogin::make_internal({other, right}, true).value();
  guarded.world.connect("mongodb://a:1/", options);
  CHECK(guarded.world.call(R"({"find": "x", "$db": "app"})")->code() == 6);
  door.starts_left = INT_MAX;
  CHECK(guarded.world.call(R"({"find": "x", "$db": "app"})")->ok());
  CHECK(door.logged_in);
  guarded.world.disconnect();
}

TEST_CASE("connection strings with users") {
  const auto error = [](const char* uri) {
    const auto parsed = parse_connection_string(uri);
    return parsed.has_error() ? parsed.error().message : std::string();
  };
  const auto parsed = parse_connection_string(
      "mongodb://u:p%40w@a:1/?authSource=there&authMechanism=SCRAM-SHA-256");
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->login);
  CHECK(parsed->login->user() == "u");
  CHECK(parsed->login->db() == "there");
  CHECK(parsed->ignored_options.empty());
  CHECK(parse_connection_string("mongodb://u:p@a:1/")->login->db() == "admin");
  CHECK(!parse_connection_string("mongodb://a:1/")->login);
  CHECK(error("mongodb://u@a:1/").find("has no password") != std::string::npos);
  CHECK(error("mongodb://u:p@a:1/?authMechanism=PLAIN").find("not supported") != std::string::npos);
  CHECK(error("mongodb://a:1/?authMechanism=MONGODB-X509").find("needs tls=true") !=
        std::string::npos);
  CHECK(holds_password("mongodb://u:p@a:1/"));
  CHECK(!holds_password("mongodb://u@a:1/"));
  CHECK(!holds_password("mongodb://a:1/"));
  for (const char* wrong : {"mongodb://u:hidden/x@a:1/", "mongodb://u:hidden%@a:1/"}) {
    INFO(wrong);
    CHECK(error(wrong) != "");
    CHECK(error(wrong).find("hid") == std::string::npos);
    CHECK(error(wrong).find("den") == std::string::npos);
  }
}

TEST_CASE("a certificate logs in without a user's name") {
  for (const bool known : {true, false}) {
    Door door;
    door.x509 = door.logged_in = known;
    Guarded guarded(door);
    GatewayOptions options;
    options.login =
        auth::ServiceLogin::make(auth::ServiceMechanism::x509, "", "$external", nullptr).value();
    guarded.world.connect("mongodb://a:1/", options);
    const auto call = guarded.world.call(R"({"find": "x", "$db": "app"})");
    CHECK(call->ok() == known);
    CHECK(door.seen.front() == "authenticate");
    if (!known)
      CHECK(call->message().find("log in by certificate: Authentication failed.") !=
            std::string::npos);
    guarded.world.disconnect();
  }
}

TEST_CASE("of two keys of a cluster the second is tried when the first is wrong") {
  const auto keys = [](std::initializer_list<const char*> texts) {
    std::vector<auth::Secret::Ptr> made;
    for (const char* text : texts) made.push_back(auth::Secret::make(text));
    return made;
  };
  struct Case {
    std::vector<auth::Secret::Ptr> keys;
    bool known;
    std::ptrdiff_t starts;
  };
  for (const Case& one :
       {Case{keys({"serverKey", "otherKey"}), true, 1}, Case{keys({"otherKey", "serverKey"}), true, 2},
        Case{keys({"otherKey", "wrongKey"}), false, 2}, Case{keys({"wrongKey"}), false, 1}}) {
    Door door;
    door.take_user("local", "__system", "serverKey");
    Guarded guarded(door);
    GatewayOptions options;
    options.login = auth::ServiceLogin::make_internal(one.keys).value();
    guarded.world.connect("mongodb://a:1/", options);
    const auto call = guarded.world.call(R"({"find": "x", "$db": "app"})");
    CHECK(call->ok() == one.known);
    CHECK(door.logged_in == one.known);
    if (!one.known) {
      CHECK(call->message().find("log in as __system of local: Authentication failed. (code 18)") != std::string::npos);
    } else {
      CHECK(std::count(door.seen.begin(), door.seen.end(), "saslStart") == one.starts);
    }
    guarded.world.disconnect();
  }
}

TEST_CASE("a server that does not know the key is used without it while members get theirs") {
  Door door;
  door.logged_in = true;  // it asks for no login
  Guarded guarded(door);
  GatewayOptions options;
  options.login = auth::ServiceLogin::make_internal({auth::Secret::make("serverKey")}, true).value();
  guarded.world.connect("mongodb://a:1/", options);
  CHECK(guarded.world.call(R"({"find": "x", "$db": "app"})")->ok());
  CHECK(std::count(door.seen.begin(), door.seen.end(), "saslStart") == 1);
  guarded.world.disconnect();
}

TEST_CASE("what was computed of a password is remembered, for that salt and count alone") {
  auth::ScramKeyCache cache;
  const auto salt = auth::bytes_of("salt");
  CHECK(!cache.find(salt, 4096));
  auth::ScramKeyCache::Keys keys;
  keys.client_key = auth::digest(auth::Hash::sha256, salt);
  cache.keep(salt, 4096, keys);
  REQUIRE(cache.find(salt, 4096));
  CHECK(cache.find(salt, 4096)->client_key == keys.client_key);
  CHECK(!cache.find(salt, 4097));
  CHECK(!cache.find(auth::bytes_of("pepper"), 4096));
}

TEST_CASE("members of a cluster have a salt each, and what was computed is remembered for all") {
  auth::ScramKeyCache cache;
  auth::ScramKeyCache::Keys keys;
  const auto salt = [](std::size_t i) { return "salt " + std::to_string(i); };
  for (std::size_t i = 0; i < auth::ScramKeyCache::salts_max + 1; ++i) {
    keys.client_key = auth::digest(auth::Hash::sha256, auth::bytes_of(salt(i)));
    cache.keep(auth::bytes_of(salt(i)), 4096, keys);
  }
  CHECK(!cache.find(auth::bytes_of(salt(0)), 4096));  // the oldest
  for (std::size_t i = 1; i < auth::ScramKeyCache::salts_max + 1; ++i) {
    const auto found = cache.find(auth::bytes_of(salt(i)), 4096);
    REQUIRE(found);
    CHECK(found->client_key == auth::digest(auth::Hash::sha256, auth::bytes_of(salt(i))));
  }
}
