// Privileges that a server resolved, as it writes them and matches them.
#include "proxy/auth/privilege.h"

#include <catch2/catch.hpp>

#include "cursor/bson_writer.h"
#include "proxy/auth/users.h"

using namespace spillway;
using namespace spillway::auth;

namespace {

Privileges resolved(std::initializer_list<const char*> items) {
  std::vector<Privilege> all;
  for (const char* item : items) {
    if (const auto read = read_privilege(BsonDoc::from_json(item).value().view())) all.push_back(*read);
  }
  return Privileges::of_resolved(all);
}

}  // namespace

TEST_CASE("actions have the servers' names, and each has its bit", "[auth]") {
  CHECK(action_named("find") == Action::find);
  CHECK(action_named("killop") == Action::kill_op);
  CHECK(action_named("bypassWriteBlockingMode") == Action::bypass_write_blocking_mode);
  CHECK(action_named("renameCollectionSameDB") == Action::rename_collection_same_db);
  CHECK(action_named("setAuthenticationRestriction") == Action::set_authentication_restriction);
  CHECK_FALSE(action_named("Find"));
  CHECK_FALSE(action_named(""));
  CHECK_FALSE(action_named("zzz"));
  const ActionSet first = Action::find;
  const ActionSet late = Action::set_authentication_restriction;
  CHECK_FALSE(first.has(late));
  CHECK_FALSE(late.has(first));
  CHECK((first | late).has({Action::find, Action::set_authentication_restriction}));
  CHECK(ActionSet::all().has(first | late));
  CHECK(ActionSet().empty());
  CHECK_FALSE(late.empty());
}

TEST_CASE("a privilege is on one collection, a database, every database, the cluster or anything", "[auth]") {
  const Privileges own = resolved(
      {R"({"resource": {"db": "app", "collection": "x"}, "actions": ["collStats", "find", "insert"]})",
       R"({"resource": {"db": "app", "collection": "x"}, "actions": ["update", "someFutureAction"]})",
       R"({"resource": {"cluster": true}, "actions": ["serverStatus"]})",
       R"({"resource": {"db": "", "collection": ""}, "actions": ["listCollections"]})",
       R"({"resource": {"anyResource": true}, "actions": ["killop"]})",
       R"({"resource": {"db": "logs", "collection": ""}, "actions": ["find"]})",
       R"({"resource": {"db": "", "collection": "system.js"}, "actions": ["find"]})",
       R"({"resource": {"db": "config", "collection": "settings"}, "actions": ["update"]})",
       R"({"resource": {"system_buckets": "x", "db": "app"}, "actions": ["remove"]})",
       R"({"resource": {"system_buckets": "y"}, "actions": ["dbHash"]})",
       R"({"resource": {"system_buckets": "", "db": "logs"}, "actions": ["insert"]})",
       R"({"resource": {"system_buckets": ""}, "actions": ["collStats"]})", R"({"resource": 1})", "{}"});
  using enum Action;
  CHECK(own.allows({find, insert, coll_stats, update}, "app", "x"));
  CHECK_FALSE(own.allows(remove, "app", "x"));
  CHECK_FALSE(own.allows(find, "app", "y"));
  CHECK_FALSE(own.allows(find, "app", ""));
  CHECK_FALSE(own.allows(find, "other", "x"));
  CHECK(own.on_cluster().has({server_status, kill_op}));
  CHECK_FALSE(own.on_cluster().has(shutdown));
  CHECK(own.allows(list_collections, "app", ""));
  CHECK(own.allows(list_collections, "spillway", "c"));
  CHECK_FALSE(own.allows(list_collections, "app", "system.views"));
  for (const char* apart : {"config", "local"}) CHECK_FALSE(own.allows(list_collections, apart, ""));
  CHECK(own.allows(kill_op, "local", "system.replset"));
  CHECK(own.allows(find, "logs", "any"));
  CHECK_FALSE(own.allows(find, "logs", "system.profile"));
  CHECK(own.allows(find, "logs", "system.js"));
  CHECK(own.allows(find, "local", "system.js"));
  CHECK(own.allows(update, "config", "settings"));
  CHECK_FALSE(own.allows(update, "config", "chunks"));
  CHECK(own.allows({remove, coll_stats}, "app", "system.buckets.x"));
  CHECK_FALSE(own.allows(remove, "app", "system.buckets.y"));
  CHECK_FALSE(own.allows(remove, "other", "system.buckets.x"));
  CHECK(own.allows(db_hash, "other", "system.buckets.y"));
  CHECK(own.allows({insert, coll_stats}, "logs", "system.buckets.any"));
  CHECK_FALSE(own.allows(insert, "logs", "any"));
  const std::vector<Privilege> listed = own.list();
  CHECK(Privileges::of_resolved(listed).list() == listed);
}

TEST_CASE("a database is touched by a privilege on one of its collections", "[auth]") {
  const Privileges one = resolved({R"({"resource": {"db": "app", "collection": "x"}, "actions": ["find"]})"});
  CHECK(one.touches("app"));
  CHECK_FALSE(one.touches("other"));
  CHECK(resolved({R"({"resource": {"db": "", "collection": "x"}, "actions": ["find"]})"}).touches("other"));
  CHECK_FALSE(resolved({}).touches("app"));
}

TEST_CASE("any action on anything is all", "[auth]") {
  const Privileges all = resolved({R"({"resource": {"anyResource": true}, "actions": ["anyAction"]})"});
  CHECK(all.on_cluster() == ActionSet::all());
  CHECK(all.on("local", "system.replset") == ActionSet::all());
}

TEST_CASE("a user whose roles were resolved has those privileges alone", "[auth]") {
  UserSpec spec{"ann", "admin", {{"root", "admin"}}, {}, {}};
  CHECK(User(spec).privileges.allows(Action::find, "app", "c"));
  spec.resolved.emplace();
  CHECK_FALSE(User(spec).privileges.allows(Action::find, "app", "c"));
  spec.resolved->privileges = {{.db = "app", .actions = Action::find}};
  CHECK(User(spec).privileges.allows(Action::find, "app", "c"));
  CHECK_FALSE(User(spec).privileges.allows(Action::insert, "app", "c"));
}
