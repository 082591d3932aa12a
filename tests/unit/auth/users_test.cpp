#include "proxy/auth/users.h"

#include <barrier>
#include <catch2/catch.hpp>
#include <thread>

namespace spillway::auth {
namespace {

ScramCredentials credentials(Hash hash, const char* user, const char* password,
                             std::uint32_t iterations) {
  return make_credentials(hash, **scram_password(hash, user, password),
                          bytes_of("sixteen bytes of"), iterations);
}

UserSpec user(const char* name, bool sha1 = false, std::uint32_t iterations = 5'000) {
  UserSpec spec{name, "admin", {{"read", "app"}}, {}, {}};
  spec.sha256 = credentials(Hash::sha256, name, "secret", iterations);
  if (sha1) spec.sha1 = credentials(Hash::sha1, name, "secret", iterations);
  return spec;
}

TEST_CASE("users are found by database and name", "[auth]") {
  const UserTable table({user("ann"), user("bob", true), {"CN=x,O=y", "$external", {}, {}, {}}});
  REQUIRE(table.find("admin", "ann"));
  CHECK(table.find("admin", "ann")->id == "admin.ann");
  CHECK(table.find("admin", "ann")->privileges.allows(Action::find, "app", "things"));
  CHECK(!table.find("app", "ann"));
  CHECK(!table.find("admin", "an"));
  CHECK(table.find("$external", "CN=x,O=y"));
  CHECK(table.size() == 3);
  CHECK(table.all().front()->id == "$external.CN=x,O=y");
}

TEST_CASE("an unknown user looks like others", "[auth]") {
  const UserTable table(
      {user("ann", false, 6'000), user("bob", false, 6'000), user("eve", true, 7'000)});
  CHECK(table.offers("admin", "ann", Hash::sha256));
  CHECK(!table.offers("admin", "ann", Hash::sha1));
  CHECK(table.offers("admin", "eve", Hash::sha1));
  CHECK(table.offers("admin", "nobody", Hash::sha256));
  CHECK(!table.offers("admin", "nobody", Hash::sha1));
  const auto fake = table.credentials(Hash::sha256, "admin", "nobody");
  CHECK(!fake.known);
  CHECK(fake.credentials.iterations == 6'000);
  CHECK(fake.credentials == table.credentials(Hash::sha256, "admin", "nobody").credentials);
  // A start with the same users makes the same. A table without passwords of that kind makes none.
  const UserTable again(
      {user("eve", true, 7'000), user("ann", false, 6'000), user("bob", false, 6'000)});
  CHECK(fake.credentials == again.credentials(Hash::sha256, "admin", "nobody").credentials);
  CHECK(!table.credentials(Hash::sha1, "admin", "ann").known);
  CHECK(table.credentials(Hash::sha256, "admin", "ann").known);
}

TEST_CASE("without users there is an offer, too", "[auth]") {
  const UserTable none({});
  CHECK(none.empty());
  CHECK(none.offers("admin", "nobody", Hash::sha256));
  CHECK(!none.credentials(Hash::sha256, "admin", "nobody").known);
  CHECK(none.credentials(Hash::sha256, "admin", "nobody").credentials.iterations == 15'000);
}

TEST_CASE("a directory says that it has changed", "[auth]") {
  UserDirectory directory;
  const auto before = directory.generation();
  CHECK(directory.table()->empty());
  CHECK(directory.configure({user("ann")}));
  CHECK(directory.generation() != before);
  CHECK(directory.table()->size() == 1);
}

TEST_CASE("an unknown user looks the same after users have changed", "[auth]") {
  UserDirectory directory;
  directory.configure({user("ann"), user("bob")});
  const auto salt = [&] { return directory.table()->credentials(Hash::sha256, "admin", "nobody").credentials.salt; };
  const auto before = salt();
  CHECK(directory.configure({user("ann"), user("bob"), user("eve")}));
  CHECK(salt() == before);
  CHECK(directory.feed({user("dan")}));
  CHECK(salt() == before);
  CHECK(directory.configure({user("eve")}));
  CHECK(salt() == before);
  // A start with the same users makes the same.
  UserDirectory again;
  again.configure({user("bob"), user("ann")});
  CHECK(again.table()->credentials(Hash::sha256, "admin", "nobody").credentials.salt == before);
}

TEST_CASE("what an earlier read found does not replace what a later one has fed", "[auth]") {
  UserDirectory directory;
  const auto names = [&] {
    std::string all;
    for (const auto& one : directory.table()->all()) all += one->name + " ";
    return all;
  };
  const std::uint64_t first = directory.begin_read(), second = directory.begin_read();
  const UserSpec ann = user("ann"), bob = user("bob", false, 6'000), other_bob = user("bob", false, 7'000);
  CHECK(directory.feed(second, {ann, bob}) == true);
  CHECK(directory.feed(first, {ann}) == std::nullopt);
  CHECK(directory.feed_one(first, "admin", "bob", nullptr) == std::nullopt);
  CHECK(names() == "ann bob ");
  CHECK(directory.feed(directory.begin_read(), {ann, bob}) == false);
  CHECK(directory.feed_one(directory.begin_read(), "admin", "bob", &other_bob) == true);
  CHECK(names() == "ann bob ");
  CHECK(directory.table()->find("admin", "bob")->sha256->iterations == 7'000);
  CHECK(directory.feed_one(directory.begin_read(), "admin", "ann", nullptr) == true);
  CHECK(directory.feed_one(directory.begin_read(), "admin", "ann", nullptr) == false);
  CHECK(names() == "bob ");
  CHECK(directory.feed_one(directory.begin_read(), "admin", "ann", &ann) == true);
  CHECK(names() == "ann bob ");
}

TEST_CASE("users that cannot be read any more are out of the table until they are fed again", "[auth]") {
  UserDirectory directory;
  const UserSpec ann = user("ann"), bob = user("bob");
  directory.configure({ann});
  directory.feed({bob});
  CHECK_FALSE(directory.table()->lacks_fed());
  directory.suspend_fed();
  const std::uint64_t generation = directory.generation();
  directory.suspend_fed();
  CHECK(directory.generation() == generation);
  CHECK(directory.table()->lacks_fed());
  CHECK(directory.table()->find("admin", "ann"));
  CHECK_FALSE(directory.table()->find("admin", "bob"));
  CHECK(directory.configure({}));
  CHECK(directory.table()->lacks_fed());
  CHECK(directory.table()->empty());
  CHECK(directory.feed({bob}));
  CHECK_FALSE(directory.table()->lacks_fed());
  CHECK(directory.table()->find("admin", "bob"));
  CHECK_FALSE(directory.feed({bob}));
}

TEST_CASE("strangers' names at some addresses leave a look-up for a new user at another", "[auth]") {
  UserDirectory directory;
  TimePoint now{std::chrono::seconds(100)};
  int asked = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "stranger" + std::to_string(i), address = "192.0.2." + std::to_string(i % 4);
    asked += directory.may_ask_for("app", name, address, now) ? 1 : 0;
  }
  CHECK(asked == 8);  // two for each address
  CHECK(directory.may_ask_for("app", "ann", "192.0.2.9", now));
  CHECK_FALSE(directory.may_ask_for("app", "ann", "192.0.2.8", now));  // she is asked for
  CHECK(directory.may_ask_for("other", "ann", "192.0.2.8", now));
  CHECK_FALSE(directory.may_ask_for("app", "bob", "192.0.2.7", now));  // ten in all
  now += std::chrono::milliseconds(999);
  CHECK_FALSE(directory.may_ask_for("app", "bob", "192.0.2.7", now));
  now += std::chrono::milliseconds(1);
  CHECK(directory.may_ask_for("app", "bob", "192.0.2.7", now));
  CHECK(directory.may_ask_for("app", "ann", "192.0.2.9", now));
}

TEST_CASE("of two changes at once none is lost", "[auth]") {
  constexpr int rounds = 400;
  const UserSpec ann{"ann", "admin", {{"read", "app"}}, {}, {}};
  const UserSpec bob{"bob", "admin", {{"read", "app"}}, {}, {}};
  const auto list = [](const UserSpec& who, int round) {
    return round % 2 == 0 ? std::vector<UserSpec>{who} : std::vector<UserSpec>();
  };
  UserDirectory directory;
  std::barrier both(3);
  const auto change = [&](auto put) {
    return std::thread([&both, put] {
      for (int round = 0; round < rounds; ++round) {
        both.arrive_and_wait();
        put(round);
        both.arrive_and_wait();
      }
    });
  };
  std::thread configuring = change([&](int round) { directory.configure(list(ann, round)); });
  std::thread feeding = change([&](int round) { directory.feed(list(bob, round)); });
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    both.arrive_and_wait();
    both.arrive_and_wait();
    if (directory.table()->size() != (round % 2 == 0 ? 2U : 0U)) ++wrong;
  }
  configuring.join();
  feeding.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace spillway::auth
