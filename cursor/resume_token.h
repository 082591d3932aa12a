// The resume token of a change stream's event or high-water mark: {_data: "<hex digits>", …}. The digits of two tokens
// compare as text in the order of the events. Source: what shards of 4.2 send, and mongod's resume_token.cpp.
#pragma once

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
  bool high_water_mark = false;    // a time, no event
  bool from_invalidate = false;
  // Where the digits of the collection's uuid and of what follows it (the document's key) begin; 0: there is none.
  std::size_t uuid_at = 0, document_key_at = 0;

  // nullopt: not in a form that is known here.
  static std::optional<ResumeToken> parse(std::string_view digits) noexcept;
};

// Do these digits name the event of `wanted`? Also if its collection has been sharded since: then the document's key
// has the shard key before the _id.
bool is_same_event(std::string_view digits, std::string_view wanted) noexcept;

}  // namespace spillway
