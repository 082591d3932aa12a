#include "proxy/catalog/shard_key.h"

#include "catalog_support.h"
#include "cursor/bson_order.h"

namespace spillway::catalog {
namespace {

using test::doc;
using test::pattern;

TEST_CASE("patterns that are shard keys are accepted") {
  const std::string good[] = {
      "{'a': 1}",
      "{'a': 1.0}",
      "{'a': {'$numberLong': '1'}}",
      "{'a': {'$numberDecimal': '1'}}",
      "{'a': 'hashed'}",
      "{'a': 1, 'b': 'hashed', 'c': 1}",
      "{'a.b.c': 1}",
      "{'a': 1, 'a.b': 1}",
      "{'_id': 'hashed'}",
  };
  for (const auto& json : good) {
    INFO(json);
    CHECK(ShardKeyPattern::parse(doc(json)).has_value());
  }
}

TEST_CASE("patterns that are no shard keys are refused with BadValue") {
  const std::string bad[] = {
      "{}",          "{'a': -1}",        "{'a': '1'}",  "{'a': 'hash'}",
      "{'': 1}",     "{'a': {'b': 1}}",  "{'a.b.': 1}", "{'.a': 1}",
      "{'a..b': 1}", "{'a': true}",      "{'a': 2}",    "{'a': 0}",
      "{'a': null}", "{'a': 1, 'a': 1}", "{'$a': 1}",   "{'a': 'hashed', 'b': 'hashed'}",
  };
  for (const auto& json : bad) {
    INFO(json);
    const auto parsed = ShardKeyPattern::parse(doc(json));
    REQUIRE(parsed.has_error());
    CHECK(parsed.error().is(ErrorCode::bad_value));
  }
}

struct DocumentCase {
  std::string key;
  std::string document;
  std::string expected;  // empty: ShardKeyNotFound
};

TEST_CASE("the key of a document") {
  const DocumentCase cases[] = {
      {"{'a': 1}", "{'a': 5}", "{'a': 5}"},
      {"{'a': 1}", "{'b': 5}", "{'a': null}"},
      {"{'a.b': 1}", "{'a': 5}", "{'a.b': null}"},
      {"{'a.b': 1}", "{'a.b': 5}", "{'a.b': null}"},
      {"{'a.b': 1}", "{'a': {'b': {'c': 1}}}", "{'a.b': {'c': 1}}"},
      {"{'a.0': 1}", "{'a': {'0': 'x'}}", "{'a.0': 'x'}"},
      {"{'a.0': 1}", "{'a': ['x']}", ""},
      {"{'a': 1}", "{'a': []}", ""},
      {"{'a.b': 1}", "{'a': [{'b': 1}]}", ""},
      {"{'a.b.c': 1}", "{'a': {'b': [1]}}", ""},
      {"{'a': 1, 'b': 1}", "{'b': 2, 'c': 3, 'a': 1}", "{'a': 1, 'b': 2}"},
      {"{'a': 1}", "{'a': {'$x': 1}}", "{'a': {'$x': 1}}"},
      {"{'a': 'hashed'}", "{'a': 0}", "{'a': {'$numberLong': '4854801880128277513'}}"},
      {"{'a': 'hashed'}", "{}", "{'a': {'$numberLong': '2338878944348059895'}}"},
      {"{'a': 'hashed'}", "{'a': [1]}", ""},
      {"{'b': 1, 'a': 'hashed'}", "{'a': 'abc', 'b': 7}",
       "{'b': 7, 'a': {'$numberLong': '8478485326885698097'}}"},
  };
  for (const auto& c : cases) {
    INFO(c.key << " of " << c.document);
    const ShardKeyPattern key = pattern(c.key);
    const auto values = key.key_values_of_document(doc(c.document));
    const auto encoded = key.key_of_document(doc(c.document));
    if (c.expected.empty()) {
      REQUIRE(values.has_error());
      REQUIRE(encoded.has_error());
      CHECK(encoded.error().is(ErrorCode::shard_key_not_found));
      CHECK(encoded.error().message ==
            "Shard key cannot contain array values or array descendants.");
      continue;
    }
    REQUIRE(values.has_value());
    CHECK(to_json(*values) == to_json(doc(c.expected)));
    REQUIRE(encoded.has_value());
    std::string expected;
    const BsonDoc expected_values = doc(c.expected);
    for (const Element& e : expected_values.view()) append_order_key(expected, e);
    CHECK(*encoded == expected);
  }
}

TEST_CASE("a regex or a DBRef may be the shard key of a document") {
  const ShardKeyPattern key = pattern("{'a': 1}");
  CHECK(key.key_of_document(doc("{'a': {'$regularExpression': {'pattern': 'x', 'options': ''}}}"))
            .has_value());
}

struct QueryCase {
  std::string key;
  std::string query;
  std::string expected;  // empty: none
};

TEST_CASE("full equality of a query") {
  const std::string regex = "{'$regularExpression': {'pattern': 'x', 'options': ''}}";
  const QueryCase cases[] = {
      {"{'a': 1}", "{'a': 10, 'b': {'$gt': 20}}", "{'a': 10}"},
      {"{'a': 1}", "{'a': {'$eq': 10}}", "{'a': 10}"},
      {"{'a': 1}", "{'$and': [{'a': 10}, {'b': 1}]}", "{'a': 10}"},
      {"{'a': 1}", "{'$or': [{'a': 10}]}", "{'a': 10}"},
      {"{'a': 1}", "{'a': {'$all': [10]}}", "{'a': 10}"},
      {"{'a': 1}", "{'a': {'$gt': 10}}", ""},
      {"{'a': 1}", "{'a': " + regex + "}", ""},
      {"{'a': 1}", "{'a': {'$eq': " + regex + "}}", ""},
      {"{'a': 1}", "{'a': {'$eq': [1, 2]}}", ""},
      {"{'a': 1}", "{'$or': [{'a': 10}, {'a': 10}]}", ""},
      {"{'a': 1}", "{'$and': [{'a': 10}, {'a': 10}]}", ""},
      {"{'a': 1}", "{'a': {'$all': [10, 10]}}", ""},
      {"{'a': 1}", "{'a': {'$in': [10]}}", ""},
      {"{'a': 1}", "{'a': null}", "{'a': null}"},
      {"{'a': 1}", "{}", ""},
      {"{'a': 1}", "{'a': {'$eq': 10, '$gt': 5}}", "{'a': 10}"},
      {"{'a': 1}", "{'a': {'$not': {'$eq': 10}}}", ""},
      {"{'a': 1}", "{'$nor': [{'a': 10}]}", ""},
      {"{'a': 1}", "{'a': {'b': 10}}", "{'a': {'b': 10}}"},
      {"{'a': 1}", "{'a.b': 10}", ""},
      {"{'a': 1, 'b': 1}", "{'b': '20', 'a': 10}", "{'a': 10, 'b': '20'}"},
      {"{'a': 1, 'b': 1}", "{'a': 10}", ""},
      {"{'a': 1, 'b': 1}", "{'a': 10, 'b': [1, 2]}", ""},
      {"{'a': 1, 'b': 1}", "{'a': 10, 'b': {'$gt': 2}}", ""},
      {"{'a.b': 1, 'c': 1}", "{'a': {'b': 10}, 'c': 30}", "{'a.b': 10, 'c': 30}"},
      {"{'a.b': 1, 'c': 1}", "{'a': {'b': 10, 'd': 40}, 'c': 30}", "{'a.b': 10, 'c': 30}"},
      {"{'a.b': 1, 'c': 1}", "{'a.b': {'$eq': 10}, 'c': 30}", "{'a.b': 10, 'c': 30}"},
      {"{'a.b': 1, 'c': 1}", "{'a': {'b': {'$eq': 10}}, 'c': 30}", ""},
      {"{'a.b': 1, 'c': 1}", "{'a': 10, 'c': 30}", ""},
      {"{'a.b': 1, 'c': 1}", "{'a': {'d': 40}, 'c': 30}", ""},
      {"{'a.b': 1, 'c': 1}", "{'a': [{'b': 10}], 'c': 30}", ""},
      {"{'a.b': 1}", "{'a': {'b': 10}, 'a.b': 10}", ""},
      {"{'a': 'hashed'}", "{'a': 0}", "{'a': {'$numberLong': '4854801880128277513'}}"},
  };
  for (const auto& c : cases) {
    INFO(c.key << " of " << c.query);
    const ShardKeyPattern key = pattern(c.key);
    const auto encoded = key.key_of_query(doc(c.query));
    REQUIRE(encoded.has_value() == !c.expected.empty());
    if (!encoded) continue;
    std::string expected;
    const BsonDoc expected_values = doc(c.expected);
    for (const Element& e : expected_values.view()) append_order_key(expected, e);
    CHECK(*encoded == expected);
  }
}

TEST_CASE("a query and the document that it names have the same key") {
  const ShardKeyPattern key = pattern("{'a.b': 1, 'c': 'hashed'}");
  const auto of_document = key.key_of_document(doc("{'c': 'x', 'a': {'b': 3.0}}"));
  const auto of_query = key.key_of_query(doc("{'a.b': 3, 'c': {'$eq': 'x'}}"));
  REQUIRE(of_query.has_value());
  CHECK(*of_document == *of_query);
}

TEST_CASE("a query key tells whether a collation matters to it") {
  const ShardKeyPattern key = pattern("{'a': 1, 'b': 1}");
  CHECK_FALSE(key.query_key(doc("{'a': 1, 'b': true}"))->collatable);
  CHECK(key.query_key(doc("{'a': 1, 'b': 'x'}"))->collatable);
  CHECK(key.query_key(doc("{'a': {'x': 1}, 'b': 2}"))->collatable);
  const BsonDoc array = doc("{'a': []}");
  CHECK(is_collatable(array.view()["a"]));
}

TEST_CASE("a deeply nested query is looked into only so far") {
  const ShardKeyPattern key = pattern("{'a': 1}");
  CHECK(key.key_of_query(test::nested(doc("{'a': 1}"), "$and", 100)).has_value());
  CHECK_FALSE(key.key_of_query(test::nested(doc("{'a': 1}"), "$and", 101)).has_value());
  CHECK_FALSE(key.key_of_query(test::nested(doc("{'a': 1}"), "$or", 3000)).has_value());
}

TEST_CASE("a unique index needs the shard key as its prefix") {
  const ShardKeyPattern key = pattern("{'a': 1, 'b': 1}");
  CHECK(key.has_prefix_index(doc("{'a': 1, 'b': 1}")));
  CHECK(key.has_prefix_index(doc("{'a': 1, 'b': -1, 'c': 1}")));
  CHECK(key.has_prefix_index(doc("{'_id': 1}")));
  CHECK_FALSE(key.has_prefix_index(doc("{'a': 1}")));
  CHECK_FALSE(key.has_prefix_index(doc("{'b': 1, 'a': 1}")));
  CHECK_FALSE(key.has_prefix_index(doc("{'email': 1}")));
  CHECK(pattern("{'a': 'hashed'}").has_prefix_index(doc("{'a': 1}")));
}

TEST_CASE("paths at, above and below a field touch the shard key") {
  const ShardKeyPattern key = pattern("{'a.b': 1}");
  CHECK(key.touches("a.b"));
  CHECK(key.touches("a"));
  CHECK(key.touches("a.b.c"));
  CHECK_FALSE(key.touches("a.bc"));
  CHECK_FALSE(key.touches("b"));
}

TEST_CASE("chunk bounds must have the key's fields in the key's order") {
  const ShardKeyPattern key = pattern("{'a': 1, 'b': 'hashed'}");
  CHECK(key.key_of_bound(doc("{'a': 'x', 'b': {'$numberLong': '5'}}")).has_value());
  CHECK(key.key_of_bound(key.min_bound()).has_value());
  CHECK(*key.key_of_bound(key.min_bound()) < *key.key_of_bound(key.max_bound()));
  for (const std::string bad : {"{}", "{'a': 1}", "{'b': 1, 'a': 1}", "{'a': 1, 'b': 1, 'c': 1}",
                                "{'a': 1, 'b': 'x'}", "{'a': [1], 'b': 1}", "{'a': 1, 'b': 1.5}"}) {
    INFO(bad);
    const auto bound = key.key_of_bound(doc(bad));
    REQUIRE(bound.has_error());
    CHECK(bound.error().is(ErrorCode::bad_value));
  }
}

TEST_CASE("exact equality on _id") {
  bool collatable = true;
  CHECK(exact_id_equality(doc("{'_id': 5}"), &collatable));
  CHECK_FALSE(collatable);
  CHECK(exact_id_equality(doc("{'_id': 'x', 'b': 1}"), &collatable));
  CHECK(collatable);
  CHECK(exact_id_equality(doc("{'_id': {'$eq': 5}}")));
  CHECK(exact_id_equality(doc("{'_id': {'x': 1}}")));
  CHECK(exact_id_equality(doc("{'_id': null}")));
  CHECK_FALSE(exact_id_equality(doc("{}")));
  CHECK_FALSE(exact_id_equality(doc("{'_id': [1]}")));
  CHECK_FALSE(exact_id_equality(doc("{'_id': {'$gt': 5}}")));
  CHECK_FALSE(exact_id_equality(doc("{'_id': {'$in': [5]}}")));
  CHECK_FALSE(
      exact_id_equality(doc("{'_id': {'$regularExpression': {'pattern': 'x', 'options': ''}}}")));
}

}  // namespace
}  // namespace spillway::catalog
