#include "cursor/bson_view.h"

#include "cursor/bson_validator.h"

#include <cmath>
#include <limits>

#include "cursor/bson_decimal.h"

namespace spillway {

namespace {
Error invalid_bson(std::string message) { return {ErrorCode::invalid_bson, std::move(message)}; }

bool is_boolean_of_no_value(const Element& element) noexcept {
  return element.type == BsonType::boolean && element.bytes[0] > 1;
}
Error boolean_of_no_value(const Element& element) {
  return invalid_bson("Invalid boolean value in BSON field '" + std::string(element.name) + "'");
}

// REQUIRES a code with scope.
DocView scope_of(const Element& element) noexcept {
  const std::uint8_t* const code = element.bytes.data() + 4;
  return DocView::trusted(code + 4 + load_le<std::uint32_t>(code));
}

// Bytes of a NUL-terminated string with its NUL, or 0 when there is none within `room`.
std::size_t cstring_size(const std::uint8_t* at, std::size_t room) noexcept {
  const void* nul = room == 0 ? nullptr : std::memchr(at, 0, room);
  return nul == nullptr ? 0
                        : static_cast<std::size_t>(static_cast<const std::uint8_t*>(nul) - at) + 1;
}

std::size_t code_with_scope_size(const std::uint8_t* at, std::size_t room) noexcept {
  constexpr std::size_t least = 4 + 4 + 1 + 5;
  if (room < least) return no_size;
  const std::size_t size = load_le<std::uint32_t>(at);
  if (size < least || size > room) return no_size;
  const std::size_t code = load_le<std::uint32_t>(at + 4);
  if (code < 1 || 4 + 4 + code + 5 > size || at[8 + code - 1] != 0) return no_size;
  if (load_le<std::uint32_t>(at + 8 + code) != size - 8 - code || at[size - 1] != 0) {
    return no_size;
  }
  return size;
}
}  // namespace

namespace detail {
std::size_t rare_value_size(BsonType type, const std::uint8_t* at, std::size_t room) noexcept {
  if (type == BsonType::regex) {
    const std::size_t pattern = cstring_size(at, room);
    if (pattern == 0) return no_size;
    const std::size_t flags = cstring_size(at + pattern, room - pattern);
    return flags == 0 ? no_size : pattern + flags;
  }
  if (type == BsonType::db_pointer) {
    if (room < 4) return no_size;
    const std::size_t length = load_le<std::uint32_t>(at);
    if (length < 1 || 4 + length + 12 > room || at[4 + length - 1] != 0) return no_size;
    return 4 + length + 12;
  }
  if (type == BsonType::code_with_scope) return code_with_scope_size(at, room);
  return no_size;
}
}  // namespace detail

std::string_view bson_type_name(BsonType type) noexcept {
  // From eoo to decimal128.
  constexpr std::array<std::string_view, 20> names = {
      "missing", "double", "string", "object", "array", "binData", "undefined", "objectId", "bool", "date", "null",
      "regex", "dbPointer", "javascript", "symbol", "javascriptWithScope", "int", "timestamp", "long", "decimal"};
  if (type == BsonType::min_key) return "minKey";
  if (type == BsonType::max_key) return "maxKey";
  const auto index = static_cast<std::size_t>(type);
  return index < names.size() ? names[index] : "unknown";
}

std::optional<std::int64_t> ValueView::to_int64() const noexcept {
  if (type == BsonType::int32) return as_int32();
  if (type == BsonType::int64) return as_int64();
  if (type != BsonType::double_) return std::nullopt;
  const double value = as_double();
  if (!(value >= -two_to_63 && value < two_to_63) || value != std::trunc(value))
    return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<std::int64_t> ValueView::truncated_int64() const noexcept {
  if (const auto whole = to_int64()) return whole;
  const auto number = to_double();
  if (!number) return std::nullopt;
  if (std::isnan(*number)) return 0;
  if (*number >= two_to_63) return std::numeric_limits<std::int64_t>::max();
  if (*number < -two_to_63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(*number);
}

std::optional<double> ValueView::to_double() const noexcept {
  if (type == BsonType::double_) return as_double();
  if (type == BsonType::int32) return as_int32();
  if (type == BsonType::int64) return static_cast<double>(as_int64());
  if (type == BsonType::decimal128) return Decimal::decode(*this).to_double();
  return std::nullopt;
}

bool ValueView::truthy() const noexcept {
  switch (type) {
    case BsonType::eoo:
    case BsonType::null:
    case BsonType::undefined:
      return false;
    case BsonType::boolean:
      return as_bool();
    case BsonType::int32:
      return as_int32() != 0;
    case BsonType::int64:
      return as_int64() != 0;
    case BsonType::double_:
      return as_double() != 0;
    case BsonType::decimal128:
      return !Decimal::decode(*this).is_zero();
    default:
      return true;
  }
}

Result<DocView> DocView::parse(Bytes bytes) {
  if (bytes.size() < 5) return invalid_bson("BSON document is shorter than 5 bytes");
  const std::size_t size = load_le<std::uint32_t>(bytes.data());
  if (size < 5 || size > bytes.size()) {
    return invalid_bson("BSON document's length " +
                        std::to_string(load_le<std::int32_t>(bytes.data())) + " does not fit its " +
                        std::to_string(bytes.size()) + " bytes");
  }
  if (bytes[size - 1] != 0) return invalid_bson("BSON document is not terminated");
  return trusted(bytes.data());
}

Element DocView::find(std::string_view name) const noexcept {
  // The iterator's steps, without filling in the elements that are passed over.
  const std::uint8_t* const end = data_ + size() - 1;
  for (const std::uint8_t* at = data_ + 4; at != end;) {
    const std::uint8_t* const nul =
        detail::find_nul(at + 1, static_cast<std::size_t>(end - at) - 1);
    if (nul == nullptr) return {};
    const auto type = static_cast<BsonType>(*at);
    const std::size_t size_here = bson_value_size(type, nul + 1, end);
    if (size_here == no_size) return {};
    const std::string_view here(reinterpret_cast<const char*>(at) + 1, static_cast<std::size_t>(nul - at) - 1);
    const std::uint8_t* const next = nul + 1 + size_here;
    if (here == name) return {{type, {nul + 1, next}}, here, {at, next}};
    at = next;
  }
  return {};
}

ValueView DocView::find_path(std::string_view dotted) const noexcept {
  DocView doc = *this;
  for (;;) {
    const std::size_t dot = dotted.find('.');
    const Element element = doc.find(dotted.substr(0, dot));
    if (dot == std::string_view::npos) return element;
    if (!element.is_document()) return {};
    doc = element.as_document();
    dotted.remove_prefix(dot + 1);
  }
}

std::size_t DocView::count() const noexcept {
  std::size_t elements = 0;
  for (DocIterator at = begin(); !at.done(); ++at) ++elements;
  return elements;
}

Result<void> DocView::validate(int depth_max) const {
  BsonValidator validator(*this, depth_max);
  for (;;) {
    SPILLWAY_TRY(stepped, validator.step(SIZE_MAX));
    if (*stepped) return {};
  }
}

Result<void> validate_element(const Element& element, int depth_max) {
  if (is_boolean_of_no_value(element)) return boolean_of_no_value(element);
  if (element.is_document() || element.is_array()) return element.as_document().validate(depth_max);
  if (element.type == BsonType::code_with_scope) return scope_of(element).validate(depth_max);
  return {};
}

bool BsonValidator::enter(DocView document) noexcept {
  if (depth_ == depth_max_) return false;
  ends_[static_cast<std::size_t>(depth_++)] = document.data() + document.size() - 1;
  at_ = document.data() + 4;
  return true;
}

Result<bool> BsonValidator::step(std::size_t elements) {
  const auto too_deep = [] { return invalid_bson("BSON document is nested too deeply"); };
  if (at_ == nullptr && !enter(next_)) return too_deep();
  for (; elements > 0; --elements) {
    const std::uint8_t* const end = ends_[static_cast<std::size_t>(depth_ - 1)];
    if (at_ == end) {
      // A document ends where its value does.
      if (--depth_ == 0) return true;
      ++at_;
      continue;
    }
    const DocIterator element(at_, end);
    if (element.malformed()) return invalid_bson("Malformed element in a BSON document");
    if (is_boolean_of_no_value(*element)) return boolean_of_no_value(*element);
    if (element->is_document() || element->is_array()) {
      if (!enter(element->as_document())) return too_deep();
    } else if (element->type == BsonType::code_with_scope) {
      if (!enter(scope_of(*element))) return too_deep();
    } else {
      at_ += element->raw.size();
    }
  }
  return false;
}

}  // namespace spillway
