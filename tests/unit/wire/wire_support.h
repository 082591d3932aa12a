// Building blocks of the wire tests: documents from JSON, messages, and copies that end exactly
// where the bytes end (so that AddressSanitizer sees a read beyond them).
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/wire/op_msg.h"

// A failed check prints the error, not the value.
template <class T>
struct Catch::StringMaker<boost::system::result<T, spillway::Error>> {
  static std::string convert(const boost::system::result<T, spillway::Error>& result) {
    return result.has_value()
               ? "a value"
               : "error " + std::to_string(result.error().code) + ": " + result.error().message;
  }
};

namespace spillway::wire {

using ByteVector = std::vector<std::uint8_t>;

inline BsonDoc doc(std::string_view json) { return BsonDoc::from_json(json).value(); }

inline ByteVector message(std::string_view body_json, std::uint32_t message_flags = 0,
                          bool checksum = false) {
  ByteVector out;
  begin_op_msg(out, 7, 3, message_flags);
  append_body(out, doc(body_json));
  finish_op_msg(out, checksum);
  return out;
}

// A message of sections written by hand; its length is right.
inline ByteVector raw_message(std::uint32_t message_flags, const ByteVector& sections) {
  ByteVector out;
  begin_op_msg(out, 7, 3, message_flags);
  out.insert(out.end(), sections.begin(), sections.end());
  store_le(out.data(), static_cast<std::int32_t>(out.size()));
  return out;
}

inline ByteVector exact(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

template <class T>
std::int32_t code_of(const Result<T>& result) {
  return result.has_value() ? 0 : result.error().code;
}

}  // namespace spillway::wire
