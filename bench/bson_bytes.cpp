#include "bench/bson_bytes.h"

#include <utility>

namespace spillway::bench {
namespace {

// Value sizes that the type alone decides; -1: a length field, -2: two C strings, -3: unknown.
int fixed_bytes(std::uint8_t type) noexcept {
  switch (type) {
    case 0x06:
    case 0x0a:
    case 0x7f:
    case 0xff:
      return 0;
    case 0x08:
      return 1;
    case 0x10:
      return 4;
    case 0x01:
    case 0x09:
    case 0x11:
    case 0x12:
      return 8;
    case 0x07:
      return 12;
    case 0x13:
      return 16;
    case 0x02:
    case 0x03:
    case 0x04:
    case 0x05:
    case 0x0c:
    case 0x0d:
    case 0x0e:
    case 0x0f:
      return -1;
    case 0x0b:
      return -2;
    default:
      return -3;
  }
}

std::optional<std::size_t> regex_bytes(const char* at, std::size_t room) noexcept {
  std::size_t used = 0;
  for (int part = 0; part < 2; ++part) {
    const void* end = std::memchr(at + used, 0, room - used);
    if (end == nullptr) return std::nullopt;
    used = static_cast<std::size_t>(static_cast<const char*>(end) - at) + 1;
  }
  return used;
}

}  // namespace

std::optional<std::size_t> value_bytes(std::uint8_t type, const char* at,
                                       std::size_t room) noexcept {
  const int fixed = fixed_bytes(type);
  if (fixed >= 0) {
    const auto size = static_cast<std::size_t>(fixed);
    return size <= room ? std::optional(size) : std::nullopt;
  }
  if (fixed == -2) return regex_bytes(at, room);
  if (fixed == -3 || room < 4) return std::nullopt;
  const auto declared = load_bytes<std::int32_t>(at);
  if (declared < 0) return std::nullopt;
  std::size_t size = static_cast<std::size_t>(declared);
  const bool counts_itself = type == 0x03 || type == 0x04 || type == 0x0f;
  if (counts_itself ? size < 5 : (type != 0x05 && size < 1)) return std::nullopt;
  if (!counts_itself) size += 4;  // string, code, symbol: the length field itself
  if (type == 0x05) size += 1;    // binary: and its subtype
  if (type == 0x0c) size += 12;   // db_pointer: and an ObjectId
  return size <= room ? std::optional(size) : std::nullopt;
}

std::optional<std::string_view> Field::text() const noexcept {
  if (type != bson::string_type || value.size() < 5) return std::nullopt;
  return value.substr(4, value.size() - 5);
}

std::optional<double> Field::number() const noexcept {
  switch (type) {
    case bson::double_type:
      return load_bytes<double>(value.data());
    case bson::int32_type:
      return load_bytes<std::int32_t>(value.data());
    case bson::int64_type:
      return static_cast<double>(load_bytes<std::int64_t>(value.data()));
    default:
      return std::nullopt;
  }
}

std::optional<std::int64_t> Field::integer() const noexcept {
  if (type == bson::int64_type) return load_bytes<std::int64_t>(value.data());
  if (type == bson::int32_type) return load_bytes<std::int32_t>(value.data());
  const auto whole = number();
  if (!whole || std::nearbyint(*whole) != *whole || std::fabs(*whole) >= 9.2e18) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*whole);
}

bool Field::truthy() const noexcept {
  if (type == bson::boolean_type) return value[0] != 0;
  const auto as_number = number();
  return as_number && *as_number != 0;
}

FieldWalk::FieldWalk(std::string_view document) noexcept {
  if (document.size() < 5 || load_bytes<std::int32_t>(document.data()) < 5 ||
      static_cast<std::size_t>(load_bytes<std::int32_t>(document.data())) != document.size() ||
      document.back() != '\0') {
    malformed_ = true;
    return;
  }
  rest_ = document.substr(4, document.size() - 5);
}

std::optional<Field> FieldWalk::next() noexcept {
  if (rest_.empty() || malformed_) return std::nullopt;
  Field field;
  field.type = static_cast<std::uint8_t>(rest_[0]);
  const auto name_end = rest_.find('\0', 1);
  if (name_end == std::string_view::npos) {
    malformed_ = true;
    return std::nullopt;
  }
  field.name = rest_.substr(1, name_end - 1);
  const auto after_name = rest_.substr(name_end + 1);
  const auto size = value_bytes(field.type, after_name.data(), after_name.size());
  if (!size) {
    malformed_ = true;
    return std::nullopt;
  }
  field.value = after_name.substr(0, *size);
  rest_ = after_name.substr(*size);
  return field;
}

std::optional<Field> find_field(std::string_view document, std::string_view name) noexcept {
  FieldWalk walk(document);
  while (auto field = walk.next()) {
    if (field->name == name) return field;
  }
  return std::nullopt;
}

namespace {
template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
}  // namespace

void DocWriter::begin() {
  const auto start = static_cast<std::uint32_t>(bytes_.size());
  starts_.append(bytes_of(start));
  bytes_.append(4, '\0');
}

void DocWriter::head(std::uint8_t type, std::string_view name) {
  bytes_.push_back(static_cast<char>(type));
  bytes_.append(name);
  bytes_.push_back('\0');
}

DocWriter& DocWriter::add_raw(std::uint8_t type, std::string_view name, std::string_view value) {
  head(type, name);
  bytes_.append(value);
  return *this;
}
DocWriter& DocWriter::add_int32(std::string_view name, std::int32_t value) {
  return add_raw(bson::int32_type, name, bytes_of(value));
}
DocWriter& DocWriter::add_int64(std::string_view name, std::int64_t value) {
  return add_raw(bson::int64_type, name, bytes_of(value));
}
DocWriter& DocWriter::add_double(std::string_view name, double value) {
  return add_raw(bson::double_type, name, bytes_of(value));
}
DocWriter& DocWriter::add_bool(std::string_view name, bool value) {
  return add_raw(bson::boolean_type, name,
                 value ? std::string_view("\1", 1) : std::string_view("\0", 1));
}
DocWriter& DocWriter::add_date(std::string_view name, std::int64_t milliseconds) {
  return add_raw(bson::date_type, name, bytes_of(milliseconds));
}
DocWriter& DocWriter::add_text(std::string_view name, std::string_view value) {
  head(bson::string_type, name);
  const auto size = static_cast<std::int32_t>(value.size() + 1);
  bytes_.append(bytes_of(size));
  bytes_.append(value);
  bytes_.push_back('\0');
  return *this;
}
DocWriter& DocWriter::add_binary(std::string_view name, std::string_view value) {
  head(bson::binary_type, name);
  const auto size = static_cast<std::int32_t>(value.size());
  bytes_.append(bytes_of(size));
  bytes_.push_back('\0');
  bytes_.append(value);
  return *this;
}
DocWriter& DocWriter::open_document(std::string_view name) {
  head(bson::document_type, name);
  begin();
  return *this;
}
DocWriter& DocWriter::open_array(std::string_view name) {
  head(bson::array_type, name);
  begin();
  return *this;
}
DocWriter& DocWriter::close() {
  const auto start = load_bytes<std::uint32_t>(starts_.data() + starts_.size() - 4);
  starts_.resize(starts_.size() - 4);
  bytes_.push_back('\0');
  store_bytes(bytes_.data() + start, static_cast<std::int32_t>(bytes_.size() - start));
  return *this;
}
std::string DocWriter::take() {
  close();
  return std::exchange(bytes_, {});
}

}  // namespace spillway::bench
