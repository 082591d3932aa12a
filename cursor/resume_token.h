// The resume token of a change stream's event or high-water mark: {_data: "<hex digits>", …}. The digits of two tokens
// of one version compare as text in the order of the events. From 4.2 to 6.0 shards make version 1, then version 2,
// which has the operation's type before the document's key. Source: what shards of 4.2 send, and mongod's
// resume_token.cpp.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cursor/bson_view.h"

namespace spillway {

// A token's digits; empty: it is none. A view into the token.
std::string_view token_digits(ValueView token) noexcept;

// What the digits say, as far as a router must know it.
struct ResumeToken {
  std::uint64_t cluster_time = 0;  // a timestamp's value
  std::uint64_t version = 0;
  bool high_water_mark = false;    // a time, no event
  bool from_invalidate = false;
  // Where the digits of what names the event begin: of the collection's uuid and what follows it (the document's key).
  std::size_t event_at = 0, document_key_at = 0;  // without a uuid the latter is 0
  // The collection's uuid; empty: it has none.
  std::string_view uuid_of(std::string_view digits) const noexcept {
    return document_key_at == 0 ? std::string_view() : digits.substr(event_at, document_key_at - event_at);
  }

  // nullopt: not in a form that is known here, or no whole bytes to the end.
  static std::optional<ResumeToken> parse(std::string_view digits) noexcept;
};

// REQUIRES tokens.
bool is_same_time(std::string_view digits, std::string_view other) noexcept;
bool is_same_version(std::string_view digits, std::string_view other) noexcept;

// Where the event of these digits comes, beside the event of `wanted`; equivalent: it is that event. Also if its
// collection has another shard key since (the document's key has the shard key before the _id), or if a shard of
// another release tells of it, whose tokens have another version. Then an event of the same time of which the digits do
// not say on which side of `wanted` it came is `greater`: better twice than never.
std::weak_ordering event_order(std::string_view digits, std::string_view wanted);

}  // namespace spillway
