// Values while an expression is evaluated: either borrowed from a document or owned.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"
#include "proxy/pipeline/values/meter.h"

namespace spillway::pipeline {

using DecimalBytes = std::array<std::uint8_t, 16>;

// A BSON value. Scalars are held inside; larger values are either owned, shared with copies of this
// value, or borrowed, and then valid as long as the document they came from. A default one is
// "missing": no value at all, which is not null.
class Value {
 public:
  Value() = default;
  static Value borrowed(ValueView view) noexcept;
  static Value null() noexcept;
  static Value of(std::int32_t value) noexcept;
  static Value of(std::int64_t value) noexcept;
  static Value of(double value) noexcept;
  static Value of(bool value) noexcept;
  static Value of(const DecimalBytes& value) noexcept;
  static Value date(std::int64_t ms_since_epoch) noexcept;
  // int32 when it fits, otherwise int64.
  static Value integer(std::int64_t value) noexcept;
  static Value string(std::string_view text);
  static Value document(BsonDoc doc);
  static Value array(BsonDoc elements);

  BsonType type() const noexcept { return type_; }
  // Valid while this value stays where it is (and, when borrowed, while its document does).
  ValueView view() const noexcept {
    return {type_, inline_size_ >= 0 ? Bytes(inline_.data(), static_cast<std::size_t>(inline_size_))
                                     : bytes_};
  }
  bool missing() const noexcept { return type_ == BsonType::eoo; }
  // Missing, null or undefined.
  bool nullish() const noexcept {
    return missing() || type_ == BsonType::null || type_ == BsonType::undefined;
  }
  bool is_number() const noexcept { return view().is_number(); }
  bool is_integer() const noexcept { return type_ == BsonType::int32 || type_ == BsonType::int64; }
  bool is_string() const noexcept { return type_ == BsonType::string; }
  bool is_document() const noexcept { return type_ == BsonType::document; }
  bool is_array() const noexcept { return type_ == BsonType::array; }
  bool truthy() const noexcept { return view().truthy(); }

  std::int32_t as_int32() const noexcept { return view().as_int32(); }
  std::int64_t as_int64() const noexcept { return view().as_int64(); }
  double as_double() const noexcept { return view().as_double(); }
  std::string_view as_string() const noexcept { return view().as_string(); }
  DocView as_document() const noexcept { return view().as_document(); }

  // A part of this value: shares its ownership.
  Value part(ValueView inside) const noexcept;
  // The same value with its own bytes.
  Value retained() const;

 private:
  static Value owned(BsonType type, RecycledBytes bytes);

  BsonType type_ = BsonType::eoo;
  std::int8_t inline_size_ = 0;  // -1: the bytes are elsewhere
  std::array<std::uint8_t, 16> inline_{};
  Bytes bytes_;
  std::shared_ptr<const RecycledBytes> owner_;
};

// MongoDB's order, a missing value below all others but undefined.
std::weak_ordering compare(ValueView a, ValueView b) noexcept;
inline std::weak_ordering compare(const Value& a, const Value& b) noexcept {
  return compare(a.view(), b.view());
}
std::string_view type_name(const Value& value) noexcept;  // "missing" too

// Builds an array. finish() refuses a result above the document limit, whose elements are not kept.
class ArrayBuilder {
 public:
  void add(ValueView value);  // a missing value becomes null
  void add(const Value& value) { add(value.view()); }
  std::size_t size_bytes() const noexcept { return writer_.size(); }
  bool overflowed() const noexcept { return overflowed_; }
  // Charges the meter with the result.
  Result<Value> finish(Meter& meter) &&;

 private:
  BsonWriter writer_;
  std::uint64_t count_ = 0;
  bool overflowed_ = false;
};

// Builds a document; missing values are left out. The limit as above.
class DocumentBuilder {
 public:
  void add(std::string_view name, ValueView value);
  void add(std::string_view name, const Value& value) { add(name, value.view()); }
  Result<Value> finish(Meter& meter) &&;

 private:
  BsonWriter writer_;
  bool overflowed_ = false;
};

Result<Value> metered_string(std::string_view text, Meter& meter);
Error too_large_error();
Error too_deep_error();  // Overflow (15)
// Overflow for a document that is nested deeper than a client or a shard may send one. REQUIRES a well-formed one.
Result<void> check_depth(DocView built);

}  // namespace spillway::pipeline
