#include "proxy/pipeline/values/value.h"

#include <charconv>
#include <cstring>

#include "allocator/limits.h"
#include "cursor/bson_order.h"
#include "proxy/pipeline/values/text.h"

namespace spillway::pipeline {
namespace {

std::string_view index_name(std::uint64_t index, char (&text)[24]) noexcept {
  const auto end = std::to_chars(text, text + sizeof text, index).ptr;
  return {text, static_cast<std::size_t>(end - text)};
}

template <class T>
ValueView scalar(BsonType type, const T& value) noexcept {
  return {type, Bytes(reinterpret_cast<const std::uint8_t*>(&value), sizeof value)};
}

}  // namespace

Value Value::borrowed(ValueView view) noexcept {
  Value value;
  value.type_ = view.type;
  if (view.bytes.size() <= value.inline_.size()) {
    if (!view.bytes.empty()) std::memcpy(value.inline_.data(), view.bytes.data(), view.bytes.size());
    value.inline_size_ = static_cast<std::int8_t>(view.bytes.size());
  } else {
    value.inline_size_ = -1;
    value.bytes_ = view.bytes;
  }
  return value;
}

Value Value::null() noexcept { return borrowed({BsonType::null, {}}); }
Value Value::of(std::int32_t value) noexcept { return borrowed(scalar(BsonType::int32, value)); }
Value Value::of(std::int64_t value) noexcept { return borrowed(scalar(BsonType::int64, value)); }
Value Value::of(double value) noexcept { return borrowed(scalar(BsonType::double_, value)); }
Value Value::of(bool value) noexcept {
  const std::uint8_t byte = value ? 1 : 0;
  return borrowed(scalar(BsonType::boolean, byte));
}
Value Value::of(const DecimalBytes& value) noexcept {
  return borrowed({BsonType::decimal128, Bytes(value)});
}
Value Value::date(std::int64_t ms_since_epoch) noexcept {
  return borrowed(scalar(BsonType::date, ms_since_epoch));
}
Value Value::integer(std::int64_t value) noexcept {
  const auto narrow = static_cast<std::int32_t>(value);
  return narrow == value ? of(narrow) : of(value);
}

Value Value::string(std::string_view text) {
  RecycledBytes bytes(text.size() + 5, 0);
  store_le(bytes.data(), static_cast<std::uint32_t>(text.size() + 1));
  if (!text.empty()) std::memcpy(bytes.data() + 4, text.data(), text.size());
  return owned(BsonType::string, std::move(bytes));
}

Value Value::owned(BsonType type, RecycledBytes bytes) {
  Value value;
  value.type_ = type;
  value.inline_size_ = -1;
  value.owner_ = std::make_shared<const RecycledBytes>(std::move(bytes));
  value.bytes_ = *value.owner_;
  return value;
}

Value Value::document(BsonDoc doc) { return owned(BsonType::document, std::move(doc).take()); }
Value Value::array(BsonDoc elements) { return owned(BsonType::array, std::move(elements).take()); }

Value Value::part(ValueView inside) const noexcept {
  Value value = borrowed(inside);
  if (value.inline_size_ < 0) value.owner_ = owner_;
  return value;
}

Value Value::retained() const {
  if (inline_size_ >= 0 || owner_ != nullptr) return *this;
  Value value = *this;
  value.owner_ = std::make_shared<const RecycledBytes>(bytes_.begin(), bytes_.end());
  value.bytes_ = *value.owner_;
  return value;
}

std::weak_ordering compare(ValueView a, ValueView b) noexcept {
  if (a.exists() && b.exists()) return compare_values(a, b);
  const auto rank = [](ValueView v) {
    return v.exists() ? canonical_type(v.type) : canonical_type(BsonType::undefined);
  };
  return rank(a) <=> rank(b);
}

std::string_view type_name(const Value& value) noexcept {
  return value.missing() ? std::string_view("missing") : bson_type_name(value.type());
}

Error too_large_error() {
  return {
      ErrorCode::bson_object_too_large,
      join("a document built by the pipeline exceeds the limit of ", value_bytes_max, " bytes")};
}

Error too_deep_error() {
  return {ErrorCode::overflow, join("a document built by the pipeline exceeds the limit of ", limits::bson_depth_max,
                                    " levels of nesting")};
}

Result<void> check_depth(DocView built) {
  // A type, an empty name, a length and an end: most documents are too small to be deep.
  constexpr std::size_t level_bytes_min = 7;
  if (built.size() <= limits::bson_depth_max * level_bytes_min || built.validate()) {
    return {};
  }
  return too_deep_error();
}

void ArrayBuilder::add(ValueView value) {
  if (overflowed_ || writer_.size() + value.bytes.size() > value_bytes_max) {
    overflowed_ = true;
    return;
  }
  char text[24];
  const std::string_view name = index_name(count_++, text);
  if (value.exists()) {
    writer_.append(name, value);
  } else {
    writer_.append_null(name);
  }
}

Result<Value> ArrayBuilder::finish(Meter& meter) && {
  if (overflowed_) return too_large_error();
  BsonDoc doc = std::move(writer_).finish();
  if (auto charged = meter.charge(doc.size()); !charged) return charged.error();
  return Value::array(std::move(doc));
}

void DocumentBuilder::add(std::string_view name, ValueView value) {
  if (!value.exists() || overflowed_) return;
  if (writer_.size() + name.size() + value.bytes.size() > value_bytes_max) {
    overflowed_ = true;
    return;
  }
  writer_.append(name, value);
}

Result<Value> DocumentBuilder::finish(Meter& meter) && {
  if (overflowed_) return too_large_error();
  BsonDoc doc = std::move(writer_).finish();
  if (auto charged = meter.charge(doc.size()); !charged) return charged.error();
  return Value::document(std::move(doc));
}

Result<Value> metered_string(std::string_view text, Meter& meter) {
  if (text.size() > value_bytes_max) return too_large_error();
  if (auto charged = meter.charge(text.size()); !charged) return charged.error();
  return Value::string(text);
}

}  // namespace spillway::pipeline
