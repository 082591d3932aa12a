// Views over BSON bytes that the caller owns: no copies, no heap, no exceptions.
//
// DocView and Element point into the owner's bytes (a message buffer, a batch, a writer) and are
// valid while those bytes stay where they are. They are trivially copyable values, safe to use from
// any thread that may read the bytes.
//
// A DocView made by DocView::parse has had its outer frame checked (length, terminator); its
// elements are checked one by one while iterating: the iterator stops and reports `malformed()`
// when an element does not fit. validate() walks everything, nested documents included. Source:
// bsonspec.org 1.1.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cursor/error.h"

namespace spillway {

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

// Integers enter and leave bytes only through these two (little-endian, unaligned).
template <class T>
inline T load_le(const void* from) noexcept {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
inline void store_le(void* to, T value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

enum class BsonType : std::uint8_t {
  eoo = 0x00,
  double_ = 0x01,
  string = 0x02,
  document = 0x03,
  array = 0x04,
  binary = 0x05,
  undefined = 0x06,
  object_id = 0x07,
  boolean = 0x08,
  date = 0x09,
  null = 0x0a,
  regex = 0x0b,
  db_pointer = 0x0c,
  code = 0x0d,
  symbol = 0x0e,
  code_with_scope = 0x0f,
  int32 = 0x10,
  timestamp = 0x11,
  int64 = 0x12,
  decimal128 = 0x13,
  min_key = 0xff,
  max_key = 0x7f,
};

// "double", "string", "object", "array", … : the aliases of $type, as error messages name types.
std::string_view bson_type_name(BsonType type) noexcept;

class DocView;

// A value with its type: an element without a name. `bytes` is exactly the value's encoding.
struct ValueView {
  BsonType type = BsonType::eoo;
  Bytes bytes;

  bool exists() const noexcept { return type != BsonType::eoo; }
  bool is_number() const noexcept {
    return type == BsonType::double_ || type == BsonType::int32 || type == BsonType::int64 ||
           type == BsonType::decimal128;
  }
  bool is_null() const noexcept { return type == BsonType::null; }
  bool is_document() const noexcept { return type == BsonType::document; }
  bool is_array() const noexcept { return type == BsonType::array; }
  bool is_string() const noexcept { return type == BsonType::string; }

  // REQUIRES the exact type for each of these.
  double as_double() const noexcept { return load_le<double>(bytes.data()); }
  std::int32_t as_int32() const noexcept { return load_le<std::int32_t>(bytes.data()); }
  std::int64_t as_int64() const noexcept { return load_le<std::int64_t>(bytes.data()); }
  bool as_bool() const noexcept { return bytes[0] != 0; }
  // string, symbol, code: without the terminating NUL (embedded NULs are kept).
  std::string_view as_string() const noexcept {
    return {reinterpret_cast<const char*>(bytes.data()) + 4, bytes.size() - 5};
  }
  inline DocView as_document() const noexcept;  // document or array
  struct Binary {
    std::uint8_t subtype;
    Bytes data;
  };
  Binary as_binary() const noexcept { return {bytes[4], bytes.subspan(5)}; }

  // Lenient readings, as commands take their arguments.
  // Of another type: nothing is in it.
  std::string_view to_text() const noexcept { return is_string() ? as_string() : std::string_view(); }
  inline DocView to_document() const noexcept;
  inline DocView to_array() const noexcept;
  // int32, int64, and doubles that are whole and fit; nothing else.
  std::optional<std::int64_t> to_int64() const noexcept;
  // Any number, cut towards zero and into the range; NaN is 0.
  std::optional<std::int64_t> truncated_int64() const noexcept;
  std::optional<double> to_double() const noexcept;  // any number (decimals converted)
  // MongoDB's truth of a flag: false, 0, null, undefined and missing are false.
  bool truthy() const noexcept;
  bool operator==(const ValueView& other) const noexcept {  // byte for byte
    return type == other.type && bytes.size() == other.bytes.size() &&
           (bytes.empty() || std::memcmp(bytes.data(), other.bytes.data(), bytes.size()) == 0);
  }
};

// A named value inside a document. `raw` spans type byte, name with NUL, and value.
struct Element : ValueView {
  std::string_view name;
  Bytes raw;
};

// Iterates over a document's elements, checking each against the document's end.
class DocIterator {
 public:
  DocIterator() = default;
  DocIterator(const std::uint8_t* at, const std::uint8_t* end) noexcept : at_(at), end_(end) {
    read();
  }

  const Element& operator*() const noexcept { return element_; }
  const Element* operator->() const noexcept { return &element_; }
  DocIterator& operator++() noexcept {
    at_ += element_.raw.size();
    read();
    return *this;
  }
  // At the end, either because the document ended or because an element was malformed.
  bool done() const noexcept { return element_.type == BsonType::eoo; }
  bool malformed() const noexcept { return malformed_; }
  bool operator==(std::default_sentinel_t) const noexcept { return done(); }

 private:
  void read() noexcept;

  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;  // at the document's terminating 0
  Element element_;
  bool malformed_ = false;
};

namespace detail {
inline constexpr std::uint8_t empty_document[5] = {5, 0, 0, 0, 0};
}  // namespace detail

class DocView {
 public:
  // The empty document.
  DocView() noexcept : data_(detail::empty_document) {}
  // REQUIRES: bytes hold exactly one document whose frame is known to be right.
  static DocView trusted(const void* data) noexcept {
    DocView view;
    view.data_ = static_cast<const std::uint8_t*>(data);
    return view;
  }
  // Checks the frame: length ≥ 5, ≤ bytes.size(), terminator. Bytes after the document are allowed
  // (size() tells where it ends).
  static Result<DocView> parse(Bytes bytes);

  const std::uint8_t* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return load_le<std::uint32_t>(data_); }
  Bytes bytes() const noexcept { return {data_, size()}; }
  bool empty() const noexcept { return size() == 5; }

  DocIterator begin() const noexcept { return {data_ + 4, data_ + size() - 1}; }
  std::default_sentinel_t end() const noexcept { return {}; }

  // First element of that name; an Element of type eoo when there is none.
  Element find(std::string_view name) const noexcept;
  ValueView operator[](std::string_view name) const noexcept { return find(name); }
  // Follows a dotted path through documents only (never through arrays).
  ValueView find_path(std::string_view dotted) const noexcept;
  Element first() const noexcept { return *begin(); }
  std::size_t count() const noexcept;

  // Checks all: every element fits, strings are terminated, booleans are 0 or 1,
  // nesting is at most depth_max. Does not check UTF-8.
  Result<void> validate(int depth_max = 200) const;

 private:
  const std::uint8_t* data_;
};

// Checks an element as DocView::validate() does, if its frame is known to be right. `depth_max`: of documents in it.
Result<void> validate_element(const Element& element, int depth_max);

inline DocView ValueView::as_document() const noexcept { return DocView::trusted(bytes.data()); }
inline DocView ValueView::to_document() const noexcept { return is_document() ? as_document() : DocView(); }
inline DocView ValueView::to_array() const noexcept { return is_array() ? as_document() : DocView(); }

inline constexpr double two_to_63 = 9223372036854775808.0;  // the first double above every int64

namespace detail {
// Encoded size by type byte: ≥ 0 fixed; −1 int32 length + bytes (string, symbol, code); −2 a
// document; −3 binary; −4 anything else, known or not.
inline constexpr std::int8_t size_is_string = -1, size_is_document = -2, size_is_binary = -3,
                             size_is_other = -4;
constexpr std::array<std::int8_t, 256> make_bson_sizes() noexcept {
  std::array<std::int8_t, 256> sizes{};
  for (auto& size : sizes) size = size_is_other;
  for (const int type : {0x06, 0x0a, 0xff, 0x7f}) sizes[static_cast<std::size_t>(type)] = 0;
  sizes[0x08] = 1;
  sizes[0x10] = 4;
  for (const int type : {0x01, 0x09, 0x11, 0x12}) sizes[static_cast<std::size_t>(type)] = 8;
  sizes[0x07] = 12;
  sizes[0x13] = 16;
  for (const int type : {0x02, 0x0d, 0x0e}) sizes[static_cast<std::size_t>(type)] = size_is_string;
  for (const int type : {0x03, 0x04}) sizes[static_cast<std::size_t>(type)] = size_is_document;
  sizes[0x05] = size_is_binary;
  return sizes;
}
inline constexpr std::array<std::int8_t, 256> bson_sizes = make_bson_sizes();

// Regular expressions, DBPointers, code with scope; unknown types fit nowhere.
std::size_t rare_value_size(BsonType type, const std::uint8_t* at, std::size_t room) noexcept;
}  // namespace detail

// For a malformed value. (A number, not an optional: this is asked for each element of each document.)
inline constexpr std::size_t no_size = SIZE_MAX;

// Size in bytes of a value of this type at `at`, or no_size if it does not fit before `end`. Nested documents are
// checked by their frame only.
inline std::size_t bson_value_size(BsonType type, const std::uint8_t* at, const std::uint8_t* end) noexcept {
  const std::size_t room = static_cast<std::size_t>(end - at);
  const std::int8_t kind = detail::bson_sizes[static_cast<std::uint8_t>(type)];
  if (kind >= 0) {
    const std::size_t size = static_cast<std::size_t>(kind);
    return size <= room ? size : no_size;
  }
  if (kind == detail::size_is_other) return detail::rare_value_size(type, at, room);
  if (room < 4) return no_size;
  // A negative length becomes larger than any room.
  const std::size_t length = load_le<std::uint32_t>(at);
  if (kind == detail::size_is_document) {
    return length < 5 || length > room || at[length - 1] != 0 ? no_size : length;
  }
  if (kind == detail::size_is_binary) return length + 5 <= room ? length + 5 : no_size;
  return length < 1 || length + 4 > room || at[length + 3] != 0 ? no_size : length + 4;
}

namespace detail {
// The NUL that ends a name, or nullptr. Names are short: eight bytes at a time, without a call.
inline const std::uint8_t* find_nul(const std::uint8_t* at, std::size_t room) noexcept {
  constexpr std::uint64_t ones = 0x0101010101010101;
  constexpr std::uint64_t highs = 0x8080808080808080;
  for (; room >= 8; at += 8, room -= 8) {
    const auto word = load_le<std::uint64_t>(at);
    const std::uint64_t zeros = (word - ones) & ~word & highs;  // its lowest bit is exact
    if (zeros != 0) return at + std::countr_zero(zeros) / 8;
  }
  for (; room > 0; ++at, --room) {
    if (*at == 0) return at;
  }
  return nullptr;
}
}  // namespace detail

inline void DocIterator::read() noexcept {
  if (at_ != end_) [[likely]] {
    const std::uint8_t* name = at_ + 1;
    const std::uint8_t* nul = detail::find_nul(name, static_cast<std::size_t>(end_ - name));
    if (nul != nullptr) [[likely]] {
      const std::uint8_t* value = nul + 1;
      const auto type = static_cast<BsonType>(*at_);
      const std::size_t size = bson_value_size(type, value, end_);
      if (size != no_size) [[likely]] {
        element_.type = type;
        element_.bytes = {value, size};
        element_.name = {reinterpret_cast<const char*>(name), static_cast<std::size_t>(nul - name)};
        element_.raw = {at_, static_cast<std::size_t>(value - at_) + size};
        return;
      }
    }
    malformed_ = true;
    end_ = at_;
  }
  element_ = Element{};
}

// Relaxed Extended JSON v2 of a document or value: for error messages and logs. Cut at length_max.
std::string to_json(DocView doc, std::size_t length_max = 4096);
std::string to_json(ValueView value, std::size_t length_max = 1024);

}  // namespace spillway
