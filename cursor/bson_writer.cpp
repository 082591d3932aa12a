#include "cursor/bson_writer.h"

#include <cassert>
#include <charconv>

namespace spillway {

void BsonWriter::raw(const void* data, std::size_t size) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  bytes_.insert(bytes_.end(), from, from + size);
}

void BsonWriter::header(BsonType type, std::string_view name) {
  name = name.substr(0, name.find('\0'));  // a NUL cannot be part of a name
  bytes_.push_back(static_cast<std::uint8_t>(type));
  raw(name.data(), name.size());
  bytes_.push_back(0);
}

BsonWriter& BsonWriter::append(std::string_view name, double value) {
  header(BsonType::double_, name);
  raw(&value, sizeof value);
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, std::int32_t value) {
  header(BsonType::int32, name);
  raw(&value, sizeof value);
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, std::int64_t value) {
  header(BsonType::int64, name);
  raw(&value, sizeof value);
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, bool value) {
  header(BsonType::boolean, name);
  bytes_.push_back(value ? 1 : 0);
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, std::string_view value) {
  header(BsonType::string, name);
  const auto length = static_cast<std::uint32_t>(value.size() + 1);
  raw(&length, sizeof length);
  raw(value.data(), value.size());
  bytes_.push_back(0);
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, DocView value) {
  header(BsonType::document, name);
  raw(value.data(), value.size());
  return *this;
}

BsonWriter& BsonWriter::append(std::string_view name, ValueView value) {
  if (!value.exists()) return *this;
  header(value.type, name);
  raw(value.bytes.data(), value.bytes.size());
  return *this;
}

BsonWriter& BsonWriter::append_element(const Element& element) {
  raw(element.raw.data(), element.raw.size());
  return *this;
}

BsonWriter& BsonWriter::append_array(std::string_view name, DocView array) {
  header(BsonType::array, name);
  raw(array.data(), array.size());
  return *this;
}

BsonWriter& BsonWriter::append_null(std::string_view name) {
  header(BsonType::null, name);
  return *this;
}

BsonWriter& BsonWriter::append_min_key(std::string_view name) {
  header(BsonType::min_key, name);
  return *this;
}

BsonWriter& BsonWriter::append_max_key(std::string_view name) {
  header(BsonType::max_key, name);
  return *this;
}

BsonWriter& BsonWriter::append_date(std::string_view name, std::int64_t ms_since_epoch) {
  header(BsonType::date, name);
  raw(&ms_since_epoch, sizeof ms_since_epoch);
  return *this;
}

BsonWriter& BsonWriter::append_timestamp(std::string_view name, std::uint64_t value) {
  header(BsonType::timestamp, name);
  raw(&value, sizeof value);
  return *this;
}

BsonWriter& BsonWriter::append_object_id(std::string_view name, const std::uint8_t (&oid)[12]) {
  header(BsonType::object_id, name);
  raw(oid, sizeof oid);
  return *this;
}

BsonWriter& BsonWriter::append_binary(std::string_view name, std::uint8_t subtype, Bytes data) {
  header(BsonType::binary, name);
  const auto length = static_cast<std::uint32_t>(data.size());
  raw(&length, sizeof length);
  bytes_.push_back(subtype);
  raw(data.data(), data.size());
  return *this;
}

BsonWriter& BsonWriter::append_elements(DocView doc) {
  raw(doc.data() + 4, doc.size() - 5);
  return *this;
}

void BsonWriter::begin(BsonType type, std::string_view name) {
  header(type, name);
  open_.push_back({bytes_.size(), type == BsonType::array ? 0 : -1});
  bytes_.insert(bytes_.end(), 4, 0);
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
  bytes_.push_back(0);
  store_le(bytes_.data() + start, static_cast<std::uint32_t>(bytes_.size() - start));
  return *this;
}

BsonDoc BsonWriter::finish() && {
  assert(depth() == 0);
  bytes_.push_back(0);
  store_le(bytes_.data(), static_cast<std::uint32_t>(bytes_.size()));
  return BsonDoc(std::move(bytes_));
}

}  // namespace spillway
