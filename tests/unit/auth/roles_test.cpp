#include "proxy/auth/roles.h"

#include <catch2/catch.hpp>

namespace spillway::auth {
namespace {

using enum Action;

Privileges of(std::initializer_list<RoleGrant> grants) {
  return Privileges(std::vector<RoleGrant>(grants));
}
Privileges of(const char* role, const char* db) { return of({RoleGrant{role, db}}); }

TEST_CASE("roles of one database reach that one", "[auth]") {
  const Privileges read = of("read", "app");
  CHECK(read.allows({find, list_collections, coll_stats}, "app", "things"));
  CHECK(read.allows(find, "app", "system.js"));
  CHECK(!read.allows(insert, "app", "things"));
  CHECK(!read.allows(find, "other", "things"));
  CHECK(!read.allows(find, "app", "system.users"));
  CHECK(!read.allows(find, "app", "system.profile"));
  CHECK(!read.allows(find, "app", "system.buckets.weather"));
  CHECK(read.allows(find, "app", "systematic"));
  CHECK(read.on_cluster().empty());
  CHECK(read.touches("app"));
  CHECK(!read.touches("other"));

  const Privileges write = of("readWrite", "app");
  CHECK(
      write.allows({find, insert, update, remove, create_index, drop_collection}, "app", "things"));
  CHECK(!write.allows(coll_mod, "app", "things"));
  CHECK(!write.allows(drop_database, "app", ""));
  CHECK(!write.allows(insert, "app", "system.views"));

  const Privileges admin = of("dbAdmin", "app");
  CHECK(admin.allows({coll_mod, validate, drop_database, create_index}, "app", "things"));
  CHECK(!admin.allows(find, "app", "things"));
  CHECK(admin.allows(find, "app", "system.profile"));
  CHECK(!admin.allows(insert, "app", "things"));
}

TEST_CASE("a user of the database admin does not read others' credentials", "[auth]") {
  for (const char* role : {"read", "readWrite", "dbAdmin"}) {
    CHECK(!of(role, "admin").allows(find, "admin", "system.users"));
  }
  for (const char* role :
       {"readAnyDatabase", "readWriteAnyDatabase", "dbAdminAnyDatabase", "clusterMonitor"}) {
    CHECK(!of(role, "admin").allows(find, "admin", "system.users"));
  }
  CHECK(of("root", "admin").allows(find, "admin", "system.users"));
}

TEST_CASE("roles on any database leave out those apart", "[auth]") {
  const Privileges read = of("readAnyDatabase", "admin");
  CHECK(read.allows(find, "app", "things"));
  CHECK(read.allows(find, "admin", "things"));
  CHECK(read.on_cluster().has(list_databases));
  for (const char* apart : {"config", "local", "spillway"})
    CHECK(!read.allows(find, apart, "things"));
  CHECK(!read.allows(insert, "app", "things"));
  const Privileges write = of("readWriteAnyDatabase", "admin");
  CHECK(write.allows({insert, find}, "app", "things"));
  CHECK(!write.allows(insert, "config", "chunks"));
}

TEST_CASE("roles on the cluster", "[auth]") {
  const Privileges monitor = of("clusterMonitor", "admin");
  CHECK(monitor.on_cluster().has({server_status, inprog, list_databases, get_parameter}));
  CHECK(!monitor.on_cluster().has(kill_op));
  CHECK(!monitor.on_cluster().has(set_parameter));
  CHECK(monitor.allows(find, "config", "chunks"));
  CHECK(monitor.allows({coll_stats, db_stats}, "app", "things"));
  CHECK(!monitor.allows(find, "app", "things"));
  const Privileges cluster = of("clusterAdmin", "admin");
  CHECK(
      cluster.on_cluster().has({kill_op, kill_any_cursor, set_parameter, shutdown, server_status}));
  CHECK(cluster.allows(drop_database, "app", ""));
  CHECK(!cluster.allows(find, "app", "things"));
  const Privileges root = of("root", "admin");
  CHECK(root.on_cluster().has({view_user, shutdown, inprog}));
  CHECK(root.allows({find, insert, coll_mod, drop_database}, "app", "system.buckets.weather"));
}

TEST_CASE("grants add up", "[auth]") {
  const Privileges both = of({RoleGrant{"read", "a"}, RoleGrant{"readWrite", "b"},
                              RoleGrant{"clusterMonitor", "admin"}, RoleGrant{"dbAdmin", "a"}});
  CHECK(both.allows({find, coll_mod}, "a", "x"));
  CHECK(!both.allows(insert, "a", "x"));
  CHECK(both.allows(insert, "b", "x"));
  CHECK(both.on_cluster().has(server_status));
}

TEST_CASE("what is no role allows nothing", "[auth]") {
  for (const RoleGrant& wrong : std::vector<RoleGrant>{{"reader", "app"},
                                                       {"root", "app"},
                                                       {"clusterMonitor", "app"},
                                                       {"read", ""},
                                                       {"backup", "admin"}}) {
    CHECK(check_role(wrong).has_error());
    const Privileges none = of({wrong});
    CHECK(none.on_cluster().empty());
    CHECK(none.on("app", "things").empty());
    CHECK(none.on("admin", "things").empty());
  }
  for (const std::string_view name : role_names()) {
    CHECK(!check_role({std::string(name), "admin"}).has_error());
  }
}

}  // namespace
}  // namespace spillway::auth
