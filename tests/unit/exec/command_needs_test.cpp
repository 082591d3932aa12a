// Every command says what it needs, and no way around a collection's privileges is left open.
#include "proxy/exec/core/command_need.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proxy/exec/commands/command_table.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {
namespace {

auth::Privileges grants(std::initializer_list<auth::RoleGrant> roles) {
  return auth::Privileges(std::vector<auth::RoleGrant>(roles));
}

bool may(const auth::Privileges& privileges, std::string_view json) {
  const test::FakeRequest fake(json);
  const Request& request = fake.request;
  const CommandSpec* const spec = command_named(request.name);
  REQUIRE(spec != nullptr);
  return meets(spec->need, {privileges, request.name, request.db, request.body, &request.message});
}

void check_all(const auth::Privileges& privileges, bool expected,
               std::initializer_list<const char*> commands) {
  for (const char* command : commands) {
    INFO(command);
    CHECK(may(privileges, command) == expected);
  }
}

TEST_CASE("an unknown stage is refused to every user, wherever it stands") {
  const auth::Privileges all = grants({{"root", "admin"}, {"readWrite", "app"}});
  check_all(
      all, false,
      {"{'aggregate': 'c', 'pipeline': [{'$readOtherCollection': {'from': 'secret'}}], 'cursor': {}, '$db': 'app'}",
       "{'aggregate': 'c', 'pipeline': [{'$match': {}}, {'$_internalApplyOplogUpdate': {}}], 'cursor': {}, '$db': "
       "'app'}",
       "{'aggregate': 'c', 'pipeline': [{'$facet': {'a': [{'$rankFusion': {}}]}}], 'cursor': {}, '$db': 'app'}",
       "{'aggregate': 'c', 'pipeline': [{'$lookup': {'from': 'd', 'pipeline': [{'$new': 1}], 'as': 'x'}}], "
       "'cursor': {}, '$db': 'app'}"});
  check_all(
      grants({{"read", "app"}}), true,
      {"{'aggregate': 'c', 'pipeline': [{'$match': {}}, {'$group': {'_id': 1}}, {'$sort': {'_id': 1}}, {'$limit': 1}, "
       "{'$skip': 1}, {'$project': {'a': 1}}, {'$addFields': {'a': 1}}, {'$set': {'a': 1}}, {'$unset': 'a'}, "
       "{'$unwind': '$a'}, {'$count': 'n'}, {'$sortByCount': '$a'}, {'$replaceRoot': {}}, {'$replaceWith': '$a'}, "
       "{'$redact': '$$KEEP'}, {'$sample': {'size': 1}}, {'$bucket': {}}, {'$bucketAuto': {}}, {'$densify': {}}, "
       "{'$fill': {}}, {'$setWindowFields': {}}], 'cursor': {}, '$db': 'app'}",
       "{'aggregate': 'c', 'pipeline': [{'$geoNear': {}}, {'$facet': {'a': [{'$match': {}}]}}], 'cursor': {}, '$db': "
       "'app'}"});
}

TEST_CASE("every command of the table needs something that is written down") {
  using Of = CommandNeed::Of;
  for (const CommandSpec& spec : all_commands()) {
    INFO(spec.name);
    const Of of = spec.need.of;
    const bool by_login = of == Of::no_login || of == Of::any_user;
    CHECK((!by_login && of != Of::rule) == !spec.need.actions.empty());
    CHECK((of == Of::rule) == (spec.need.rule != nullptr));
  }
}

TEST_CASE("what is allowed before logging in changes nothing and shows no data") {
  for (const CommandSpec& spec : all_commands()) {
    if (spec.need.of != CommandNeed::Of::no_login) continue;
    INFO(spec.name);
    const std::set<std::string_view> harmless{
        "hello",        "isMaster",     "ismaster",         "ping",         "buildInfo",
        "buildinfo",    "whatsmyuri",   "connectionStatus", "listCommands", "saslStart",
        "saslContinue", "authenticate", "getnonce",         "logout",       "endSessions"};
    CHECK(harmless.contains(spec.name));
  }
}

TEST_CASE("reading and writing one collection") {
  const auto read = grants({{"read", "app"}});
  check_all(read, true,
            {"{'find': 'c', '$db': 'app'}", "{'count': 'c', '$db': 'app'}",
             "{'distinct': 'c', '$db': 'app'}", "{'listCollections': 1, '$db': 'app'}",
             "{'listIndexes': 'c', '$db': 'app'}", "{'dataSize': 'app.c', '$db': 'app'}",
             "{'dbStats': 1, '$db': 'app'}", "{'explain': {'find': 'c'}, '$db': 'app'}"});
  check_all(read, false,
            {"{'find': 'c', '$db': 'other'}",
             "{'find': 'system.users', '$db': 'app'}",
             "{'find': 1, '$db': 'app'}",
             "{'find': '', '$db': 'app'}",
             "{'insert': 'c', 'documents': [{}], '$db': 'app'}",
             "{'delete': 'c', 'deletes': [], '$db': 'app'}",
             "{'drop': 'c', '$db': 'app'}",
             "{'createIndexes': 'c', '$db': 'app'}",
             "{'dropDatabase': 1, '$db': 'app'}",
             "{'serverStatus': 1, '$db': 'admin'}",
             "{'shutdown': 1, '$db': 'admin'}",
             "{'dataSize': 'other.c', '$db': 'other'}",
             "{'dataSize': 'other.c', '$db': 'app'}",
             "{'dataSize': 'c', '$db': 'app'}",
             "{'dataSize': 'app.', '$db': 'app'}",
             "{'explain': {'find': 'c'}, '$db': 'other'}",
             "{'explain': {'find': 'c', '$db': 'other'}, '$db': 'app'}",
             "{'explain': {'delete': 'c', 'deletes': []}, '$db': 'app'}",
             "{'explain': {'explain': {'find': 'c'}}, '$db': 'app'}",
             "{'killAllSessions': [], '$db': 'app'}",
             "{'profile': -1, '$db': 'app'}",
             "{'currentOp': 1, '$db': 'admin'}"});
  check_all(grants({{"readWrite", "app"}}), true,
            {"{'insert': 'c', 'documents': [{}], '$db': 'app'}",
             "{'update': 'c', 'updates': [{'q': {}, 'u': {}, 'upsert': true}], '$db': 'app'}",
             "{'findAndModify': 'c', 'remove': true, '$db': 'app'}", "{'drop': 'c', '$db': 'app'}",
             "{'create': 'c', '$db': 'app'}",
             "{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}, {'delete': 1, 'filter': {}}], "
             "'nsInfo': [{'ns': 'app.c'}, {'ns': 'app.d'}], '$db': 'admin'}",
             "{'renameCollection': 'app.a', 'to': 'app.b', '$db': 'admin'}",
             "{'getMore': {'$numberLong': '5'}, 'collection': 'c', '$db': 'app'}"});
  check_all(grants({{"readWrite", "app"}}), false,
            {"{'insert': 'c', 'documents': [{}], 'bypassDocumentValidation': true, '$db': 'app'}",
             "{'collMod': 'c', '$db': 'app'}", "{'dropDatabase': 1, '$db': 'app'}",
             "{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}, {'delete': 1, 'filter': {}}], "
             "'nsInfo': [{'ns': 'app.c'}, {'ns': 'other.d'}], '$db': 'admin'}",
             "{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}], 'nsInfo': [{'ns': 'app.c'}], "
             "'bypassDocumentValidation': true, '$db': 'admin'}",
             // Which of the lists is taken?
             "{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}], 'nsInfo': [{'ns': 'app.c'}], "
             "'nsInfo': [{'ns': 'other.c'}], '$db': 'admin'}",
             "{'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {}}], 'nsInfo': [{'ns': 'app.c', 'ns': 'other.c'}], "
             "'$db': 'admin'}",
             "{'bulkWrite': 1, 'ops': [{'insert': 3, 'document': {}}], 'nsInfo': [{'ns': 'app.c'}], '$db': 'admin'}",
             "{'renameCollection': 'app.a', 'to': 'app.system.users', '$db': 'admin'}",
             "{'renameCollection': 'app.a', 'to': 'other.b', '$db': 'admin'}",
             "{'renameCollection': 'other.a', 'to': 'app.b', '$db': 'admin'}",
             "{'renameCollection': 'app', 'to': 'app.b', '$db': 'admin'}",
             "{'insert': 'system.views', 'documents': [{}], '$db': 'app'}",
             "{'getMore': {'$numberLong': '5'}, 'collection': 'c', '$db': 'other'}"});
}

TEST_CASE("a file's checksum needs the right to read its chunks") {
  const auto chunks = grants({{"read", "app"}});
  CHECK(may(chunks, "{'filemd5': 1, '$db': 'app'}"));
  CHECK(may(chunks, "{'filemd5': 1, 'root': 'pictures', '$db': 'app'}"));
  CHECK_FALSE(may(chunks, "{'filemd5': 1, 'root': 5, '$db': 'app'}"));
  CHECK_FALSE(may(chunks, "{'filemd5': 1, '$db': 'other'}"));
}

TEST_CASE("mapReduce needs the right to read its source, and to write where its output goes") {
  const auto with = [](const std::string& out) {
    return "{'mapReduce': 'c', 'map': 'm', 'reduce': 'r', " + out + ", '$db': 'app'}";
  };
  const auto read = grants({{"read", "app"}}), write = grants({{"readWrite", "app"}});
  CHECK(may(read, with("'out': {'inline': 1}")));
  CHECK_FALSE(may(grants({{"read", "other"}}), with("'out': {'inline': 1}")));
  for (const char* out : {"'out': 'd'", "'out': {'replace': 'd'}", "'out': {'merge': 'd'}", "'out': {'reduce': 'd'}",
                          "'out': {'normal': 'd', 'db': 'app'}", "'out': {'inline': 1, 'merge': 'd'}"}) {
    INFO(out);
    CHECK_FALSE(may(read, with(out)));
    CHECK(may(write, with(out)));
  }
  for (const char* out :
       {"'out': {'merge': 'd', 'db': 'other'}", "'out': 'system.views'", "'out': {'merge': 'd', 'db': 7}",
        "'out': {'merge': 'd', 'db': 'app', 'db': 'other'}", "'out': {'merge': 'd', 'reduce': 'e'}",
        "'out': 'd', 'out': {'merge': 'd', 'db': 'other'}", "'out': 'd', 'bypassDocumentValidation': true"}) {
    INFO(out);
    CHECK_FALSE(may(write, with(out)));
  }
}

TEST_CASE("changes of a whole database need a right on it") {
  const std::string changes = "{'aggregate': 1, 'pipeline': [{'$changeStream': {}}], 'cursor': {}, '$db': 'app'}";
  CHECK(may(grants({{"read", "app"}}), changes));
  CHECK_FALSE(may(grants({{"read", "other"}}), changes));
  const std::string everything = "{'aggregate': 1, 'pipeline': [{'$changeStream': {'allChangesForCluster': true}}], "
                                 "'cursor': {}, '$db': 'admin'}";
  CHECK(may(grants({{"readAnyDatabase", "admin"}}), everything));
  CHECK_FALSE(may(grants({{"read", "admin"}}), everything));
}

TEST_CASE("a user may list all sessions only with the right to see all users'") {
  for (const char* command :
       {"{'aggregate': 1, 'pipeline': [{'$listLocalSessions': {'allUsers': true}}], 'cursor': {}, '$db': 'admin'}",
        "{'aggregate': 1, 'pipeline': [{'$listLocalSessions': {'users': []}}], 'cursor': {}, '$db': 'admin'}",
        "{'aggregate': 'system.sessions', 'pipeline': [{'$listSessions': {}}], 'cursor': {}, '$db': 'config'}"}) {
    INFO(command);
    CHECK(may(grants({{"clusterMonitor", "admin"}}), command));
    CHECK_FALSE(may(grants({{"readAnyDatabase", "admin"}}), command));
  }
  CHECK(may(grants({{"read", "app"}}),
            "{'aggregate': 1, 'pipeline': [{'$listLocalSessions': {}}], 'cursor': {}, '$db': 'admin'}"));
}

TEST_CASE("an aggregation needs what its stages read and write") {
  const auto read = grants({{"read", "app"}});
  const auto with = [](const std::string& stages, const char* more = "") {
    return "{'aggregate': 'c', 'pipeline': [" + stages + "], 'cursor': {}" + more +
           ", '$db': 'app'}";
  };
  for (const char* stages :
       {"", "{'$match': {}}",
        "{'$lookup': {'from': 'd', 'as': 'x', 'localField': 'a', 'foreignField': 'b'}}",
        "{'$unionWith': 'd'}", "{'$unionWith': {'coll': 'd', 'pipeline': [{'$match': {}}]}}",
        "{'$graphLookup': {'from': 'd', 'startWith': '$a', 'connectFromField': 'a', "
        "'connectToField': 'b', 'as': 'x'}}",
        "{'$facet': {'a': [{'$match': {}}]}}", "{'$collStats': {}}"}) {
    INFO(stages);
    CHECK(may(read, with(stages)));
  }
  for (const char* stages :
       {"{'$out': 'd'}", "{'$merge': 'd'}", "{'$merge': {'into': 'd'}}", "{'$merge': {}}",
        "{'$out': {'db': 'other', 'coll': 'd'}}", "{'$indexStats': {}}",
        "{'$lookup': {'from': {'db': 'other', 'coll': 'd'}, 'as': 'x', 'pipeline': []}}",
        "{'$lookup': {'from': 'system.users', 'as': 'x', 'pipeline': []}}",
        "{'$lookup': {'from': 'd', 'from': 'system.users', 'as': 'x', 'pipeline': []}}",
        "{'$lookup': {'from': 'd', 'as': 'x', 'pipeline': [{'$unionWith': 'system.users'}]}}",
        "{'$lookup': {'from': 'd', 'as': 'x', 'pipeline': [], 'pipeline': [{'$unionWith': "
        "'system.users'}]}}",
        "{'$facet': {'a': [{'$unionWith': 'system.users'}]}}", "{'$unionWith': 'system.users'}",
        "{'$unionWith': {'coll': 'd', 'db': 'other'}}",
        "{'$match': {}, '$unionWith': 'system.users'}",
        "{'$unionWith': {'coll': 'd', 'pipeline': [{'$lookup': {'from': 'system.profile', 'as': "
        "'x'}}]}}",
        "{'$graphLookup': {'from': 'system.users', 'as': 'x'}}",
        "{'$lookup': {'from': 'd', 'as': 'x', 'pipeline': [{'$indexStats': {}}]}}"}) {
    INFO(stages);
    CHECK(!may(read, with(stages)));
  }
  const auto write = grants({{"readWrite", "app"}});
  CHECK(may(write, with("{'$out': 'd'}")));
  CHECK(may(write, with("{'$merge': {'into': {'db': 'app', 'coll': 'd'}, 'whenMatched': [{'$set': "
                        "{'a': 1}}]}}")));
  CHECK(!may(write, with("{'$out': 'd'}", ", 'bypassDocumentValidation': true")));
  CHECK(!may(write, with("{'$merge': {'into': 'd'}}", ", 'bypassDocumentValidation': true")));
  CHECK(may(read, with("{'$match': {}}", ", 'bypassDocumentValidation': true")));
  const auto owner_there = grants({{"readWrite", "app"}, {"readWrite", "other"}, {"dbAdmin", "other"}});
  CHECK(may(owner_there, with("{'$out': {'db': 'other', 'coll': 'd'}}", ", 'bypassDocumentValidation': true")));
  CHECK(!may(write, with("{'$merge': {'into': {'db': 'other', 'coll': 'd'}}}")));
  CHECK(!may(write, with("{'$out': 'system.views'}")));
  const auto reads_and = [](auth::Action action) {
    return auth::Privileges::of_resolved({{.db = "app", .actions = {auth::Action::find, action}}});
  };
  const auto inserts = reads_and(auth::Action::insert), updates = reads_and(auth::Action::update);
  const char* const fails = "{'$merge': {'into': 'd', 'whenMatched': 'fail'}}";
  const char* const discards = "{'$merge': {'into': 'd', 'whenMatched': 'merge', 'whenNotMatched': 'discard'}}";
  CHECK(may(inserts, with(fails)));
  CHECK(!may(updates, with(fails)));
  CHECK(may(updates, with(discards)));
  CHECK(!may(inserts, with(discards)));
  for (const auth::Privileges* each : {&inserts, &updates}) {
    CHECK(!may(*each, with("{'$merge': 'd'}")));
    CHECK(!may(*each, with("{'$merge': {'into': 'd', 'whenMatched': 'fail', 'whenMatched': 'replace'}}")));
    CHECK(!may(*each, with("{'$merge': {'into': 'd', 'whenNotMatched': 'fail', 'whenNotMatched': 'insert'}}")));
  }
  // Statistics are of the collection that the pipeline reads.
  using auth::Action;
  const auto statistics = auth::Privileges::of_resolved(
      {{.db = "app", .collection = "c", .actions = {Action::find, Action::index_stats}},
       {.db = "app", .collection = "d", .actions = {Action::find, Action::coll_stats}}});
  CHECK(may(statistics, with("{'$unionWith': {'coll': 'd', 'pipeline': [{'$collStats': {}}]}}")));
  CHECK(!may(statistics, with("{'$unionWith': {'coll': 'd', 'pipeline': [{'$indexStats': {}}]}}")));
  CHECK(!may(statistics, with("{'$lookup': {'pipeline': [{'$indexStats': {}}], 'from': 'd', 'as': 'x'}}")));
  CHECK(may(statistics, with("{'$facet': {'a': [{'$indexStats': {}}]}}")));
  CHECK(!may(statistics, with("{'$facet': {'a': [{'$collStats': {}}]}}")));
  const std::string distribution = "'pipeline': [{'$shardedDataDistribution': {}}]";
  for (const auto& [role, is_allowed] : {std::pair("clusterMonitor", true), {"readAnyDatabase", false}}) {
    const auto user = grants({{role, "admin"}, {"readAnyDatabase", "admin"}});
    CHECK(may(user, "{'aggregate': 1, " + distribution + ", '$db': 'admin'}") == is_allowed);
    CHECK(!may(user, "{'aggregate': 'c', 'pipeline': [{'$unionWith': {'coll': 'd', " + distribution +
                         "}}], '$db': 'app'}"));
  }
  const auto catalog = auth::Privileges::of_resolved(
      {{.db = "app", .collection = "c", .actions = {Action::list_collections, Action::list_indexes}},
       {.db = "app", .collection = "d", .actions = {Action::find, Action::list_indexes}}});
  CHECK(may(catalog, with("{'$listCatalog': {}}")));
  CHECK(!may(statistics, with("{'$listCatalog': {}}")));
  CHECK(!may(catalog, with("{'$unionWith': {'coll': 'd', 'pipeline': [{'$listCatalog': {}}]}}")));
  CHECK(!may(grants({{"root", "admin"}}), "{'aggregate': 1, 'pipeline': [{'$listCatalog': {}}], '$db': 'admin'}"));
  CHECK(!may(grants({{"root", "admin"}}), with("{'$lookup': {'as': 'x', 'pipeline': [{'$listCatalog': {}}]}}")));
  std::string deep = "{'$unionWith': 'd'}";
  for (int i = 0; i < 30; ++i) deep = "{'$unionWith': {'coll': 'd', 'pipeline': [" + deep + "]}}";
  CHECK(!may(write, with(deep)));
}

TEST_CASE("operations of everybody are a monitor's to see") {
  const auto read = grants({{"read", "admin"}});
  const auto monitor = grants({{"clusterMonitor", "admin"}});
  const char* const all =
      "{'aggregate': 1, 'pipeline': [{'$currentOp': {'allUsers': true}}], 'cursor': {}, '$db': "
      "'admin'}";
  const char* const own =
      "{'aggregate': 1, 'pipeline': [{'$currentOp': {}}], 'cursor': {}, '$db': 'admin'}";
  CHECK(!may(read, all));
  CHECK(may(read, own));
  CHECK(may(monitor, all));
  const char* const inside =
      "{'aggregate': 'c', 'pipeline': [{'$unionWith': {'coll': '$cmd.aggregate', 'pipeline': [{'$currentOp': {}}]}}], "
      "'cursor': {}, '$db': 'admin'}";
  CHECK(!may(read, inside));
  CHECK(may(grants({{"read", "admin"}, {"clusterMonitor", "admin"}}), inside));
  CHECK(may(read, "{'currentOp': 1, '$ownOps': true, '$db': 'admin'}"));
  CHECK(may(monitor, "{'currentOp': 1, '$db': 'admin'}"));
  CHECK(may(monitor, "{'serverStatus': 1, '$db': 'admin'}"));
  CHECK(!may(monitor, "{'setParameter': 1, '$db': 'admin'}"));
  CHECK(!may(monitor, "{'find': 'c', '$db': 'app'}"));
  CHECK(may(grants({{"clusterAdmin", "admin"}}), "{'profile': 0, 'slowms': 5, '$db': 'app'}"));
  CHECK(!may(grants({{"dbAdmin", "app"}}), "{'profile': 0, 'slowms': 5, '$db': 'app'}"));
}

TEST_CASE("an upsert needs the right to insert") {
  // There is no role that updates and does not insert: privileges are put together by hand.
  struct Case {
    const char* command;
    bool expected;
  };
  const auto none = grants({{"read", "app"}});
  for (const Case& c :
       {Case{"{'update': 'c', 'updates': [{'q': {}, 'u': {}}], '$db': 'app'}", false},
        Case{"{'findAndModify': 'c', 'update': {}, '$db': 'app'}", false}}) {
    CHECK(may(none, c.command) == c.expected);
  }
}

TEST_CASE("a view shows no more than its maker may see") {
  const auto admin = grants({{"dbAdmin", "app"}});
  const auto both = grants({{"dbAdmin", "app"}, {"read", "app"}});
  CHECK(may(admin, "{'create': 'c', '$db': 'app'}"));
  // One that its maker cannot read shows nothing to its maker.
  CHECK(may(admin, "{'create': 'v', 'viewOn': 'c', 'pipeline': [], '$db': 'app'}"));
  const auto of_view = auth::Privileges::of_resolved(
      {{.db = "app", .actions = {auth::Action::coll_mod}},
       {.db = "app", .collection = "v", .actions = {auth::Action::find, auth::Action::create_collection}}});
  CHECK(!may(of_view, "{'create': 'v', 'viewOn': 'c', 'pipeline': [], '$db': 'app'}"));
  CHECK(!may(of_view, "{'collMod': 'v', 'viewOn': 'c', 'pipeline': [], '$db': 'app'}"));
  CHECK(!may(of_view, "{'collMod': 'v', 'pipeline': [], '$db': 'app'}"));
  CHECK(!may(both, "{'collMod': 'v', 'viewOn': 'c', '$db': 'app'}"));
  CHECK(may(both, "{'collMod': 'v', 'viewOn': 'c', 'pipeline': [], '$db': 'app'}"));
  CHECK(may(both, "{'create': 'v', 'viewOn': 'c', 'pipeline': [], '$db': 'app'}"));
  CHECK(!may(both,
             "{'create': 'v', 'viewOn': 'c', 'pipeline': [{'$unionWith': 'system.users'}], '$db': "
             "'app'}"));
  CHECK(!may(both, "{'collMod': 'v', 'viewOn': 'system.users', 'pipeline': [], '$db': 'app'}"));
}

TEST_CASE("a collection that a user cannot read gets no name that the user can read") {
  using auth::Action;
  const auto privileges = auth::Privileges::of_resolved(
      {{.db = "app",
        .actions = {Action::rename_collection_same_db, Action::drop_collection, Action::create_collection}},
       {.db = "app", .collection = "public", .actions = {Action::find}}});
  CHECK(!may(privileges, "{'renameCollection': 'app.secret', 'to': 'app.public', 'dropTarget': true, '$db': 'admin'}"));
  CHECK(may(privileges, "{'renameCollection': 'app.secret', 'to': 'app.hidden', 'dropTarget': true, '$db': 'admin'}"));
  CHECK(may(privileges, "{'renameCollection': 'app.public', 'to': 'app.hidden', '$db': 'admin'}"));
  CHECK(!may(privileges, "{'renameCollection': 'app.a', 'to': 'app.system.js', '$db': 'admin'}"));
  constexpr const char* of_buckets =
      "{'renameCollection': 'app.system.buckets.a', 'to': 'app.system.buckets.b', '$db': 'admin'}";
  std::vector<auth::Privilege> on_buckets{
      {.on = auth::Privilege::On::buckets,
       .actions = {Action::find, Action::insert, Action::drop_collection, Action::create_index,
                   Action::create_collection}}};
  CHECK(!may(auth::Privileges::of_resolved(on_buckets), of_buckets));
  on_buckets.push_back({.on = auth::Privilege::On::cluster, .actions = {Action::set_user_write_block_mode}});
  CHECK(may(auth::Privileges::of_resolved(on_buckets), of_buckets));
  CHECK(!may(privileges, "{'create': 'c', 'capped': true, 'size': 9, '$db': 'app'}"));
  const auto inserts = auth::Privileges::of_resolved({{.db = "app", .actions = {Action::insert}}});
  CHECK(may(inserts, "{'create': 'c', '$db': 'app'}"));
  CHECK(!may(inserts, "{'create': 'c', 'capped': true, 'size': 9, '$db': 'app'}"));
  CHECK(!may(inserts, "{'create': 'c', 'viewOn': 'd', 'pipeline': [], '$db': 'app'}"));
  CHECK(may(privileges, "{'create': 'c', '$db': 'app'}"));
}

TEST_CASE("a user with rights on some collections may list their names") {
  const auto privileges =
      auth::Privileges::of_resolved({{.db = "app", .collection = "orders", .actions = {auth::Action::find}}});
  CHECK(!may(privileges, "{'listCollections': 1, '$db': 'app'}"));
  CHECK(!may(privileges, "{'listCollections': 1, 'authorizedCollections': true, '$db': 'app'}"));
  CHECK(may(privileges, "{'listCollections': 1, 'nameOnly': true, 'authorizedCollections': true, '$db': 'app'}"));
  CHECK(!may(privileges, "{'listCollections': 1, 'nameOnly': true, 'authorizedCollections': true, '$db': 'other'}"));
}

}  // namespace
}  // namespace spillway::exec
