// MongoDB's total order of BSON values, across types, and its memcmp-comparable key encoding.
// Simple (binary) collation only.
#pragma once

#include <compare>
#include <string>

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

}  // namespace spillway
