// The part of BSON that the benches need: a bounds-checked walk over elements and a small writer.
//
// Kept apart from cursor/bson_view on purpose: the load generator judges the proxy, so it must not
// share the proxy's reading of the bytes. Views point into the caller's bytes. No function throws or trusts a length.
// Source: bsonspec.org 1.1.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::bench {

template <class T>
inline T load_bytes(const void* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
inline void store_bytes(void* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

namespace bson {
constexpr std::uint8_t double_type = 0x01;
constexpr std::uint8_t string_type = 0x02;
constexpr std::uint8_t document_type = 0x03;
constexpr std::uint8_t array_type = 0x04;
constexpr std::uint8_t binary_type = 0x05;
constexpr std::uint8_t boolean_type = 0x08;
constexpr std::uint8_t date_type = 0x09;
constexpr std::uint8_t int32_type = 0x10;
constexpr std::uint8_t int64_type = 0x12;
}  // namespace bson

// The size of a value of `type` whose encoding starts at `at`: nullopt if the type is unknown or
// the value does not fit in `room` bytes, or if fewer bytes than its length field are there.
std::optional<std::size_t> value_bytes(std::uint8_t type, const char* at,
                                       std::size_t room) noexcept;

// One element: a type, a name, and the value's encoding.
struct Field {
  std::uint8_t type = 0;
  std::string_view name;
  std::string_view value;

  bool is_document() const noexcept { return type == bson::document_type; }
  bool is_array() const noexcept { return type == bson::array_type; }
  std::optional<std::string_view> text() const noexcept;
  std::optional<double> number() const noexcept;
  // Whole numbers of any numeric type that fit an int64.
  std::optional<std::int64_t> integer() const noexcept;
  // MongoDB's truth of a flag: false, 0 and missing are false.
  bool truthy() const noexcept;
};

// Walks the elements of a document. `malformed()` is true once an element did not fit.
class FieldWalk {
 public:
  explicit FieldWalk(std::string_view document) noexcept;
  std::optional<Field> next() noexcept;
  bool malformed() const noexcept { return malformed_; }

 private:
  std::string_view rest_;
  bool malformed_ = false;
};

// The first element called `name`, if there is one before any malformed element.
std::optional<Field> find_field(std::string_view document, std::string_view name) noexcept;

// Builds one document in a string. Subdocuments are opened and closed in order.
class DocWriter {
 public:
  DocWriter() { begin(); }
  DocWriter& add_int32(std::string_view name, std::int32_t value);
  DocWriter& add_int64(std::string_view name, std::int64_t value);
  DocWriter& add_double(std::string_view name, double value);
  DocWriter& add_bool(std::string_view name, bool value);
  DocWriter& add_date(std::string_view name, std::int64_t milliseconds);
  DocWriter& add_text(std::string_view name, std::string_view value);
  DocWriter& add_binary(std::string_view name, std::string_view bytes);
  // An encoded value as it is.
  DocWriter& add_raw(std::uint8_t type, std::string_view name, std::string_view value);
  DocWriter& open_document(std::string_view name);
  DocWriter& open_array(std::string_view name);
  DocWriter& close();
  // Closes the document and returns its bytes.
  std::string take();

 private:
  void begin();
  void head(std::uint8_t type, std::string_view name);
  std::string bytes_;
  std::string starts_;  // positions of the open documents, 4 bytes each
};

}  // namespace spillway::bench
