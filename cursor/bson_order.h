// MongoDB's total order of BSON values, across types, and its memcmp-comparable key encoding.
// Simple (binary) collation only.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cursor/bson_view.h"

namespace spillway {

// Canonical rank of a type: MinKey −1 < undefined 0 < null 5 < numbers 10 < string, symbol 15 < …
// < MaxKey 127.
int canonical_type(BsonType type) noexcept;

// Compares values (names are ignored at this level). Total: NaN sorts below all numbers, −0 equals 0,
// numbers compare by mathematical value across their four types.
std::weak_ordering compare_values(ValueView a, ValueView b) noexcept;
// Field by field: canonical type, then name, then value; the shorter one first.
std::weak_ordering compare_documents(DocView a, DocView b) noexcept;

// Appends to `key` bytes whose memcmp order is the order of compare_values, so that a compound key is
// the concatenation of its fields' keys. Equal values give equal bytes. The encoding of one value is
// never a proper prefix of another's. `descending` inverts all bytes.
void append_order_key(std::string& key, ValueView value, bool descending = false);

// The first sixteen bytes of a key as numbers, with zeros behind a shorter one: if two differ, so do the keys.
struct KeyBeginning {
  std::uint64_t high = 0, low = 0;
  auto operator<=>(const KeyBeginning&) const = default;
};
KeyBeginning key_beginning(std::string_view key) noexcept;
// Of append_order_key()'s key if it has no more than sixteen bytes, for the values of which that is easily told: null,
// numbers that a double holds, dates, timestamps and ObjectIds. Else nullopt.
std::optional<KeyBeginning> short_order_key(ValueView value, bool descending = false) noexcept;

}  // namespace spillway
