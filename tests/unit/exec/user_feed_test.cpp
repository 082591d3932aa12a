#include "proxy/exec/access/user_feed.h"

#include <catch2/catch.hpp>
#include <string>

#include "proxy/exec/access/authentication.h"
#include "proxy/exec/commands/command_table.h"
#include "tests/support/clock_manual.h"
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

TEST_CASE("a list of users that is not whole changes nothing") {
  std::string users = stored("ann", ""), id = "0";
  test::FakeWorker worker(test::routing_of(one_shard), [&](std::uint16_t, DocView command) -> Result<BsonDoc> {
    if (command.first().name == "killCursors") return test::doc("{'ok': 1}");
    CHECK(command["projection"].as_document()["credentials"].truthy());
    CHECK_FALSE(command["singleBatch"].exists());
    return test::doc("{'cursor': {'id': {'$numberLong': '" + id + "'}, 'ns': 'admin.system.users', 'firstBatch': [" +
                     users + "]}, 'ok': 1}");
  });
  worker.shared.users_from = 0;
  const auto read = [&] {
    worker.gateway.sent.clear();
    return !worker.run(read_stored_users(worker.context)).has_error();
  };
  CHECK(read());
  CHECK(worker.gateway.sent.size() == 1);
  users = stored("bob", "");
  id = "77";  // a reply was full
  CHECK_FALSE(read());
  CHECK(worker.shared.users.table()->find("admin", "ann"));
  REQUIRE(worker.gateway.sent.size() == 2);
  CHECK(worker.gateway.sent[1].second.view()["cursors"].as_document()["0"].to_int64() == 77);
  id = "0";
  users.clear();
  for (int i = 0; i < 10'001; ++i) users += (i == 0 ? "" : ",") + ("{'user': 'u" + std::to_string(i)) + "', 'db': 'a'}";
  CHECK_FALSE(read());
  CHECK(worker.shared.users.table()->find("admin", "ann"));
  users.resize(users.rfind(",{"));
  CHECK(read());
  CHECK(worker.shared.users.table()->size() == 10'000);
}

// Config servers of 4.2.0, as far as users go.
struct ConfigServers {
  Result<BsonDoc> answer(DocView command) {
    const std::string name(command.first().name);
    asked.push_back(name);
    if (refused) return test::doc("{'ok': 0, 'code': 13, 'errmsg': 'not authorized'}");
    if (name == "_getUserCacheGeneration") {
      if (!tells_generation) return test::doc("{'ok': 0, 'code': 13, 'errmsg': 'not authorized'}");
      return test::doc("{'cacheGeneration': {'$oid': '6b03d9e10d3d5a0eea239b" + generation + "'}, 'ok': 1}");
    }
    const Element which = command.first();
    std::string users;
    if (which.is_document()) {
      for (int i = 0; i < count; ++i) users += (i == 0 ? "" : ",") + ("{'user': '" + user(i) + "', 'db': 'app'}");
    } else {
      CHECK(command["showCredentials"].truthy());
      CHECK(command["showPrivileges"].truthy());
      CHECK(command["showAuthenticationRestrictions"].truthy());
      if (which.as_document().count() > at_once_max) return test::doc("{'ok': 0, 'code': 10334, 'errmsg': 'large'}");
      for (const Element& item : which.as_document()) {
        if (item.as_document()["user"].as_string() == broken) return test::doc(broken_reply);
        users += users.empty() ? "" : ",";
        users += "{'user': '" + std::string(item.as_document()["user"].as_string()) + R"(', 'db': 'app',
          'roles': [{'role': 'counter', 'db': 'admin'}],
          'inheritedRoles': [{'role': 'counter', 'db': 'admin'}, {'role': 'read', 'db': 'logs'}],
          'inheritedPrivileges': [{'resource': {'db': 'app', 'collection': 'x'}, 'actions': [)" +
                 actions + R"(]}, {'resource': {'db': 'logs', 'collection': ''}, 'actions': ['find']}],
          'authenticationRestrictions': [], 'inheritedAuthenticationRestrictions': []})";
      }
    }
    return test::doc("{'users': [" + users + "], 'ok': 1}");
  }
  static std::string user(int i) { return "user" + std::to_string(i); }

  int count = 2;
  std::size_t at_once_max = 50;
  std::string broken;  // what is asked about this user gets:
  std::string broken_reply = "{'ok': 0, 'code': 10334, 'errmsg': 'large'}";
  std::string generation = "a4";
  std::string actions = "'find', 'collStats'";
  bool tells_generation = true;
  bool refused = false;
  std::vector<std::string> asked;
};

// A worker whose users are those of the cluster.
struct ClusterWorker : test::FakeWorker {
  explicit ClusterWorker(ConfigServers& config)
      : FakeWorker(test::routing_of(one_shard),
                   [&config](std::uint16_t, DocView command) { return config.answer(command); }) {
    shared.users_from = 0;
    shared.users_of_cluster = true;
  }
};

using Asked = std::vector<std::string>;

TEST_CASE("users of a cluster come with what their roles allow, custom ones too") {
  ConfigServers config;
  ClusterWorker worker(config);
  REQUIRE(!worker.run(read_stored_users(worker.context)).has_error());
  CHECK(config.asked == Asked{"_getUserCacheGeneration", "usersInfo", "usersInfo"});
  const auto bob = worker.shared.users.table()->find("app", "user1");
  REQUIRE(bob);
  CHECK(bob->roles == std::vector<auth::RoleGrant>{{"counter", "admin"}});
  REQUIRE(bob->resolved);
  CHECK(bob->resolved->roles == std::vector<auth::RoleGrant>{{"counter", "admin"}, {"read", "logs"}});
  CHECK(bob->privileges.allows({auth::Action::find, auth::Action::coll_stats}, "app", "x"));
  CHECK_FALSE(bob->privileges.allows(auth::Action::find, "app", "y"));
  CHECK(bob->privileges.allows(auth::Action::find, "logs", "y"));
}

TEST_CASE("users of a cluster are read again when its servers say that they have changed") {
  ConfigServers config;
  ClusterWorker worker(config);
  std::string generation;
  const auto read = [&] {
    config.asked.clear();
    return worker.run(read_cluster_users(worker.context, &generation)).has_error();
  };
  CHECK_FALSE(read());
  CHECK(config.asked.size() == 3);
  CHECK_FALSE(read());
  CHECK(config.asked == Asked{"_getUserCacheGeneration"});
  // A role of theirs lost an action.
  config.generation = "b9";
  config.actions = "'collStats'";
  config.refused = true;
  CHECK(read());  // and the next try reads them all the same
  CHECK(worker.shared.users.table()->find("app", "user1")->privileges.allows(auth::Action::find, "app", "x"));
  config.refused = false;
  CHECK_FALSE(read());
  CHECK(config.asked.size() == 3);
  CHECK_FALSE(worker.shared.users.table()->find("app", "user1")->privileges.allows(auth::Action::find, "app", "x"));
  // Without the right to ask for the generation the router reads them each time.
  config.tells_generation = false;
  CHECK_FALSE(read());
  CHECK(config.asked.size() == 3);
  // As many as a reply has room for at once.
  config.count = 120;
  CHECK_FALSE(read());
  CHECK(config.asked.size() == 2 + 3);
  CHECK(worker.shared.users.table()->size() == 120);
  config.count = 0;
  CHECK_FALSE(read());
  CHECK(worker.shared.users.table()->empty());
}

TEST_CASE("users that do not fit into one reply do not keep the others from being read") {
  ConfigServers config;
  ClusterWorker worker(config);
  config.count = 120;
  REQUIRE(!worker.run(read_stored_users(worker.context)).has_error());
  CHECK(worker.shared.users.table()->size() == 120);
  config.generation = "b9";
  config.actions = "'collStats'";
  config.at_once_max = 7;
  config.broken = ConfigServers::user(33);
  REQUIRE(!worker.run(read_stored_users(worker.context)).has_error());
  CHECK(worker.shared.users.table()->size() == 119);
  CHECK_FALSE(worker.shared.users.table()->find("app", config.broken));
  for (const int i : {0, 32, 34, 119}) {
    const auto user = worker.shared.users.table()->find("app", ConfigServers::user(i));
    REQUIRE(user);
    CHECK_FALSE(user->privileges.allows(auth::Action::find, "app", "x"));
  }
  // After any other error all stay as they were.
  config.broken_reply = "{'ok': 0, 'code': 50, 'errmsg': 'time'}";
  CHECK(worker.run(read_stored_users(worker.context)).has_error());
  CHECK(worker.shared.users.table()->size() == 119);
}

TEST_CASE("a change that overtakes the read after another one hides neither") {
  ConfigServers config;
  int asked = 0;
  test::FakeWorker worker(test::routing_of(one_shard), [&](std::uint16_t, DocView command) {
    if (command.first().is_array() && ++asked == 1) {  // between the question and its answer
      auth::UserDirectory& users = worker.shared.users;
      users.feed_one(users.begin_read(), "app", "another", nullptr);
    }
    return config.answer(command);
  });
  worker.shared.users_from = 0;
  worker.shared.users_of_cluster = true;
  const bool one = GENERATE(true, false);
  std::string generation;
  const auto read = worker.run(one ? read_cluster_user(worker.context, "user1", "app")
                                   : read_cluster_users(worker.context, &generation));
  CHECK_FALSE(read.has_error());
  CHECK(worker.shared.users.table()->find("app", "user1") != nullptr);
  CHECK(asked == 2);
}

TEST_CASE("config servers that do not tell what roles allow have users with built-in ones") {
  std::vector<std::string> asked;
  test::FakeWorker worker(test::routing_of(one_shard), [&](std::uint16_t, DocView command) -> Result<BsonDoc> {
    asked.emplace_back(command.first().name);
    if (asked.back() != "find") return test::doc("{'ok': 0, 'code': 13, 'errmsg': 'not authorized'}");
    return test::doc(R"({'cursor': {'firstBatch': [{'user': 'ann', 'db': 'app', 'credentials': {},
        'roles': [{'role': 'read', 'db': 'app'}]}], 'id': 0, 'ns': 'admin.system.users'}, 'ok': 1})");
  });
  worker.shared.users_from = 0;
  worker.shared.users_of_cluster = true;
  const bool one = GENERATE(true, false);
  REQUIRE_FALSE(worker.run(one ? read_cluster_user(worker.context, "ann", "app") : read_stored_users(worker.context))
                    .has_error());
  CHECK(asked.back() == "find");
  CHECK(worker.shared.users.table()->find("app", "ann")->privileges.allows(auth::Action::find, "app", "x"));
}

TEST_CASE("a login may name a user of the cluster who has just been made elsewhere") {
  ConfigServers config;
  test::FakeWorker worker(test::routing_of(one_shard), [&](std::uint16_t, DocView command) {
    return config.answer(command);
  });
  Client client;
  client.peer = "192.0.2.1:5000";
  wire::HelloRequest hello;
  hello.sasl_supported_mechs = "app.user1";
  CHECK_FALSE(user_to_learn(worker.context, client, hello));  // its users are not a cluster's
  worker.shared.users_from = 0;
  worker.shared.users_of_cluster = true;
  test::advance_time(std::chrono::seconds(1));
  auto user = user_to_learn(worker.context, client, hello);
  REQUIRE(user);
  CHECK_FALSE(user_to_learn(worker.context, client, hello));  // just now
  worker.context.background.start(learn_user(worker.context, *std::move(user)));
  CHECK(config.asked == Asked{"usersInfo"});
  CHECK(worker.shared.users.table()->find("app", "user1"));
  test::advance_time(std::chrono::seconds(1));
  CHECK_FALSE(user_to_learn(worker.context, client, hello));
  // n,,n=user2,r=…
  const BsonDoc start = test::doc(R"({'saslStart': 1, 'mechanism': 'SCRAM-SHA-256', 'db': 'app', 'payload':
      {'$binary': {'base64': 'biwsbj11c2VyMixyPWFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eA==', 'subType': '00'}}})");
  hello.sasl_supported_mechs.reset();
  hello.speculative_authenticate = start.view();
  user = user_to_learn(worker.context, client, hello);
  REQUIRE(user);
  CHECK(user->name == "user2");
  CHECK(user->db == "app");
}

TEST_CASE("lookups at logins neither hide a change of users nor are undone by an older read") {
  auth::UserDirectory users;
  const auto user = [](const char* name) { return auth::UserSpec{name, "app", {}, {}, {}}; };
  const std::uint64_t older = users.begin_read(), lookup = users.begin_read();
  users.feed_new(lookup, user("ann"));
  CHECK(users.table()->find("app", "ann"));
  CHECK(users.feed(older, {user("bob")}).has_value());  // of before ann was made
  CHECK(users.table()->find("app", "ann"));
  CHECK(users.table()->find("app", "bob"));
  const std::uint64_t late = users.begin_read();
  CHECK(users.feed(users.begin_read(), {user("bob")}).has_value());  // ann was dropped
  CHECK_FALSE(users.table()->find("app", "ann"));
  users.feed_new(late, user("ann"));
  CHECK_FALSE(users.table()->find("app", "ann"));
}

TEST_CASE("an older answer brings back no user that a shard has not any more") {
  test::FakeWorker worker(test::routing_of(one_shard), [&](std::uint16_t, DocView) {
    auth::UserDirectory& users = worker.shared.users;
    users.feed(users.begin_read(), {});  // between the question and its answer
    return test::doc(R"({'cursor': {'firstBatch': [{'user': 'ann', 'db': 'app', 'credentials': {},
        'roles': [{'role': 'read', 'db': 'app'}]}], 'id': 0, 'ns': 'admin.system.users'}, 'ok': 1})");
  });
  worker.shared.users_from = 0;
  CHECK_FALSE(worker.run(read_stored_users(worker.context)).has_error());
  CHECK(worker.shared.users.table()->find("app", "ann") == nullptr);
}

TEST_CASE("a user of a cluster that is kept to some addresses is left out") {
  std::size_t unknown = 0;
  const auto allowed = [&](const std::string& restrictions) {
    return parse_stored_user(test::doc("{'user': 'a', 'db': 'b', 'inheritedPrivileges': [], " + restrictions + "}"),
                             unknown)
        .has_value();
  };
  CHECK(allowed("'authenticationRestrictions': [], 'inheritedAuthenticationRestrictions': []"));
  CHECK(allowed("'inheritedAuthenticationRestrictions': [[], []]"));
  CHECK_FALSE(allowed("'authenticationRestrictions': [{'clientSource': ['10.0.0.1']}]"));
  CHECK_FALSE(allowed("'inheritedAuthenticationRestrictions': [[], [{'clientSource': ['10.0.0.1']}]]"));
}


// The first worker of a router whose shard has these users, and a client that is ann.
struct FedRouter {
  explicit FedRouter(bool in_cluster = false) {
    if (in_cluster) worker.context.router = &cluster_router;
    worker.shared.users_from = 0;
    REQUIRE_FALSE(worker.run(read_stored_users(worker.context)).has_error());
    feed.tick(worker.context, now);
    log_in();
  }
  ~FedRouter() { worker.context.router = &worker.context.static_router; }

  Result<BsonDoc> answer() const {
    if (away) return Error(ErrorCode::failed_to_satisfy_read_preference, "no primary");
    return test::doc("{'cursor': {'id': {'$numberLong': '0'}, 'ns': 'admin.system.users', 'firstBatch': [" + users +
                     "]}, 'ok': 1}");
  }
  static std::string ann(const std::string& more = "") {
    return "{'user': 'ann', 'db': 'admin', 'roles': [{'role': 'read', 'db': 'app'}], 'credentials': {}" + more + "}";
  }
  static std::string ann_with_id(const char* base64) {
    return ann(std::string(", 'userId': {'$binary': {'base64': '") + base64 + "', 'subType': '04'}}");
  }
  void log_in() {
    client.login.user = worker.shared.users.table()->find("admin", "ann");
    REQUIRE(client.login.user);
    client.login.generation = worker.shared.users.generation();
    client.user = client.login.user->id;
  }
  void refresh(int times = 1) {
    for (; times > 0; --times) {
      now += std::chrono::seconds(31);
      feed.tick(worker.context, now);
      worker.loop.poll_until_idle();
    }
  }
  // As before each command.
  bool is_logged_in() {
    refresh_login(worker.shared.users, client);
    CHECK(client.user == (client.login.user ? "admin.ann" : ""));
    return client.login.user != nullptr;
  }

  std::string users = ann();
  bool away = false;
  test::FakeWorker worker{test::routing_of(one_shard), [this](std::uint16_t, DocView) { return answer(); }};
  StaticRouter cluster_router{worker.shared.routing};
  UserFeed feed;
  TimePoint now = Clock::now();
  Client client;
};

TEST_CASE("a cluster's users keep their rights for as long as they cannot be read") {
  FedRouter router(true);
  router.away = true;
  router.refresh(30);
  CHECK(router.is_logged_in());
  CHECK(router.worker.shared.users.table()->size() == 1);
  router.away = false;
  router.users = "";
  router.refresh();
  CHECK_FALSE(router.is_logged_in());
}

TEST_CASE("users of a shard that cannot be read lose access, and have it again when they are read again") {
  FedRouter router;
  router.away = true;
  router.refresh(9);
  CHECK(router.is_logged_in());
  router.refresh();
  CHECK_FALSE(router.is_logged_in());
  CHECK(router.worker.shared.users.table()->empty());
  router.refresh(3);
  CHECK_FALSE(router.is_logged_in());
  router.away = false;
  router.refresh();
  CHECK(router.is_logged_in());
  CHECK(router.client.login.user->privileges.allows(auth::Action::find, "app", "c"));
  SECTION("but not if the shard has dropped them meanwhile") {
    router.away = true;
    router.refresh(10);
    CHECK_FALSE(router.is_logged_in());
    router.away = false;
    router.users = "";
    router.refresh();
    CHECK_FALSE(router.is_logged_in());
    router.users = FedRouter::ann();
    router.refresh();
    CHECK_FALSE(router.is_logged_in());
  }
  SECTION("nor if they have logged out") {
    router.away = true;
    router.refresh(10);
    CHECK_FALSE(router.is_logged_in());
    test::FakeRequest request("{'logout': 1, '$db': 'admin'}");
    const auto reply = test::reply_of(router.worker.run(run_command(router.worker.context, router.client,
                                                                    request.request)));
    CHECK(reply.view()["ok"].truthy());
    router.away = false;
    router.refresh();
    CHECK_FALSE(router.is_logged_in());
  }
}

TEST_CASE("a user that was dropped and made again under its name is another one") {
  FedRouter router;
  router.users = FedRouter::ann_with_id("AAAAAAAAAAAAAAAAAAAAAA==");
  router.refresh();
  CHECK(router.is_logged_in());  // from a server that did not tell ids
  router.log_in();
  router.users = FedRouter::ann();
  router.refresh();
  CHECK(router.is_logged_in());
  router.users = FedRouter::ann_with_id("AAAAAAAAAAAAAAAAAAAAAA==");
  router.refresh();
  router.log_in();
  SECTION("while its connection is idle") {
    router.users = FedRouter::ann_with_id("AQAAAAAAAAAAAAAAAAAAAA==");
    router.refresh();
    CHECK_FALSE(router.is_logged_in());
    CHECK(router.worker.shared.users.table()->size() == 1);
    router.users = FedRouter::ann_with_id("AAAAAAAAAAAAAAAAAAAAAA==");
    router.refresh();
    CHECK_FALSE(router.is_logged_in());
  }
  SECTION("while users could not be read") {
    router.away = true;
    router.refresh(10);
    CHECK_FALSE(router.is_logged_in());
    router.away = false;
    router.users = FedRouter::ann_with_id("AQAAAAAAAAAAAAAAAAAAAA==");
    router.refresh();
    CHECK_FALSE(router.is_logged_in());
  }
}

// Notes of which members users are asked.
struct NotingGateway final : shard::Gateway {
  explicit NotingGateway(shard::Gateway& to) : gateway(to) {}
  Task<Result<shard::Reply>> call(std::uint16_t shard, shard::Command command, shard::CallOptions options) override {
    modes.push_back(options.read_preference == nullptr ? shard::ReadMode::primary : options.read_preference->mode);
    return gateway.call(shard, std::move(command), std::move(options));
  }
  const std::vector<shard::ShardState>& states() const override { return gateway.states(); }
  Task<bool> wait_until_known(TimePoint deadline) override { return gateway.wait_until_known(deadline); }
  void tick(TimePoint) override {}
  Task<void> shut_down() override { co_return; }

  shard::Gateway& gateway;
  std::vector<shard::ReadMode> modes;
};

TEST_CASE("without a primary another member tells the users") {
  ConfigServers config;
  ClusterWorker worker(config);
  NotingGateway noting(worker.gateway);
  Context context{worker.loop, worker.pump, noting, worker.shared, 0, {}};
  REQUIRE(!worker.run(read_stored_users(context)).has_error());
  CHECK(noting.modes == std::vector<shard::ReadMode>(3, shard::ReadMode::primary_preferred));
  for (const auto& [shard, command] : worker.gateway.sent) {
    CHECK(command.view()["$readPreference"] == test::doc("{'x': {'mode': 'primaryPreferred'}}").view()["x"]);
  }
}

}  // namespace
}  // namespace spillway::exec
