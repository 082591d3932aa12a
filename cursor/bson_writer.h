// Building small BSON documents: replies, commands to shards, sort keys. Not for payload: documents
// that are only routed are never re-encoded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "allocator/small_blocks.h"
#include "cursor/bson_view.h"

namespace spillway {

// A document that owns its bytes. Never empty: a default one is {}. Movable and copyable.
class BsonDoc {
 public:
  BsonDoc() = default;
  explicit BsonDoc(RecycledBytes bytes) : bytes_(std::move(bytes)) {}
  explicit BsonDoc(DocView view) : bytes_(view.data(), view.data() + view.size()) {}
  DocView view() const noexcept {
    return bytes_.empty() ? DocView() : DocView::trusted(bytes_.data());
  }
  operator DocView() const noexcept { return view(); }  // NOLINT: an owner reads as its view
  std::size_t size() const noexcept { return bytes_.empty() ? DocView().size() : bytes_.size(); }
  RecycledBytes take() && {
    if (bytes_.empty()) bytes_ = {5, 0, 0, 0, 0};
    return std::move(bytes_);
  }

  // Parses Extended JSON v2, relaxed or canonical.
  static Result<BsonDoc> from_json(std::string_view json);

 private:
  RecycledBytes bytes_;  // none: {}, which takes no memory
};

// Appends elements to a growing document. Sub-documents and arrays are opened and closed in order:
//   BsonDoc reply = BsonWriter().append("ok", 1.0).begin_array("hosts").append("0", "a:1").end().finish();
// Array elements take their index as name: append_item() does that inside an open array.
// Not thread-safe. Views returned by view() are invalidated by the next append.
class BsonWriter {
 public:
  BsonWriter() : bytes_(bytes_at_first) { open_.push_back({0, -1}); }

  BsonWriter& append(std::string_view name, double value);
  BsonWriter& append(std::string_view name, std::int32_t value);
  BsonWriter& append(std::string_view name, std::int64_t value);
  BsonWriter& append(std::string_view name, bool value);
  BsonWriter& append(std::string_view name, std::string_view value);
  BsonWriter& append(std::string_view name, const char* value) { return append(name, std::string_view(value)); }
  BsonWriter& append(std::string_view name, DocView value);
  BsonWriter& append(std::string_view name, const BsonDoc& value) { return append(name, value.view()); }
  BsonWriter& append(std::string_view name, ValueView value);  // any type, bytes copied unchanged; missing: nothing
  BsonWriter& append_element(const Element& element);          // name and value unchanged
  BsonWriter& append_array(std::string_view name, DocView array);
  BsonWriter& append_null(std::string_view name);
  BsonWriter& append_min_key(std::string_view name);
  BsonWriter& append_max_key(std::string_view name);
  BsonWriter& append_date(std::string_view name, std::int64_t ms_since_epoch);
  BsonWriter& append_timestamp(std::string_view name, std::uint64_t value);
  BsonWriter& append_object_id(std::string_view name, std::span<const std::uint8_t, 12> oid);
  BsonWriter& append_binary(std::string_view name, std::uint8_t subtype, Bytes data);
  BsonWriter& append_elements(DocView doc);  // all elements of doc, at this level
  // Those whose names are `wanted`.
  template <class Wanted>
  BsonWriter& append_elements(DocView doc, Wanted wanted) {
    for (const Element& element : doc) {
      if (wanted(element.name)) append_element(element);
    }
    return *this;
  }

  BsonWriter& begin_document(std::string_view name);
  BsonWriter& begin_array(std::string_view name);
  BsonWriter& end();  // closes the innermost open document or array

  // Inside an open array: the next index is the name.
  template <class T>
  BsonWriter& append_item(const T& value) {
    char name[16];
    return append(next_index(name), value);
  }
  BsonWriter& begin_document_item();
  BsonWriter& begin_array_item();

  std::size_t size() const noexcept { return size_; }
  int depth() const noexcept { return static_cast<int>(open_.size()) - 1; }

  BsonDoc finish();  // REQUIRES depth() == 0. Ends its use.

 private:
  struct Open {
    std::size_t start;        // where this document's length stands
    std::int64_t next_index;  // ≥ 0 inside an array
  };
  static constexpr std::size_t bytes_at_first = 256;

  // Room for that many more bytes, which the caller writes.
  std::uint8_t* grow(std::size_t bytes) {
    const std::size_t at = size_;
    size_ += bytes;
    if (size_ > bytes_.size()) bytes_.resize(std::max(size_, 2 * bytes_.size()));
    return bytes_.data() + at;
  }
  // Writes the type and the name, and makes room for the value: returns where it stands.
  std::uint8_t* header(BsonType type, std::string_view name, std::size_t value_bytes);
  BsonWriter& put(BsonType type, std::string_view name, Bytes value);
  template <class T>
  BsonWriter& put_le(BsonType type, std::string_view name, T value);
  void begin(BsonType type, std::string_view name);
  std::string_view next_index(char (&name)[16]);

  RecycledBytes bytes_;   // the document so far, and room
  std::size_t size_ = 4;  // of the document so far; finish() writes its length to the front
  absl::InlinedVector<Open, 4> open_;
};

}  // namespace spillway
