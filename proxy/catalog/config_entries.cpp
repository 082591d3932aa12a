#include "proxy/catalog/config_entries.h"

namespace spillway::catalog {
namespace {

// Takes the fields of one document; keeps the first error.
class EntryFields {
 public:
  EntryFields(std::string_view collection, DocView doc) : collection_(collection), doc_(doc) {}

  std::string name(std::string_view field) {
    const ValueView value = required(field);
    if (!value.is_string()) return wrong(field, value, "string"), std::string();
    if (value.as_string().empty()) fail(ErrorCode::bad_value, field, "is empty");
    return std::string(value.as_string());
  }
  bool flag(std::string_view field) {
    const ValueView value = doc_[field];
    if (!value.exists()) return false;
    if (value.type != BsonType::boolean) return wrong(field, value, "bool"), false;
    return value.as_bool();
  }
  ObjectId object_id(std::string_view field) {
    const ValueView value = required(field);
    const auto id = read_object_id(value);
    if (!id) wrong(field, value, "objectId");
    return id.value_or(ObjectId{});
  }
  std::uint64_t timestamp(std::string_view field) {  // 0 when it is missing
    const ValueView value = doc_[field];
    const auto read = read_timestamp(value);
    if (value.exists() && !read) wrong(field, value, "timestamp");
    return read.value_or(0);
  }
  std::optional<Uuid> uuid(std::string_view field, bool needed) {
    const ValueView value = needed ? required(field) : doc_[field];
    const auto id = read_uuid(value);
    if (value.exists() && !id) wrong(field, value, "UUID");
    return id;
  }
  std::optional<DocView> document(std::string_view field, bool needed) {
    const ValueView value = needed ? required(field) : doc_[field];
    if (!value.exists()) return std::nullopt;
    if (!value.is_document()) return wrong(field, value, "object"), std::nullopt;
    return value.as_document();
  }
  bool has(std::string_view field) const { return doc_[field].exists(); }

  void fail(ErrorCode code, std::string_view field, const std::string& why) {
    if (!error_) error_ = Error(code, where() + ": field '" + std::string(field) + "' " + why);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  ValueView required(std::string_view field) {
    const ValueView value = doc_[field];
    if (!value.exists()) fail(ErrorCode::failed_to_parse, field, "is missing");
    return value;
  }
  void wrong(std::string_view field, ValueView value, std::string_view expected) {
    fail(ErrorCode::type_mismatch, field,
         "is of type " + std::string(bson_type_name(value.type)) + ", expected " + std::string(expected));
  }
  std::string where() const {
    const ValueView id = doc_["_id"];
    return "config." + std::string(collection_) + (id.exists() ? " " + to_json(id) : std::string());
  }

  std::string_view collection_;
  DocView doc_;
  std::optional<Error> error_;
};

// The rounding is named from 6.3 on; before, it follows from the granularity.
TimeSeries read_time_series(EntryFields& fields) {
  TimeSeries series;
  const auto options = fields.document("timeseriesFields", true);
  if (!options) return series;
  const ValueView time = (*options)["timeField"], meta = (*options)["metaField"];
  if (!time.is_string()) fields.fail(ErrorCode::type_mismatch, "timeseriesFields", "has no timeField");
  series.time_field = time.to_text();
  series.meta_field = meta.to_text();
  const ValueView granularity = (*options)["granularity"];
  const std::string_view named = granularity.is_string() ? granularity.as_string() : "seconds";
  series.rounding_s = named == "hours" ? 86'400 : named == "minutes" ? 3'600 : 60;
  series.span_s = named == "hours" ? 2'592'000 : named == "minutes" ? 86'400 : 3'600;
  if (const ValueView rounding = (*options)["bucketRoundingSeconds"]; rounding.exists()) {
    constexpr std::int64_t year_s = 31'536'000;
    series.rounding_s = rounding.to_int64().value_or(0);
    if (series.rounding_s < 1 || series.rounding_s > year_s) {
      fields.fail(ErrorCode::bad_value, "timeseriesFields", "has no usable bucketRoundingSeconds");
      series.rounding_s = 1;
    }
    // Before 6.3 it does not follow a change of the granularity.
    const auto span = (*options)["bucketMaxSpanSeconds"].to_int64();
    if (span && *span >= 1 && *span <= year_s) series.span_s = *span;
  }
  return series;
}

}  // namespace

Result<ShardEntry> read_shard_entry(DocView doc) {
  EntryFields fields("shards", doc);
  ShardEntry entry;
  entry.id = fields.name("_id");
  entry.host = fields.name("host");
  entry.draining = fields.flag("draining");
  if (fields.error()) return *fields.error();
  return entry;
}

Result<DatabaseEntry> read_database_entry(DocView doc) {
  EntryFields fields("databases", doc);
  DatabaseEntry entry;
  entry.name = fields.name("_id");
  entry.primary = fields.name("primary");
  if (fields.has("version")) {
    auto version = read_database_version(doc["version"]);
    if (version) {
      entry.version = *version;
    } else {
      fields.fail(static_cast<ErrorCode>(version.error().code), "version", "is wrong: " + version.error().message);
    }
  }
  if (fields.error()) return *fields.error();
  return entry;
}

Result<CollectionEntry> read_collection_entry(DocView doc) {
  EntryFields fields("collections", doc);
  CollectionEntry entry;
  entry.ns = fields.name("_id");
  entry.dropped = fields.flag("dropped");
  if (entry.dropped) {
    if (fields.error()) return *fields.error();
    return entry;
  }
  entry.unique = fields.flag("unique");
  entry.unsplittable = fields.flag("unsplittable");
  if (fields.has("timeseriesFields")) entry.time_series = read_time_series(fields);
  entry.epoch = fields.object_id("lastmodEpoch");
  if (entry.epoch == ObjectId{}) fields.fail(ErrorCode::bad_value, "lastmodEpoch", "is zero");
  entry.timestamp = fields.timestamp("timestamp");
  entry.uuid = fields.uuid("uuid", entry.chunks_by_uuid());
  if (const auto collation = fields.document("defaultCollation", false)) entry.default_collation = BsonDoc(*collation);
  if (const auto key = fields.document("key", true)) {
    auto pattern = ShardKeyPattern::parse(*key);
    if (pattern) {
      entry.key = std::move(*pattern);
    } else {
      fields.fail(static_cast<ErrorCode>(pattern.error().code), "key", "is no shard key: " + pattern.error().message);
    }
  }
  if (fields.error()) return *fields.error();
  return entry;
}

}  // namespace spillway::catalog
