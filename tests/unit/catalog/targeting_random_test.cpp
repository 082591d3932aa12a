// Whatever the filter, the shards it is sent to include the shard of every document that matches
// it. Documents, filters and chunks come from a seeded generator; a small matcher says what
// matches.
#include <array>
#include <cctype>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <regex>

#include "catalog_support.h"
#include "cursor/bson_order.h"

namespace spillway::catalog {
namespace {

using test::doc;
using test::pattern;

// ---- A matcher for documents without arrays
// -------------------------------------------------------

bool is_nan(ValueView value) {
  return value.is_number() && std::isnan(value.to_double().value_or(0));
}

bool equal(ValueView value, ValueView operand) {
  if (operand.is_null()) return !value.exists() || value.is_null();
  return value.exists() && compare_values(value, operand) == 0;
}

bool compares(std::string_view op, ValueView value, ValueView operand) {
  const bool or_equal = op.ends_with('e');
  if (operand.is_null()) return or_equal && equal(value, operand);
  if (!value.exists()) return false;
  if (operand.type == BsonType::min_key || operand.type == BsonType::max_key) return true;
  if (canonical_type(value.type) != canonical_type(operand.type)) return false;
  if (is_nan(value) || is_nan(operand)) return or_equal && is_nan(value) && is_nan(operand);
  const auto order = compare_values(value, operand);
  if (or_equal && order == 0) return true;
  return op.starts_with("$gt") ? order > 0 : order < 0;
}

bool matches_regex(ValueView value, ValueView regex) {
  if (value == regex) return true;
  if (!value.is_string()) return false;
  const std::string text(reinterpret_cast<const char*>(regex.bytes.data()));
  const std::string flags(reinterpret_cast<const char*>(regex.bytes.data()) + text.size() + 1);
  auto how = std::regex::ECMAScript;
  if (flags == "i") how |= std::regex::icase;
  return std::regex_search(std::string(value.as_string()), std::regex(text, how));
}

bool matches_value(ValueView value, ValueView operand) {
  return operand.type == BsonType::regex ? matches_regex(value, operand) : equal(value, operand);
}

bool matches_any(ValueView value, ValueView operands) {
  for (const Element& e : operands.as_document()) {
    if (matches_value(value, e)) return true;
  }
  return false;
}

bool matches_operator(ValueView value, const Element& op) {
  if (op.name == "$eq") return equal(value, op);
  if (op.name == "$ne") return !equal(value, op);
  if (op.name == "$in") return matches_any(value, op);
  if (op.name == "$nin") return !matches_any(value, op);
  if (op.name == "$exists") return value.exists() == op.truthy();
  if (op.name == "$not") {
    if (!op.is_document()) return !matches_regex(value, op);
    for (const Element& part : op.as_document()) {
      if (!matches_operator(value, part)) return true;
    }
    return false;
  }
  if (op.name == "$all") {
    for (const Element& e : op.as_document()) {
      if (!matches_value(value, e)) return false;
    }
    return true;
  }
  if (op.name == "$mod") {
    const auto number = value.to_int64();
    return number && *number % 2 == 0;
  }
  return compares(op.name, value, op);
}

bool matches(DocView document, DocView filter) {
  for (const Element& e : filter) {
    if (e.name == "$and" || e.name == "$or" || e.name == "$nor") {
      bool any = false;
      bool every = true;
      for (const Element& branch : e.as_document()) {
        const bool one = matches(document, branch.as_document());
        any = any || one;
        every = every && one;
      }
      if (e.name == "$and" ? !every : any != (e.name == "$or")) return false;
    } else if (e.name == "$expr") {
      const DocView operands = e.as_document()["$eq"].as_document();
      const ValueView value = document.find_path(operands["0"].as_string().substr(1));
      if (!value.exists() || compare_values(value, operands["1"]) != 0) return false;
    } else if (is_operator_document(e)) {
      for (const Element& op : e.as_document()) {
        if (!matches_operator(document.find_path(e.name), op)) return false;
      }
    } else if (!matches_value(document.find_path(e.name), e)) {
      return false;
    }
  }
  return true;
}

// What a case-insensitive collation compares: every string in lower case.
BsonDoc lower_case(DocView source);

void append_lower_case(BsonWriter& out, const Element& e) {
  if (e.is_string()) {
    std::string text(e.as_string());
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    out.append(e.name, std::string_view(text));
  } else if (e.is_document()) {
    out.append(e.name, lower_case(e.as_document()));
  } else if (e.is_array()) {
    out.append_array(e.name, lower_case(e.as_document()));
  } else {
    out.append_element(e);
  }
}

BsonDoc lower_case(DocView source) {
  BsonWriter out;
  for (const Element& e : source) append_lower_case(out, e);
  return std::move(out).finish();
}

// ---- The generator
// --------------------------------------------------------------------------------

class Generator {
 public:
  Generator(std::uint64_t seed, bool collation) : random_(seed), collation_(collation) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  std::string scalar() {
    switch (below(12)) {
      case 0:
        return "null";
      case 1:
        return below(2) == 0 ? "true" : "false";
      case 2:
        return "{'$date': {'$numberLong': '" + std::to_string(below(5)) + "'}}";
      case 3:
        return "{'$numberDouble': 'NaN'}";
      case 4:
        return std::to_string(below(10)) + ".5";
      case 5:
        return "{'$numberLong': '" + std::to_string(below(12)) + "'}";
      case 6:
        return "{'$oid': '00000000000000000000000" + std::to_string(below(5)) + "'}";
      case 7:
        return "{'x': " + std::to_string(below(3)) + "}";
      case 8:
      case 9:
        return "'" + word() + "'";
      default:
        return std::to_string(static_cast<int>(below(14)) - 3);
    }
  }

  BsonDoc document() {
    std::string out = "{'_id': " + std::to_string(below(100));
    if (below(6) != 0) out += ", 'a': " + scalar();
    if (below(6) != 0) out += ", 'b': " + scalar();
    if (below(6) != 0) {
      out += below(5) == 0 ? ", 'd': 5" : ", 'd': {'e': " + scalar() + "}";
    }
    return doc(out + "}");
  }

  BsonDoc filter() { return doc(branch(3)); }

  BsonDoc bound(const ShardKeyPattern& key) {
    std::string out;
    for (const auto& field : key.fields()) {
      std::string value = scalar();
      if (field.hashed) {
        value = "{'$numberLong': '" + std::to_string(static_cast<std::int64_t>(random_())) + "'}";
      }
      out += (out.empty() ? "{'" : ", '") + field.path + "': " + value;
    }
    return doc(out + "}");
  }

 private:
  std::string word() {
    std::string out;
    for (std::size_t i = below(3); i-- > 0;) out += "abcABC"[below(collation_ ? 6 : 3)];
    return out;
  }

  std::string regex() {
    static const char* patterns[] = {"a", "^a", "^ab", "^ab*", "^b?c", "b$", "^a|c", "^[ab]"};
    return std::string("{'$regularExpression': {'pattern': '") + patterns[below(8)] +
           "', 'options': '" + (below(4) == 0 ? "i" : "") + "'}}";
  }

  std::string operand() { return !collation_ && below(8) == 0 ? regex() : scalar(); }

  std::string several() {
    std::string out;
    for (std::size_t i = 1 + below(3); i-- > 0;) out += (out.empty() ? "" : ", ") + operand();
    return "[" + out + "]";
  }

  std::string operation(int depth) {
    static const char* comparisons[] = {"$gt", "$gte", "$lt", "$lte", "$eq", "$ne"};
    switch (below(depth > 0 ? 10 : 9)) {
      case 0:
        return "'$in': " + several();
      case 1:
        return "'$nin': " + several();
      case 2:
        return std::string("'$exists': ") + (below(2) == 0 ? "true" : "false");
      case 3:
        return below(2) == 0 ? "'$all': " + several() : "'$mod': [2, 0]";
      case 9:
        return "'$not': {" + operation(depth - 1) + "}";
      default:
        return "'" + std::string(comparisons[below(6)]) + "': " + scalar();
    }
  }

  std::string predicate(const std::string& path) {
    const std::string head = "'" + path + "': ";
    switch (below(4)) {
      case 0:
        return head + operand();
      case 1: {
        const std::string first = operation(2);
        std::string second = operation(2);
        return head + "{" + first + ", " + second + "}";
      }
      default:
        return head + "{" + operation(2) + "}";
    }
  }

  std::string branch(int depth) {
    static const char* paths[] = {"a", "b", "d.e", "a", "_id"};
    std::string out;
    for (std::size_t i = 1 + below(3); i-- > 0;) {
      if (!out.empty()) out += ", ";
      const std::size_t kind = below(depth > 0 ? 9 : 6);
      if (kind < 6) {
        out += predicate(paths[below(5)]);
      } else if (kind == 8 && !collation_) {
        out += "'$expr': {'$eq': ['$" + std::string(paths[below(5)]) + "', " +
               std::to_string(below(10)) + "]}";
      } else {
        static const char* logical[] = {"$and", "$or", "$or", "$nor"};
        out += "'" + std::string(logical[below(4)]) + "': [" + branch(depth - 1) + ", " +
               branch(depth - 1) + "]";
      }
    }
    return "{" + out + "}";
  }

  std::mt19937_64 random_;
  const bool collation_;
};

CollectionRouting random_routing(Generator& random, const char* key_json) {
  ShardKeyPattern key = pattern(key_json);
  std::map<std::string, BsonDoc> splits;
  for (int i = 0; i < 12; ++i) {
    BsonDoc bound = random.bound(key);
    splits.emplace(*key.key_of_bound(bound), std::move(bound));
  }
  std::vector<ChunkSpec> chunks;
  BsonDoc low = key.min_bound();
  for (auto& [encoded, bound] : splits) {
    chunks.push_back({std::move(low), bound, static_cast<ShardIndex>(random.below(6))});
    low = std::move(bound);
  }
  chunks.push_back({std::move(low), key.max_bound(), static_cast<ShardIndex>(random.below(6))});
  auto map = ChunkMap::build(key, std::move(chunks));
  REQUIRE(map.has_value());
  return {"db.c", std::move(key), false, std::move(*map), 0};
}

void check_together(const CollectionRouting& routing, const std::vector<BsonDoc>& documents) {
  const std::vector<DocView> views(documents.begin(), documents.end());
  std::vector<ShardIndex> owners(views.size());
  routing.target_documents(views, owners);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto alone = routing.target_document(views[i]);
    CHECK(owners[i] == (alone.has_error() ? no_shard : *alone));
  }
}

void check_round(std::uint64_t seed, bool collation, std::size_t& matched, std::size_t& narrowed) {
  static const char* keys[] = {
      "{'a': 1}",        "{'a': 1, 'b': 1}",          "{'d.e': 1}",
      "{'a': 'hashed'}", "{'a': 1, 'd.e': 'hashed'}", "{'b': 1, 'd.e': 1, 'a': 1}"};
  Generator random(seed, collation);
  const CollectionRouting routing = random_routing(random, keys[seed % 6]);
  std::vector<BsonDoc> documents;
  for (int i = 0; i < 60; ++i) documents.push_back(random.document());
  check_together(routing, documents);
  for (int i = 0; i < 25; ++i) {
    const BsonDoc filter = random.filter();
    const auto shards = routing.target_filter(filter, !collation);
    REQUIRE(shards.has_value());
    REQUIRE_FALSE(shards->empty());
    if (shards->size() < routing.chunks.owners().size()) ++narrowed;
    const BsonDoc folded_filter = collation ? lower_case(filter) : filter;
    for (const BsonDoc& document : documents) {
      if (!matches(collation ? lower_case(document) : document, folded_filter)) continue;
      ++matched;
      const auto owner = routing.target_document(document);
      REQUIRE(owner.has_value());
      if (shards->contains(*owner)) continue;
      FAIL("seed " << seed << (collation ? " with a collation" : "") << ": key "
                   << to_json(routing.key.pattern()) << ", filter " << to_json(filter) << " misses "
                   << to_json(document));
    }
  }
}

TEST_CASE("a document without the _id that its key hashes has no owner yet") {
  Generator random(1, false);
  for (const char* key : {"{'_id': 'hashed'}", "{'_id': 'hashed', 'a': 1}"}) {
    const CollectionRouting routing = random_routing(random, key);
    CHECK(routing.key.hashes_id());
    std::vector<BsonDoc> documents;
    for (const char* with : {"{'_id': 1, 'a': 1}", "{'a': 2, '_id': 'x'}", "{'_id': null, 'a': 3}",
                             "{'_id': [1], 'a': 4}", "{'_id': {'b': [1]}}"}) {
      documents.push_back(doc(with));
    }
    check_together(routing, documents);
    const BsonDoc no_id = doc("{'a': 1}");
    const DocView without[] = {documents[0], no_id};
    std::array<ShardIndex, 2> owners;
    routing.target_documents(without, owners);
    CHECK(owners[0] != no_shard);
    CHECK(owners[1] == no_shard);
  }
  CHECK_FALSE(pattern("{'a': 'hashed', '_id': 1}").hashes_id());
}

TEST_CASE("a filter's shards include the shard of every matching document") {
  const std::uint64_t first_seed = std::random_device{}() % 1'000'000;
  std::cout << "targeting seeds from " << first_seed << "\n";
  std::size_t matched = 0;
  std::size_t narrowed = 0;
  for (std::uint64_t round = 0; round < 400; ++round) {
    check_round(first_seed + round, round % 4 == 3, matched, narrowed);
  }
  // The check says nothing if nothing matches or everything is broadcast.
  CHECK(matched > 10'000);
  CHECK(narrowed > 800);
}

}  // namespace
}  // namespace spillway::catalog
