// Shard key patterns, and the shard key of a document or of a query.
//
// A *key* is the memcmp-comparable encoding (cursor/bson_order.h) of the pattern's field values in
// pattern order, hashed fields replaced by the int64 hash of their value. Keys and chunk bounds of
// one pattern compare with memcmp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"
#include "cursor/error.h"

namespace spillway::catalog {

// Whether a collation changes how this value compares: strings, symbols, objects and arrays.
bool is_collatable(ValueView value) noexcept;

// An operator document of a query: its first field starts with '$' and it is no DBRef.
bool is_operator_document(ValueView value) noexcept;

// The equality that a filter requires of every field of a shard key.
struct QueryKey {
  std::string key;          // encoded, hashed fields replaced
  BsonDoc values;           // {<path>: value, …} as the query gave them, nothing hashed
  bool collatable = false;  // at least one of the values is collatable
};

// Immutable after parse; safe to use from any thread.
class ShardKeyPattern {
 public:
  struct Field {
    std::string path;  // dotted
    bool hashed = false;
  };

  // BadValue(2) when the pattern is not a valid shard key.
  static Result<ShardKeyPattern> parse(DocView pattern);

  const std::vector<Field>& fields() const noexcept { return fields_; }
  DocView pattern() const noexcept { return pattern_.view(); }
  bool has_hashed_field() const noexcept;
  // One field, and it is hashed: its hash is the key.
  bool is_one_hash() const noexcept { return fields_.size() == 1 && fields_.front().hashed; }
  // Fields, names and hashed-ness are the same, in the same order.
  bool operator==(const ShardKeyPattern& other) const noexcept;

  // A missing field is null. ShardKeyNotFound(61) when an array stands at or above a field.
  Result<std::string> key_of_document(DocView doc) const;
  // The same, appended to `key`; after an error `key` is undefined. `hashed`: what hash_documents() says of the
  // document.
  struct Hashed {
    std::int64_t hash = 0;  // of a missing field: null's
    bool missing = false;
    bool array = false;  // at or above the field
  };
  Result<void> append_key_of_document(std::string& key, DocView doc, const Hashed* hashed = nullptr) const;
  // Does the document lack a field of the key? `gets_id`: it has no _id, and gets one.
  bool lacks_field(DocView doc, bool gets_id) const;
  // The values of the hashed field of many documents, hashed together. REQUIRES a hashed field, as many `into`, and at
  // most documents_at_once of them.
  static constexpr std::size_t documents_at_once = 64;
  void hash_documents(std::span<const DocView> docs, std::span<Hashed> into) const;
  // Is `_id` the hashed field?
  bool hashes_id() const noexcept;
  // The same values as a document {<path>: value}; hashed fields are hashed.
  Result<BsonDoc> key_values_of_document(DocView doc) const;

  // Full equality on every field, else nullopt. Never defaults a missing field. `collatable`, when given, is set if
  // one of the values is (is_collatable); unchanged without a key.
  std::optional<std::string> key_of_query(DocView filter, bool* collatable = nullptr) const;
  // The same, appended to `key`; false: no whole key, and `key` is undefined.
  bool append_key_of_query(std::string& key, DocView filter, bool* collatable) const;
  // The same of a key that is one hash. REQUIRES: is_one_hash().
  std::optional<std::int64_t> hash_of_query(DocView filter, bool* collatable) const;
  // All of these at once.
  std::optional<QueryKey> query_key(DocView filter) const;

  // A chunk bound: exactly the pattern's fields in the pattern's order; hashed fields hold
  // integers, MinKey or MaxKey; no arrays. BadValue(2) otherwise.
  Result<std::string> key_of_bound(DocView bound) const;
  // {<path>: MinKey, …} and {<path>: MaxKey, …}
  BsonDoc min_bound() const;
  BsonDoc max_bound() const;

  // The shard key's fields, by name and in order, are a prefix of this index key, or the index is on _id first. A
  // unique index must have it, else CannotCreateIndex(67). Equal values have equal hashes, so an ordered field serves
  // for a hashed one.
  bool has_prefix_index(DocView index_key) const;
  // Whether a query's or update's path touches the shard key: equal to a field, or above or below
  // it.
  bool touches(std::string_view path) const noexcept;

 private:
  ShardKeyPattern() = default;
  // take(field, value) for every field, in order; false when the filter gives no whole key.
  template <class Take>
  bool take_query_values(DocView filter, Take&& take) const;

  std::vector<Field> fields_;
  BsonDoc pattern_;
};

// Exact equality on _id: `{_id: v}` or `{_id: {$eq: v}}`, other predicates allowed beside it, v no
// array, regex or object with $-fields. `collatable`, when given, tells of v.
bool exact_id_equality(DocView filter, bool* collatable = nullptr);

}  // namespace spillway::catalog
