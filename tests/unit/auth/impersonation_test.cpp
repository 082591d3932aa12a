// What a member of a cluster says of its clients.
#include "proxy/auth/impersonation.h"

#include <catch2/catch.hpp>

using namespace spillway;
using namespace spillway::auth;

namespace {

std::string audit(std::string_view db, std::string_view name, std::int32_t wire_version) {
  BsonWriter out;
  const std::vector<RoleGrant> roles = {{"readWrite", "app"}, {"own", "admin"}};
  append_impersonation(out, db, name, roles, wire_version);
  const BsonDoc written = std::move(out).finish();
  return to_json(written.view());
}

std::string json(const char* text) { return to_json(BsonDoc::from_json(text).value().view()); }

}  // namespace

TEST_CASE("a session's owner is the hash of its user's name", "[auth]") {
  // A router of 4.2.0 sent both: with authorization off, and for ann of admin.
  CHECK(to_base64(session_uid("", "").view()) == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
  CHECK(to_base64(session_uid("admin", "ann").view()) == "2qHw5ham7OJ7pYxupR9sOoG3nYXuiAV8JcnaUuooNpk=");
  CHECK(session_uid("$external", "CN=app") == digest(Hash::sha256, bytes_of("CN=app@$external")));
}

TEST_CASE("a request names its user to servers, in the form of their version", "[auth]") {
  for (const std::int32_t version : {8, 17, 20}) {
    CHECK(audit("admin", "ann", version) == json(R"({"$audit": {"$impersonatedUsers": [{"user": "ann", "db": "admin"}],
        "$impersonatedRoles": [{"role": "readWrite", "db": "app"}, {"role": "own", "db": "admin"}]}})"));
  }
  CHECK(audit("admin", "ann", 21) == json(R"({"$audit": {"$impersonatedUser": {"user": "ann", "db": "admin"},
      "$impersonatedRoles": [{"role": "readWrite", "db": "app"}, {"role": "own", "db": "admin"}]}})"));
  CHECK(audit("", "", 21) == json("{}"));
}
