#include "proxy/catalog/nearest_name.h"

#include <catch2/catch.hpp>

namespace spillway::catalog {
namespace {

TEST_CASE("the nearest name is suggested, a far one is not") {
  const std::vector<std::string> names = {"shards", "databases", "collections", "key", "ns"};
  CHECK(did_you_mean("shard", names) == " (did you mean 'shards'?)");
  CHECK(did_you_mean("colections", names) == " (did you mean 'collections'?)");
  CHECK(did_you_mean("kye", names) == " (did you mean 'key'?)");
  CHECK(did_you_mean("memory", names).empty());
  CHECK(did_you_mean("foo", names).empty());
  CHECK(did_you_mean("xy", names).empty());
  CHECK(did_you_mean(std::string(10'000, 'x'), names).empty());
}

TEST_CASE("neighbours in the wrong order are one error, and case is none") {
  CHECK(edit_distance("port", "prot") == 1);
  CHECK(edit_distance("bindIp", "bindip") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("net", "foo") == 3);
}

}  // namespace
}  // namespace spillway::catalog
