// $clusterTime and its signatures, against those of a real cluster (4.2.0), and the clock that is made of them.
#include "proxy/auth/cluster_time.h"

#include <catch2/catch.hpp>

#include "proxy/auth/logical_clock.h"

using namespace spillway;
using namespace spillway::auth;

namespace {

constexpr std::uint64_t at(std::uint32_t secs, std::uint32_t increment) {
  return std::uint64_t{secs} << 32U | increment;
}

// Two keys of a cluster, as its admin.system.keys has them.
constexpr const char* first_key = R"({"_id": {"$numberLong": "7711243910269370398"}, "purpose": "HMAC",
  "key": {"$binary": {"base64": "bURZeBrJIOWfnv9JLoDaU0nG6JA=", "subType": "00"}},
  "expiresAt": {"$timestamp": {"t": 1803189883, "i": 0}}})";
constexpr const char* second_key = R"({"_id": {"$numberLong": "7711243910269370399"}, "purpose": "HMAC",
  "key": {"$binary": {"base64": "F1RTmlLkTzUMHFpYycmwYjTwrnI=", "subType": "00"}},
  "expiresAt": {"$timestamp": {"t": 1810965883, "i": 0}}})";
constexpr std::int64_t first_id = 7711243910269370398;
constexpr std::uint32_t first_expiry = 1803189883;
constexpr std::uint32_t second_expiry = 1810965883;

BsonDoc doc(const std::string& json) { return BsonDoc::from_json(json).value(); }

ClusterKeys::Ptr real_keys() {
  ClusterKeys keys;
  REQUIRE(keys.add(doc(second_key)).has_value());
  REQUIRE(keys.add(doc(first_key)).has_value());
  REQUIRE(keys.add(doc(first_key)).has_value());  // it is known
  return std::make_shared<const ClusterKeys>(std::move(keys));
}

// What its mongos told clients.
struct Told {
  std::uint64_t time;
  const char* hash;
};
constexpr Told told[] = {{at(1795413894, 2), "d97a3cb7b9a6b93870602fbe3d48ceebdd9492fd"},
                         {at(1795413925, 3), "fe549d1623b37948ea25bbc0b618d0b00aa14086"},
                         {at(1795413926, 5), "9cad1e2f593510586cb9130cbdaf78fadbcfc1dc"}};

std::string hex(Bytes bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

ClusterTime of_server(std::uint64_t time) {
  ClusterTime made{.time = time, .key_id = 7};
  made.hash.fill(static_cast<std::uint8_t>(time));
  return made;
}

std::int32_t code_of(const Result<void>& result) { return result.has_error() ? result.error().code : 0; }

constexpr std::int64_t wall = 1795413930;

}  // namespace

TEST_CASE("times are signed as a mongos signs them", "[auth]") {
  const auto keys = real_keys();
  CHECK(keys->size() == 2);
  CHECK(keys->expires_at() == at(second_expiry, 0));
  for (const Told& one : told) {
    const auto signed_time = keys->sign(one.time);
    REQUIRE(signed_time.has_value());
    CHECK(hex(signed_time->hash) == one.hash);
    CHECK(signed_time->key_id == first_id);
    CHECK(keys->verify(*signed_time).has_value());
  }
}

TEST_CASE("times that differ in their lowest 16 bits alone share a signature", "[auth]") {
  const auto keys = real_keys();
  const auto hash = [&](std::uint64_t time) { return keys->sign(time)->hash; };
  CHECK(hash(at(1795226966, 51)) == hash(at(1795226966, 78)));
  CHECK(hash(at(1795226966, 0)) == hash(at(1795226966, 0xffff)));
  CHECK(hash(at(1795226966, 0xffff)) != hash(at(1795226966, 0x10000)));
  CHECK(hash(at(1795226966, 1)) != hash(at(1795226967, 1)));
}

TEST_CASE("a time is signed by the key that expires first after it", "[auth]") {
  const auto keys = real_keys();
  CHECK(keys->sign(at(first_expiry - 1, 9))->key_id == first_id);
  CHECK(keys->sign(at(first_expiry, 0))->key_id == first_id + 1);
  CHECK(keys->sign(at(second_expiry - 1, 0))->key_id == first_id + 1);
  CHECK(keys->sign(at(second_expiry, 0)).error().code == 211);
  CHECK(ClusterKeys().sign(at(1, 1)).error().code == 211);
  CHECK(ClusterKeys().empty());
}

TEST_CASE("what was not signed by a key that is valid at its time is refused", "[auth]") {
  const auto keys = real_keys();
  const ClusterTime good = *keys->sign(at(1795413926, 5));
  ClusterTime bad = good;
  bad.hash[19] ^= 1;
  CHECK(code_of(keys->verify(bad)) == 204);
  bad = good;
  bad.time += std::uint64_t{1} << 32U;
  CHECK(code_of(keys->verify(bad)) == 204);
  bad = good;
  bad.key_id += 1;
  CHECK(code_of(keys->verify(bad)) == 204);  // another key's
  bad.key_id = 0;
  CHECK(code_of(keys->verify(bad)) == 211);
  bad = good;
  bad.time = at(first_expiry, 1);
  CHECK(code_of(keys->verify(bad)) == 211);
  CHECK(keys->verify(bad).error().message ==
        "Cache Reader No keys found for HMAC that is valid for time: { ts: Timestamp(1803189883, 1) } with id: "
        "7711243910269370398");
}

TEST_CASE("a cluster's time is read and written as servers do", "[auth]") {
  const ClusterTime time = *real_keys()->sign(at(1795413926, 5));
  BsonWriter out;
  append_cluster_time(out, time);
  const BsonDoc written = std::move(out).finish();
  CHECK(written.size() == cluster_time_bytes + 5);
  CHECK(to_json(written.view()) ==
        to_json(doc(R"({"$clusterTime": {"clusterTime": {"$timestamp": {"t": 1795413926, "i": 5}}, "signature": {
          "hash": {"$binary": {"base64": "nK0eL1k1EFhsuRMMva94+tvPwdw=", "subType": "00"}},
          "keyId": {"$numberLong": "7711243910269370398"}}}})")
                    .view()));
  const auto read = read_cluster_time(written.view()["$clusterTime"]);
  REQUIRE(read.has_value());
  CHECK((*read == time));
  // A driver may send the id as another number.
  const BsonDoc loose = doc(R"({"t": {"clusterTime": {"$timestamp": {"t": 1, "i": 2}}, "signature": {
      "hash": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "subType": "00"}}, "keyId": 0.0}, "more": 1}})");
  CHECK((*read_cluster_time(loose.view()["t"]) == ClusterTime{.time = at(1, 2)}));
}

TEST_CASE("a cluster's time that is none is refused with a server's words", "[auth]") {
  const std::string time = R"("clusterTime": {"$timestamp": {"t": 1, "i": 2}})";
  const std::string hash = R"("hash": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "subType": "00"}})";
  const std::tuple<std::string, int, std::string> cases[] = {
      {"1", 10065, "invalid parameter: expected an object ($clusterTime)"},
      {"[]", 10065, "invalid parameter: expected an object ($clusterTime)"},
      {"{}", 4, "Missing expected field \"clusterTime\""},
      {R"({"clusterTime": 1})", 14, R"("clusterTime" had the wrong type. Expected timestamp, found int)"},
      {"{" + time + "}", 4, "Missing expected field \"signature\""},
      {"{" + time + R"(, "signature": []})", 14, R"("signature" had the wrong type. Expected object, found array)"},
      {"{" + time + R"(, "signature": {}})", 4, "Missing expected field \"hash\""},
      {"{" + time + R"(, "signature": {"hash": "x"}})", 14,
       R"("hash" had the wrong type. Expected binData, found string)"},
      {"{" + time + R"(, "signature": {"hash": {"$binary": {"base64": "AAAA", "subType": "00"}}}})", 12,
       "Unsupported SHA1Block hash length: 3"},
      {"{" + time + R"(, "signature": {"hash": {"$binary": {"base64": "AAAA", "subType": "05"}}}})", 12,
       "SHA1Block only accepts BinDataGeneral type"},
      {"{" + time + R"(, "signature": {)" + hash + "}}", 4, "Missing expected field \"keyId\""},
      {"{" + time + R"(, "signature": {)" + hash + R"(, "keyId": "1"}})", 14,
       R"(Expected field "keyId" to have numeric type, but found string)"},
      {"{" + time + R"(, "signature": {)" + hash + R"(, "keyId": 1.5}})", 2,
       R"(Expected field "keyId" to have a value exactly representable as a 64-bit integer, but found keyId: 1.5)"},
  };
  for (const auto& [text, code, message] : cases) {
    CAPTURE(text);
    const BsonDoc held = doc("{\"v\": " + text + "}");
    const auto read = read_cluster_time(held.view()["v"]);
    REQUIRE(read.has_error());
    CHECK(read.error().code == code);
    CHECK(read.error().message == message);
  }
}

TEST_CASE("a document that is no key is refused, and one of another purpose left out", "[auth]") {
  ClusterKeys keys;
  CHECK(code_of(keys.add(doc("{}"))) == 4);
  CHECK(code_of(keys.add(doc(R"({"_id": 1, "purpose": 1})"))) == 14);
  CHECK(code_of(keys.add(doc(R"({"_id": 1, "purpose": "HMAC", "key": 1})"))) == 14);
  CHECK(code_of(keys.add(doc(R"({"_id": 1, "purpose": "other"})"))) == 0);
  CHECK(keys.empty());
}

TEST_CASE("the clock is the highest time heard, and not one of the far future", "[auth]") {
  LogicalClock clock;
  CHECK_FALSE(clock.for_client(TimeTrust::full));
  CHECK_FALSE(clock.for_server(true));
  CHECK(clock.hear({.time = at(wall, 3)}, wall));
  CHECK(clock.hear({.time = at(wall, 2)}, wall));
  CHECK(clock.now() == at(wall, 3));
  CHECK(clock.hear({.time = at(wall + LogicalClock::drift_secs_default, 1)}, wall));
  CHECK_FALSE(clock.hear({.time = at(wall + LogicalClock::drift_secs_default + 1, 1)}, wall));
  CHECK(clock.now() == at(wall + LogicalClock::drift_secs_default, 1));
  LogicalClock strict;
  strict.set_drift_secs_max(60);
  CHECK(strict.hear({.time = at(wall + 60, 1)}, wall));
  CHECK_FALSE(strict.hear({.time = at(wall + 61, 1)}, wall));
  const ClusterTime far{.time = at(0x8000'0000, 1)};
  const Result<void> refused = clock.take(far, TimeTrust::full, wall);
  CHECK(code_of(refused) == 205);
  CHECK(refused.error().message ==
        "New cluster time, 2147483648, is too far from this node's wall clock time, 1795413930.");
  CHECK(code_of(clock.take(far, TimeTrust::full, 0x7fff'ffff)) == 40484);
  CHECK(code_of(clock.take({.time = at(0x7fff'ffff, 0x8000'0000)}, TimeTrust::full, 0x7fff'ffff)) == 40484);
}

TEST_CASE("with the keys users get our signature, and trusted members get zeros", "[auth]") {
  LogicalClock clock;
  clock.use_keys(real_keys());
  CHECK(clock.hear({.time = told[0].time}, wall));
  for (const Told& one : told) {
    CHECK(clock.hear({.time = one.time}, wall));
    for (const TimeTrust trust : {TimeTrust::user, TimeTrust::stranger}) {
      const auto given = clock.for_client(trust);
      REQUIRE(given);
      CHECK(given->time == one.time);
      CHECK(hex(given->hash) == one.hash);
      CHECK(given->key_id == first_id);
    }
    CHECK((clock.for_client(TimeTrust::full) == ClusterTime{.time = one.time}));
    CHECK((clock.for_server(true) == ClusterTime{.time = one.time}));
    CHECK((clock.for_server(false) == clock.for_client(TimeTrust::user)));
  }
  // Of the same range, by the signature that was made; then by the next key.
  for (const std::uint64_t time : {at(1795413926, 6), at(1795413926, 0x10000), at(first_expiry - 1, 0xffff),
                                   at(first_expiry, 0), at(first_expiry, 1)}) {
    CHECK(clock.hear({.time = time}, wall));
    const auto given = clock.for_client(TimeTrust::user);
    REQUIRE(given);
    CHECK((*given == *real_keys()->sign(time)));
    CHECK(real_keys()->verify(*given).has_value());
  }
}

TEST_CASE("without the keys users get the highest time that a server signed, and nothing else", "[auth]") {
  LogicalClock clock;
  CHECK(clock.hear({.time = at(wall, 9)}, wall));  // of a server that trusts us
  CHECK_FALSE(clock.for_client(TimeTrust::user));
  CHECK_FALSE(clock.for_server(false));
  CHECK(clock.hear(of_server(at(wall, 5)), wall));
  CHECK(clock.hear(of_server(at(wall, 4)), wall));
  CHECK((clock.for_client(TimeTrust::user) == of_server(at(wall, 5))));
  CHECK((clock.for_server(false) == of_server(at(wall, 5))));
  CHECK((clock.for_client(TimeTrust::full) == ClusterTime{.time = at(wall, 9)}));
  CHECK_FALSE(clock.hear(of_server(at(wall + 2 * LogicalClock::drift_secs_default, 5)), wall));
  CHECK((clock.for_client(TimeTrust::user) == of_server(at(wall, 5))));
  clock.use_keys(std::make_shared<const ClusterKeys>());  // all of them have expired
  CHECK((clock.for_client(TimeTrust::user) == of_server(at(wall, 5))));
}

TEST_CASE("a user's time ahead of ours must be signed", "[auth]") {
  LogicalClock clock;
  clock.use_keys(real_keys());
  CHECK(clock.hear({.time = at(wall, 1)}, wall));
  // What is no news is not looked at, nor is what a stranger cannot have signed.
  CHECK(code_of(clock.take({.time = at(wall, 1)}, TimeTrust::user, wall)) == 0);
  CHECK(code_of(clock.take({.time = at(wall, 2)}, TimeTrust::stranger, wall)) == 0);
  CHECK(code_of(clock.take({}, TimeTrust::user, wall)) == 0);
  CHECK(code_of(clock.take({.time = at(wall, 2)}, TimeTrust::user, wall)) == 211);
  CHECK(code_of(clock.take({.time = at(wall, 2), .key_id = first_id}, TimeTrust::user, wall)) == 204);
  CHECK(code_of(clock.take({.time = at(wall, 2), .key_id = first_id}, TimeTrust::stranger, wall)) == 204);
  CHECK(clock.now() == at(wall, 1));
  CHECK(code_of(clock.take(*real_keys()->sign(at(wall, 2)), TimeTrust::user, wall)) == 0);
  CHECK(clock.now() == at(wall, 2));
  CHECK(code_of(clock.take(*real_keys()->sign(at(wall + 1, 0)), TimeTrust::user, 1)) == 205);
  CHECK(code_of(clock.take({.time = at(wall, 7)}, TimeTrust::full, wall)) == 0);
  CHECK(clock.now() == at(wall, 7));
}

TEST_CASE("without the keys a user's time ahead of ours is not taken", "[auth]") {
  LogicalClock clock;
  CHECK(code_of(clock.take(of_server(at(wall, 2)), TimeTrust::user, wall)) == 0);
  CHECK(clock.now() == 0);
}
