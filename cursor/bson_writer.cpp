#include "cursor/bson_writer.h"

#include <bit>
#include <cassert>
#include <charconv>
#include <cstring>

namespace spillway {

namespace {

void copy(std::uint8_t* to, const void* from, std::size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

std::uint8_t* BsonWriter::header(BsonType type, std::string_view name, std::size_t value_bytes) {
  name = name.substr(0, name.find('\0'));  // a NUL cannot be part of a name
  std::uint8_t* to = grow(1 + name.size() + 1 + value_bytes);
  *to++ = static_cast<std::uint8_t>(type);
  copy(to, name.data(), name.size());
  to += name.size();
  *to++ = 0;
  return to;
}

BsonWriter& BsonWriter::put(BsonType type, std::string_view name, Bytes value) {
  copy(header(type, name, value.size()), value.data(), value.size());
  return *this;
}

template <class T>
BsonWriter& BsonWriter::put_le(BsonType type, std::string_view name, T value) {
  store_le(header(type, name, sizeof value), value);
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, double value) {
  return put_le(BsonType::double_, name, std::bit_cast<std::int64_t>(value));
}

BsonWriter& BsonWriter::append(std::string_view name, std::int32_t value) {
  return put_le(BsonType::int32, name, value);
}

BsonWriter& BsonWriter::append(std::string_view name, std::int64_t value) {
  return put_le(BsonType::int64, name, value);
}

BsonWriter& BsonWriter::append(std::string_view name, bool value) {
  *header(BsonType::boolean, name, 1) = value ? 1 : 0;
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, std::string_view value) {
  const auto length = static_cast<std::uint32_t>(value.size() + 1);
  std::uint8_t* const to = header(BsonType::string, name, 4 + length);
  store_le(to, length);
  copy(to + 4, value.data(), value.size());
  to[4 + value.size()] = 0;
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, DocView value) {
  return put(BsonType::document, name, value.bytes());
}

BsonWriter& BsonWriter::append(std::string_view name, ValueView value) {
  return value.exists() ? put(value.type, name, value.bytes) : *this;
}

BsonWriter& BsonWriter::append_element(const Element& element) {
  copy(grow(element.raw.size()), element.raw.data(), element.raw.size());
  return *this;
}

BsonWriter& BsonWriter::append_array(std::string_view name, DocView array) {
  return put(BsonType::array, name, array.bytes());
}

BsonWriter& BsonWriter::append_null(std::string_view name) { return put(BsonType::null, name, {}); }

BsonWriter& BsonWriter::append_min_key(std::string_view name) { return put(BsonType::min_key, name, {}); }

BsonWriter& BsonWriter::append_max_key(std::string_view name) { return put(BsonType::max_key, name, {}); }

BsonWriter& BsonWriter::append_date(std::string_view name, std::int64_t ms_since_epoch) {
  return put_le(BsonType::date, name, ms_since_epoch);
}

BsonWriter& BsonWriter::append_timestamp(std::string_view name, std::uint64_t value) {
  return put_le(BsonType::timestamp, name, value);
}

BsonWriter& BsonWriter::append_object_id(std::string_view name, std::span<const std::uint8_t, 12> oid) {
  return put(BsonType::object_id, name, oid);
}

BsonWriter& BsonWriter::append_binary(std::string_view name, std::uint8_t subtype, Bytes data) {
  std::uint8_t* const to = header(BsonType::binary, name, 5 + data.size());
  store_le(to, static_cast<std::uint32_t>(data.size()));
  to[4] = subtype;
  copy(to + 5, data.data(), data.size());
  return *this;
}

BsonWriter& BsonWriter::append_elements(DocView doc) {
  copy(grow(doc.size() - 5), doc.data() + 4, doc.size() - 5);
  return *this;
}

void BsonWriter::begin(BsonType type, std::string_view name) {
  header(type, name, 4);  // the length: end() writes it
  open_.push_back({size_ - 4, type == BsonType::array ? 0 : -1});
}

BsonWriter& BsonWriter::begin_document(std::string_view name) {
  begin(BsonType::document, name);
  return *this;
}

BsonWriter& BsonWriter::begin_array(std::string_view name) {
  begin(BsonType::array, name);
  return *this;
}

BsonWriter& BsonWriter::begin_document_item() {
  char name[16];
  return begin_document(next_index(name));
}

BsonWriter& BsonWriter::begin_array_item() {
  char name[16];
  return begin_array(next_index(name));
}

std::string_view BsonWriter::next_index(char (&name)[16]) {
  assert(open_.back().next_index >= 0);
  const auto end = std::to_chars(name, name + sizeof name, open_.back().next_index++).ptr;
  return {name, static_cast<std::size_t>(end - name)};
}

BsonWriter& BsonWriter::end() {
  assert(depth() > 0);
  const std::size_t start = open_.back().start;
  open_.pop_back();
  *grow(1) = 0;
  store_le(bytes_.data() + start, static_cast<std::uint32_t>(size_ - start));
  return *this;
}

BsonDoc BsonWriter::finish() {
  assert(depth() == 0);
  *grow(1) = 0;
  store_le(bytes_.data(), static_cast<std::uint32_t>(size_));
  bytes_.resize(size_);
  return BsonDoc(std::move(bytes_));
}

}  // namespace spillway
