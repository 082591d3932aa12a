#include <bson/bson.h>

#include <memory>

#include "cursor/bson_writer.h"

namespace spillway {

namespace {

struct BsonDeleter {
  void operator()(bson_t* bson) const noexcept { bson_destroy(bson); }
  void operator()(bson_json_opts_t* opts) const noexcept { bson_json_opts_destroy(opts); }
  void operator()(bson_json_reader_t* reader) const noexcept { bson_json_reader_destroy(reader); }
  void operator()(char* text) const noexcept { bson_free(text); }
};
template <class T>
using Owned = std::unique_ptr<T, BsonDeleter>;

// Cuts at a boundary between UTF-8 characters and says that there was more.
void cut(std::string& text, std::size_t length_max) {
  if (text.size() <= length_max) return;
  std::size_t length = length_max;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U) --length;
  text.resize(length);
  text += "...";
}

// Empty when libbson refuses the document. May stop early once `length_max` is exceeded.
std::string relaxed_json(DocView doc, std::size_t length_max) {
  bson_t bson;
  if (!bson_init_static(&bson, doc.data(), doc.size())) return {};
  constexpr std::size_t limit = 1U << 30U;
  const auto budget = static_cast<int>(std::min(length_max, limit));
  const Owned<bson_json_opts_t> opts(bson_json_opts_new(BSON_JSON_MODE_RELAXED, budget));
  std::size_t length = 0;
  const Owned<char> text(bson_as_json_with_opts(&bson, &length, opts.get()));
  return text ? std::string(text.get(), length) : std::string();
}

constexpr std::size_t cut_margin_bytes = 16;

}  // namespace

Result<BsonDoc> BsonDoc::from_json(std::string_view json) {
  bson_error_t error{};
  const Owned<bson_json_reader_t> reader(bson_json_data_reader_new(false, 0));
  bson_json_data_reader_ingest(reader.get(), reinterpret_cast<const std::uint8_t*>(json.data()),
                               json.size());
  bson_t bson;
  bson_init(&bson);
  const auto failed = [&](std::string reason) -> Result<BsonDoc> {
    bson_destroy(&bson);
    return Error(ErrorCode::failed_to_parse, "Invalid JSON document: " + std::move(reason));
  };
  const int read = bson_json_reader_read(reader.get(), &bson, &error);
  if (read < 0) return failed(error.message);
  if (read == 0) return failed("it is empty");
  bson_t rest;
  bson_init(&rest);
  const int more = bson_json_reader_read(reader.get(), &rest, &error);
  bson_destroy(&rest);
  if (more != 0) return failed("there is text after its end");
  const std::uint8_t* data = bson_get_data(&bson);
  BsonDoc doc(RecycledBytes(data, data + bson.len));
  bson_destroy(&bson);
  return doc;
}

std::string to_json(DocView doc, std::size_t length_max) {
  std::string text = relaxed_json(doc, length_max + cut_margin_bytes);
  if (text.empty()) return "<malformed document of " + std::to_string(doc.size()) + " bytes>";
  cut(text, length_max);
  return text;
}

std::string to_json(ValueView value, std::size_t length_max) {
  if (!value.exists()) return "<missing>";
  if (value.is_document()) return to_json(value.as_document(), length_max);
  // A value alone is written as the only field of a document; its wrapping is then taken off.
  BsonWriter writer;
  writer.append("", value);
  const BsonDoc wrapped = std::move(writer).finish();
  constexpr std::string_view before = "{ \"\" : ";
  constexpr std::string_view after = " }";
  std::string text = relaxed_json(wrapped, before.size() + length_max + cut_margin_bytes);
  if (!text.starts_with(before)) {
    return "<malformed " + std::string(bson_type_name(value.type)) + ">";
  }
  text.erase(0, before.size());
  if (text.ends_with(after)) text.resize(text.size() - after.size());
  cut(text, length_max);
  return text;
}

}  // namespace spillway
