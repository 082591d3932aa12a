#include "proxy/catalog/config_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace spillway::catalog {
namespace {

// Each block is as large as those before it, so that a small collection takes little.
constexpr std::size_t arena_block_bytes_least = std::size_t{1} << 12;
constexpr std::size_t arena_block_bytes_most = std::size_t{1} << 18;

Error bad_chunk(ErrorCode code, DocView chunk, const std::string& why) {
  return Error(code, why + " in chunk " + to_json(chunk, 512));
}

Error wrong_chunk_field(DocView chunk, std::string_view field, ValueView value, std::string_view expected) {
  const std::string name = "Field '" + std::string(field) + "'";
  if (!value.exists()) return bad_chunk(ErrorCode::failed_to_parse, chunk, name + " is missing");
  return bad_chunk(ErrorCode::type_mismatch, chunk,
                   name + " is of type " + std::string(bson_type_name(value.type)) + ", expected " +
                       std::string(expected));
}

// The fields of a chunk that routing needs.
struct ChunkFields {
  ValueView ns, uuid, min, max, shard, lastmod, epoch, history;
};

// Since when the shard has the chunk, by its newest entry; 0: it was never moved.
std::uint64_t newest_time(ValueView history) noexcept {
  return read_timestamp(history.to_array().first().to_document()["validAfter"]).value_or(0);
}

Result<ChunkFields> chunk_fields(DocView chunk) {
  ChunkFields fields;
  const std::pair<std::string_view, ValueView*> wanted[] = {
      {"min", &fields.min},
      {"max", &fields.max},
      {"shard", &fields.shard},
      {"lastmod", &fields.lastmod},
      {"lastmodEpoch", &fields.epoch},
      {"uuid", &fields.uuid},
      {"ns", &fields.ns},
      {"history", &fields.history},
  };
  DocIterator it = chunk.begin();
  for (; !it.done(); ++it) {
    for (const auto& [name, value] : wanted) {
      if (it->name == name) *value = *it;
    }
  }
  if (it.malformed()) return bad_chunk(ErrorCode::failed_to_parse, chunk, "There are damaged bytes");
  return fields;
}

}  // namespace

BsonDoc chunks_filter(const CollectionEntry& entry, std::uint64_t since_lastmod) {
  BsonWriter out;
  if (entry.chunks_by_uuid()) {
    out.append_binary("uuid", 4, *entry.uuid);
  } else {
    out.append("ns", entry.ns);
  }
  out.begin_document("lastmod").append_timestamp("$gte", since_lastmod).end();
  return std::move(out).finish();
}

BsonDoc chunks_sort() {
  return BsonWriter().append("lastmod", 1).finish();
}

RoutingUpdate::RoutingUpdate(CollectionEntry entry, std::shared_ptr<const CollectionRouting> previous,
                             ResolveShard resolve)
    : entry_(std::move(entry)), resolve_(std::move(resolve)) {
  const bool usable = previous != nullptr && previous->cluster && previous->cluster->version.epoch == entry_.epoch &&
                      previous->key == *entry_.key;
  if (!usable) return;
  since_ = previous->cluster->version.lastmod();
  placed_at_ = previous->cluster->placed_at;
  previous_ = std::move(previous);
}

Result<void> RoutingUpdate::add(DocView chunk) {
  if (error_) return *error_;
  auto taken = take(chunk);
  if (!taken) error_ = std::move(taken.error()).with_context("Reading the chunks of " + entry_.ns);
  if (error_) return *error_;
  return {};
}

Result<void> RoutingUpdate::take(DocView chunk) {
  SPILLWAY_TRY(fields, chunk_fields(chunk));
  if (!fields->min.is_document()) return wrong_chunk_field(chunk, "min", fields->min, "object");
  if (!fields->max.is_document()) return wrong_chunk_field(chunk, "max", fields->max, "object");
  if (!fields->shard.is_string()) return wrong_chunk_field(chunk, "shard", fields->shard, "string");
  const auto lastmod = read_timestamp(fields->lastmod);
  if (!lastmod) return wrong_chunk_field(chunk, "lastmod", fields->lastmod, "timestamp");
  if (*lastmod == 0) return bad_chunk(ErrorCode::bad_value, chunk, "Field 'lastmod' is zero");
  // The query is for one collection; an answer may leave these fields out.
  if (fields->ns.exists() && !(fields->ns.is_string() && fields->ns.as_string() == entry_.ns)) {
    return bad_chunk(ErrorCode::bad_value, chunk, "Field 'ns' names another collection");
  }
  if (fields->uuid.exists() && entry_.uuid && read_uuid(fields->uuid) != entry_.uuid) {
    return bad_chunk(ErrorCode::bad_value, chunk, "Field 'uuid' names another collection");
  }
  if (fields->epoch.exists() || !entry_.chunks_by_uuid()) {
    const auto epoch = read_object_id(fields->epoch);
    if (!epoch) return wrong_chunk_field(chunk, "lastmodEpoch", fields->epoch, "objectId");
    if (*epoch != entry_.epoch) {
      return bad_chunk(ErrorCode::conflicting_operation_in_progress, chunk,
                       "The epoch is another one than the collection's");
    }
  }

  const DocView min = fields->min.as_document();
  const DocView max = fields->max.as_document();
  if (auto valid = min.validate(); !valid) return valid.error();
  if (auto valid = max.validate(); !valid) return valid.error();
  const auto min_key = entry_.key->key_of_bound(min);
  const auto max_key = entry_.key->key_of_bound(max);
  if (!min_key || !max_key) {
    const Error wrong = min_key ? max_key.error() : min_key.error();
    // From 5.0 on a key that is refined keeps everything else, and the entry may have been read before.
    if (entry_.chunks_by_uuid()) return bad_chunk(ErrorCode::conflicting_operation_in_progress, chunk, wrong.message);
    return wrong;
  }
  if (*min_key >= *max_key) return bad_chunk(ErrorCode::bad_value, chunk, "min is not below max");
  const auto shard = resolve_(fields->shard.as_string());
  if (!shard) {
    return bad_chunk(ErrorCode::shard_not_found, chunk,
                     "Shard '" + std::string(fields->shard.as_string()) + "' is not known");
  }

  placed_at_ = std::max(placed_at_, newest_time(fields->history));

  char* const bytes = allocate(min_key->size() + max_key->size() + min.size() + max.size());
  char* at = bytes;
  const auto put = [&at](const void* from, std::size_t size) {
    std::memcpy(at, from, size);
    at += size;
  };
  put(min_key->data(), min_key->size());
  put(max_key->data(), max_key->size());
  put(min.data(), min.size());
  put(max.data(), max.size());
  chunks_.push_back({bytes, static_cast<std::uint32_t>(min_key->size()), static_cast<std::uint32_t>(max_key->size()),
                     *lastmod, *shard});
  return {};
}

char* RoutingUpdate::allocate(std::size_t bytes) {
  if (bytes > arena_left_) {
    const std::size_t block_bytes =
        std::max(bytes, std::clamp(arena_bytes_, arena_block_bytes_least, arena_block_bytes_most));
    arena_.push_back(std::make_unique_for_overwrite<char[]>(block_bytes));
    arena_at_ = arena_.back().get();
    arena_left_ = block_bytes;
    arena_bytes_ += block_bytes;
  }
  arena_left_ -= bytes;
  return std::exchange(arena_at_, arena_at_ + bytes);
}

Result<std::shared_ptr<const CollectionRouting>> RoutingUpdate::finish() {
  if (error_) return *error_;
  const std::string reading = "Reading the chunks of " + entry_.ns;
  if (chunks_.empty()) {
    return Error(ErrorCode::conflicting_operation_in_progress,
                 reading + ": there are none" + (previous_ ? " from the newest known version on" : "") +
                     ", so the collection was changed meanwhile");
  }
  auto merged = ChunkMap::merged(*entry_.key, previous_ ? &previous_->chunks : nullptr, chunks_);
  if (!merged) return std::move(merged.error()).with_context(reading);
  ClusterFacts facts;
  facts.version = ChunkVersion::of_lastmod(merged->highest_lastmod(), entry_.epoch, entry_.timestamp);
  facts.uuid = entry_.uuid;
  facts.default_collation = std::move(entry_.default_collation);
  facts.unsplittable = entry_.unsplittable;
  facts.time_series = std::move(entry_.time_series);
  facts.placed_at = placed_at_;
  return std::make_shared<const CollectionRouting>(CollectionRouting{
      std::move(entry_.ns), std::move(*entry_.key), entry_.unique, std::move(*merged), 0, std::move(facts)});
}

}  // namespace spillway::catalog
