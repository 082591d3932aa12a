#include "proxy/exec/access/user_feed.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

constexpr const char* one_shard =
    "routing: {shards: [{name: s0, uri: \"mongodb://127.0.0.1:27018/\"}]}";

std::string stored(const std::string& name, const std::string& roles) {
  const auto password = auth::scram_password(auth::Hash::sha256, name, "pencil");
  const auto made = auth::make_credentials(auth::Hash::sha256, **password,
                                           auth::bytes_of("a salt of some bytes"), 4096);
  return "{'_id': 'admin." + name + "', 'user': '" + name + "', 'db': 'admin', 'roles': [" + roles +
         "], 'credentials': {'SCRAM-SHA-256': {'iterationCount': 4096, 'salt': '" +
         auth::to_base64(made.salt) + "', 'storedKey': '" +
         auth::to_base64(made.stored_key.view()) + "', 'serverKey': '" +
         auth::to_base64(made.server_key.view()) + "'}}}";
}

TEST_CASE("users as MongoDB stores them") {
  std::size_t unknown = 0;
  const auto parse = [&](const std::string& json) {
    return parse_stored_user(test::doc(json), unknown);
  };
  const auto ann =
      parse(stored("ann", "{'role': 'read', 'db': 'app'}, {'role': 'own', 'db': 'app'}"));
  REQUIRE(ann.has_value());
  CHECK(ann->roles == std::vector<auth::RoleGrant>{{"read", "app"}});
  CHECK(unknown == 1);
  REQUIRE(ann->sha256);
  CHECK(ann->sha256->iterations == 4096);
  CHECK(!ann->sha1);
  const auto external =
      parse("{'user': 'CN=x', 'db': '$external', 'credentials': {'external': true}, 'roles': []}");
  REQUIRE(external.has_value());
  CHECK(!external->sha256);
  for (const char* wrong :
       {"{}", "{'user': 5, 'db': 'a'}", "{'user': '', 'db': 'a'}", "{'user': 'a', 'db': 'a.b'}"}) {
    CHECK(parse(wrong).has_error());
  }
  // What keeps a user to some addresses would not be checked.
  CHECK(parse("{'user': 'a', 'db': 'b', 'authenticationRestrictions': [{'clientSource': ['10.0.0.1']}]}").has_error());
  CHECK(parse("{'user': 'a', 'db': 'b', 'authenticationRestrictions': []}").has_value());
  // Keys of another length, a salt that is no base64, too few rounds: no credentials, not weak
  // ones.
  for (const char* weak :
       {"'iterationCount': 1, 'salt': 'AAAA', 'storedKey': 'AAAA', 'serverKey': 'AAAA'",
        "'iterationCount': 4096, 'salt': '%', 'storedKey': 'AAAA', 'serverKey': 'AAAA'", ""}) {
    const auto user = parse(
        std::string("{'user': 'a', 'db': 'b', 'credentials': {'SCRAM-SHA-1': {") + weak + "}}}");
    REQUIRE(user.has_value());
    CHECK(!user->sha1);
  }
}

TEST_CASE("users of a shard and of the configuration are one table") {
  std::string answer =
      "{'cursor': {'id': {'$numberLong': '0'}, 'ns': 'admin.system.users', 'firstBatch': [" +
      stored("ann", "{'role': 'read', 'db': 'app'}") + "," + stored("bob", "") + "]}, 'ok': 1}";
  bool damaged = false;
  test::FakeWorker worker(
      test::routing_of(one_shard),
      [&](std::uint16_t, DocView) -> Result<BsonDoc> {
        BsonDoc reply = test::doc(answer);
        if (damaged) {  // the length of the first user
          const ValueView batch = reply.view().find_path("cursor.firstBatch");
          const_cast<std::uint8_t*>(batch.as_document().first().bytes.data())[3] = 0x7f;
        }
        return reply;
      });
  worker.shared.users_from = 0;
  worker.shared.users.configure({{"bob", "admin", {{"root", "admin"}}, {}, {}}});
  CHECK(!worker.run(read_stored_users(worker.context)).has_error());
  const auto table = worker.shared.users.table();
  CHECK(table->size() == 2);
  CHECK(table->find("admin", "ann")->privileges.allows(auth::Action::find, "app", "c"));
  CHECK(table->find("admin", "bob")->roles.front().role ==
        "root");  // the configuration's goes before
  const auto generation = worker.shared.users.generation();
  CHECK(!worker.run(read_stored_users(worker.context)).has_error());
  CHECK(worker.shared.users.generation() == generation);
  damaged = true;
  CHECK(worker.run(read_stored_users(worker.context)).has_error());
  CHECK(worker.shared.users.table()->size() == 2);
  damaged = false;
  answer = "{'ok': 0, 'code': 13, 'errmsg': 'not allowed'}";
  CHECK(worker.run(read_stored_users(worker.context)).has_error());
  CHECK(worker.shared.users.table()->size() == 2);
}

}  // namespace
}  // namespace spillway::exec
