// Logging in, and what it changes, as commands see it.
#include "proxy/exec/access/authentication.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "proxy/exec/commands/command_table.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

constexpr const char* one_shard =
    "routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:27018/\"}]}";

Result<BsonDoc> answer_ok(std::uint16_t, DocView) {
  return test::doc(
      "{'cursor': {'firstBatch': [], 'id': {'$numberLong': '0'}, 'ns': 'app.c'}, 'ok': 1}");
}

auth::UserSpec user(const std::string& name, auth::RoleGrant role) {
  auth::UserSpec spec{name, "admin", {std::move(role)}, {}, {}};
  const auto password = auth::scram_password(auth::Hash::sha256, name, "pencil");
  spec.sha256 = auth::make_credentials(auth::Hash::sha256, **password,
                                       auth::bytes_of("a salt of some bytes"), 4096);
  return spec;
}

struct Fixture {
  test::FakeWorker worker{test::routing_of(one_shard), answer_ok};
  Client client;

  Fixture() {
    worker.shared.authorization = true;
    use({user("ann", {"read", "app"}), user("root", {"root", "admin"})});
  }
  void use(std::vector<auth::UserSpec> users) { worker.shared.users.configure(std::move(users)); }
  // What goes to a shard is written anew, for apiVersion stays here: the fake gateway takes nothing
  // else.
  BsonDoc run(const BsonDoc& command) {
    BsonWriter versioned;
    versioned.append_elements(command).append("apiVersion", "1");
    const BsonDoc body = std::move(versioned).finish();
    wire::OpMsg message;
    message.body = body;
    auto request = parse_request(message, {}, Clock::now());
    REQUIRE(request.has_value());
    const Response response = worker.run(run_command(worker.context, client, *request));
    return test::reply_of(response);
  }
  BsonDoc run(std::string_view json) { return run(test::doc(json)); }
  std::int64_t code_of(std::string_view json) {
    return run(json).view()["code"].to_int64().value_or(0);
  }

  static BsonDoc step(std::string_view command, std::string_view payload, bool skip) {
    BsonWriter out;
    out.append(command, std::int32_t{1});
    if (command == "saslStart") out.append("mechanism", "SCRAM-SHA-256");
    if (command == "saslContinue") out.append("conversationId", std::int32_t{1});
    out.append_binary("payload", 0, auth::bytes_of(payload));
    if (skip) out.begin_document("options").append("skipEmptyExchange", true).end();
    out.append("$db", "admin");
    return std::move(out).finish();
  }
  static std::string payload_of(const BsonDoc& reply) {
    return std::string(auth::text_of(reply.view()["payload"].as_binary().data));
  }
  // The code of the last reply; 0: logged in.
  std::int64_t log_in(const std::string& name, const char* password, bool skip = true) {
    auth::ScramClient scram(auth::Hash::sha256, name,
                            *auth::scram_password(auth::Hash::sha256, name, password));
    const BsonDoc first = run(step("saslStart", scram.first_message(), skip));
    REQUIRE(first.view()["ok"].truthy());
    CHECK(!first.view()["done"].truthy());
    CHECK(code_of("{'find': 'c', '$db': 'app'}") == (client.login.user ? 0 : 13));
    auto answer = scram.answer(payload_of(first));
    REQUIRE(answer.has_value());
    const BsonDoc second = run(step("saslContinue", *answer, skip));
    if (!second.view()["ok"].truthy()) return second.view()["code"].to_int64().value();
    CHECK(scram.verify(payload_of(second)).has_value());
    CHECK(second.view()["done"].truthy() == skip);
    if (skip) return 0;
    CHECK(!client.login.user);
    const BsonDoc third = run(step("saslContinue", "", false));
    return third.view()["done"].truthy() ? 0 : third.view()["code"].to_int64().value_or(-1);
  }
};

TEST_CASE("only harmless commands are allowed before logging in") {
  Fixture f;
  CHECK(f.code_of("{'find': 'c', '$db': 'app'}") == 13);
  CHECK(f.code_of("{'insert': 'c', 'documents': [{}], '$db': 'app'}") == 13);
  CHECK(f.code_of("{'serverStatus': 1, '$db': 'admin'}") == 13);
  CHECK(f.code_of("{'createUser': 'x', 'pwd': 'secret', 'roles': [], '$db': 'admin'}") == 13);
  for (const char* allowed :
       {"{'ping': 1, '$db': 'admin'}", "{'hello': 1, '$db': 'admin'}",
        "{'buildInfo': 1, '$db': 'admin'}", "{'connectionStatus': 1, '$db': 'admin'}",
        "{'getnonce': 1, '$db': 'admin'}"}) {
    CHECK(f.code_of(allowed) == 0);
  }
  for (const CommandSpec& spec : all_commands()) {
    const std::string command = fmt::format("{{'{}': 1, '$db': 'admin'}}", spec.name);
    const BsonDoc reply = f.run(command);
    // Not here: there are no config servers, and no test commands.
    const std::int64_t refused = spec.is(Trait::cluster_only) || spec.is(Trait::test_only) ? 59 : 13;
    if (reply.view()["code"].to_int64() == refused) continue;
    INFO(spec.name);
    CHECK(spec.need.of == CommandNeed::Of::no_login);
  }
}

TEST_CASE("logging in, with and without the empty exchange") {
  for (const bool skip : {true, false}) {
    Fixture f;
    CHECK(f.log_in("ann", "pencil", skip) == 0);
    REQUIRE(f.client.login.user);
    CHECK(f.client.user == "admin.ann");
    CHECK(f.code_of("{'find': 'c', '$db': 'app'}") == 0);
    CHECK(f.code_of("{'find': 'c', '$db': 'other'}") == 13);
    CHECK(f.code_of("{'logout': 1, '$db': 'app'}") == 0);
    CHECK(f.client.login.user);
    CHECK(f.code_of("{'logout': 1, '$db': 'admin'}") == 0);
    CHECK(f.code_of("{'find': 'c', '$db': 'app'}") == 13);
  }
}

TEST_CASE("wrong passwords and unknown users fail with the same words") {
  Fixture f;
  CHECK(f.log_in("ann", "pen") == 18);
  CHECK(f.log_in("nobody", "pencil") == 18);
  CHECK(!f.client.login.user);
  const auto& counted = f.worker.shared.metrics.mechanisms[Metrics::scram_sha_256];
  CHECK(counted.received.value() == 2);
  CHECK(counted.successful.value() == 0);
}

TEST_CASE("conversations that go wrong") {
  Fixture f;
  CHECK(f.run(Fixture::step("saslContinue", "x", true)).view()["code"].to_int64() == 17);
  CHECK(f.run(Fixture::step("saslStart", "x", true)).view()["code"].to_int64() == 18);
  CHECK(f.code_of("{'saslStart': 1, 'mechanism': 'PLAIN', 'payload': '', '$db': 'admin'}") == 334);
  CHECK(f.code_of("{'saslStart': 1, 'mechanism': 'SCRAM-SHA-256', 'payload': 5, '$db': 'admin'}") ==
        18);
  CHECK(f.code_of(
            "{'saslStart': 1, 'mechanism': 'SCRAM-SHA-256', 'payload': '%%%%', '$db': 'admin'}") ==
        18);
  CHECK(f.code_of("{'authenticate': 1, 'mechanism': 'MONGODB-X509', '$db': '$external'}") == 18);
  CHECK(f.code_of("{'authenticate': 1, 'mechanism': 'MONGODB-X509', '$db': 'admin'}") == 17);
  CHECK(f.code_of("{'authenticate': 1, 'mechanism': 'MONGODB-CR', '$db': 'admin'}") == 334);
  // A step that failed ends it.
  auth::ScramClient scram(auth::Hash::sha256, "ann",
                          *auth::scram_password(auth::Hash::sha256, "ann", "pencil"));
  const BsonDoc first = f.run(Fixture::step("saslStart", scram.first_message(), true));
  const auto answer = scram.answer(Fixture::payload_of(first));
  CHECK(f.run(Fixture::step("saslContinue", "nonsense", true)).view()["code"].to_int64() == 18);
  CHECK(f.run(Fixture::step("saslContinue", *answer, true)).view()["code"].to_int64() == 17);
  // Not proven: an empty message is no proof.
  f.run(Fixture::step("saslStart", scram.first_message(), false));
  CHECK(f.run(Fixture::step("saslContinue", "", false)).view()["code"].to_int64() == 18);
  CHECK(!f.client.login.user);
}

TEST_CASE("a connection is one user's") {
  Fixture f;
  CHECK(f.log_in("ann", "pencil") == 0);
  CHECK(f.log_in("ann", "pencil") == 0);
  CHECK(f.log_in("root", "pencil") == 18);
  CHECK(f.client.user == "admin.ann");
}

TEST_CASE("certificates") {
  Fixture f;
  f.use({{"CN=app,O=example", "$external", {{"read", "app"}}, {}, {}}});
  f.client.login.certificate.subject = "CN=other,O=example";
  const char* const command =
      "{'authenticate': 1, 'mechanism': 'MONGODB-X509', '$db': '$external'}";
  CHECK(f.code_of(command) == 18);
  f.client.login.certificate.subject = "CN=app,O=example";
  CHECK(f.code_of("{'authenticate': 1, 'mechanism': 'MONGODB-X509', 'user': 'CN=root', '$db': "
                  "'$external'}") == 18);
  f.client.login.certificate.names_roles = true;
  CHECK(f.code_of(command) == 18);
  f.client.login.certificate.names_roles = false;
  CHECK(f.run(command).view()["user"].as_string() == "CN=app,O=example");
  CHECK(f.code_of("{'find': 'c', '$db': 'app'}") == 0);
}

TEST_CASE("users change while they are logged in") {
  Fixture f;
  CHECK(f.log_in("ann", "pencil") == 0);
  CHECK(f.code_of("{'find': 'c', '$db': 'other'}") == 13);
  f.use({user("ann", {"read", "other"})});
  CHECK(f.code_of("{'find': 'c', '$db': 'other'}") == 0);
  CHECK(f.code_of("{'find': 'c', '$db': 'app'}") == 13);
  f.use({});
  const BsonDoc reply = f.run("{'find': 'c', '$db': 'other'}");
  CHECK(reply.view()["errmsg"].as_string() == "Command find requires authentication");
  CHECK(f.client.user.empty());
}

TEST_CASE("while there are no users, loopback hears how to make one") {
  Fixture f;
  f.use({});
  const char* const create = "{'createUser': 'x', 'pwd': 'secret', 'roles': [], '$db': 'admin'}";
  CHECK(f.code_of(create) == 13);
  f.client.login.from_loopback = true;
  CHECK(f.code_of(create) == 115);
  CHECK(f.code_of("{'find': 'c', '$db': 'app'}") == 13);
  CHECK(f.code_of("{'serverStatus': 1, '$db': 'admin'}") == 13);
  f.use({user("ann", {"read", "app"})});
  CHECK(f.code_of(create) == 13);
}

TEST_CASE("roles are told by name, by name and database, and in lists") {
  Fixture f;
  CHECK(f.log_in("ann", "pencil") == 0);
  const auto told = [&](const std::string& which) {
    const BsonDoc reply = f.run("{'rolesInfo': " + which + ", '$db': 'app'}");
    std::string text;
    for (const Element& each : reply.view()["roles"].as_document()) {
      text += std::string(each.as_document()["db"].as_string()) + "." +
              std::string(each.as_document()["role"].as_string()) + " ";
    }
    return text;
  };
  CHECK(told("'read'") == "app.read ");
  CHECK(told("{'role': 'read', 'db': 'other'}") == "other.read ");
  CHECK(told("['readWrite', {'role': 'root', 'db': 'admin'}, 'nosuch']") == "app.readWrite admin.root ");
}

TEST_CASE("secrets stay out of messages") {
  Fixture f;
  CHECK(f.log_in("ann", "pencil") == 0);
  const std::string text = to_json(f.run("{'updateUser': 'x', 'pwd': 'secret', '$db': 'admin'}"));
  CHECK(text.find("secret") == std::string::npos);
  for (const char* name :
       {"saslStart", "saslContinue", "createUser", "updateUser", "authenticate"}) {
    CHECK(is_sensitive(name));
  }
  CHECK(!is_sensitive("find"));
  CHECK(!is_sensitive(test::doc("{'find': 'c', 'filter': {'encryptionInformation': 1}}")));
  CHECK(is_sensitive(test::doc("{'find': 'c', 'filter': {}, 'encryptionInformation': {'type': 1}}")));
  CHECK(is_sensitive(test::doc("{'explain': {'find': 'c', 'encryptionInformation': {'type': 1}}}")));
  CHECK(is_sensitive(test::doc("{'bulkWrite': 1, 'nsInfo': [{'ns': 'a.b'}, {'ns': 'a.c', 'encryptionInformation': "
                               "{}}]}")));
}

TEST_CASE("a pipeline in a document sequence, which no check reads, is refused") {
  Fixture f;
  f.use({user("ann", {"dbAdmin", "app"})});
  CHECK(f.log_in("ann", "pencil") == 0);
  const BsonDoc body = test::doc("{'create': 'v', 'apiVersion': '1', '$db': 'app'}");
  const BsonDoc stage = test::doc("{'$unionWith': 'system.users'}");
  wire::OpMsg message;
  message.body = body;
  wire::DocSequence sequence;
  sequence.name = "pipeline";
  sequence.documents = {stage.view().data(), stage.size()};
  message.sequences.push_back(sequence);
  auto request = parse_request(message, {}, Clock::now());
  REQUIRE(request.has_value());
  const BsonDoc reply =
      test::reply_of(f.worker.run(run_command(f.worker.context, f.client, *request)));
  CHECK(reply.view()["code"].to_int64() == 9);
}

TEST_CASE("hello offers what a user has, and begins") {
  Fixture f;
  const BsonDoc known = f.run("{'hello': 1, 'saslSupportedMechs': 'admin.ann', '$db': 'admin'}");
  const BsonDoc unknown =
      f.run("{'hello': 1, 'saslSupportedMechs': 'admin.nobody', '$db': 'admin'}");
  CHECK(to_json(known.view()["saslSupportedMechs"]) ==
        to_json(unknown.view()["saslSupportedMechs"]));
  CHECK(known.view()["saslSupportedMechs"].as_document().count() == 1);
  auth::ScramClient scram(auth::Hash::sha256, "ann",
                          *auth::scram_password(auth::Hash::sha256, "ann", "pencil"));
  BsonWriter hello;
  hello.append("hello", std::int32_t{1}).begin_document("speculativeAuthenticate");
  hello.append("saslStart", std::int32_t{1})
      .append("mechanism", "SCRAM-SHA-256")
      .append("db", "admin");
  hello.append_binary("payload", 0, auth::bytes_of(scram.first_message()));
  hello.begin_document("options").append("skipEmptyExchange", true).end().end();
  hello.append("$db", "admin");
  const BsonDoc reply = f.run(std::move(hello).finish());
  const ValueView begun = reply.view()["speculativeAuthenticate"];
  REQUIRE(begun.is_document());
  const auto answer = scram.answer(auth::text_of(begun.as_document()["payload"].as_binary().data));
  REQUIRE(answer.has_value());
  CHECK(f.run(Fixture::step("saslContinue", *answer, true)).view()["done"].truthy());
  CHECK(f.worker.shared.metrics.mechanisms[Metrics::scram_sha_256].speculative_successful.value() ==
        1);
  // A connection that has not logged in keeps no names of any length.
  BsonWriter large;
  large.append("hello", std::int32_t{1}).begin_document("speculativeAuthenticate");
  large.append("saslStart", std::int32_t{1}).append("mechanism", "SCRAM-SHA-256").append("db", std::string(65, 'd'));
  large.append_binary("payload", 0, auth::bytes_of(scram.first_message())).end().append("$db", "admin");
  CHECK(!f.run(std::move(large).finish()).view()["speculativeAuthenticate"].exists());
  // A first step that makes no sense is left out.
  const BsonDoc wrong = f.run(
      "{'hello': 1, 'speculativeAuthenticate': {'saslStart': 1, 'mechanism': 'PLAIN', 'db': "
      "'admin'}, '$db': 'admin'}");
  CHECK(wrong.view()["ok"].truthy());
  CHECK(!wrong.view()["speculativeAuthenticate"].exists());
}

}  // namespace
}  // namespace spillway::exec
