#include "proxy/cluster/catalog_cache.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/base/memory_wait.h"
#include "proxy/catalog/config_reader.h"

namespace spillway::cluster {

namespace {

// A read that met a change is done again at once.
constexpr int reads_of_chunks_max = 3;
constexpr Duration lost_shard_pause = std::chrono::seconds(1);

void wake(std::vector<Event*> waiters) {
  for (Event* waiter : waiters) waiter->set();
}

Error no_database(std::string_view name) {
  return Error(ErrorCode::namespace_not_found, fmt::format("database {} not found", name));
}

bool met_a_change(const Error& error) noexcept {
  return error.is(ErrorCode::conflicting_operation_in_progress);
}

// Workers do not ask for tables that they have, however often they use them.
bool is_in_use(const KnownCollection& known) noexcept {
  return known.collection->routing != nullptr && known.collection.use_count() > 1;
}
constexpr bool is_in_use(const KnownDatabase&) noexcept { return false; }

constexpr void note_since(KnownCollection&, const std::optional<KnownCollection>&) noexcept {}
void note_since(KnownDatabase& known, const std::optional<KnownDatabase>& before) noexcept {
  const bool same = before && before->database->primary == known.database->primary &&
                    before->database->version == known.database->version;
  known.since = same ? before->since : known.read;
}

}  // namespace

// If there are too many, those that were not asked for longest make room. A slot in use stays where it is.
template <class Value>
CatalogCache::Slot<Value>& CatalogCache::slot_of(Slots<Value>& slots, const std::string& name) {
  if (slots.size() >= names_max && !slots.contains(name)) {
    const std::uint64_t newest_to_go = asks_ > names_max / 2 ? asks_ - names_max / 2 : 0;
    absl::erase_if(slots, [&](const auto& entry) {
      const Slot<Value>& slot = entry.second;
      return slot.users == 0 && slot.asked <= newest_to_go && !(slot.value && is_in_use(*slot.value));
    });
  }
  Slot<Value>& slot = slots[name];
  slot.asked = ++asks_;
  return slot;
}

template <class Value>
Task<Result<Value>> CatalogCache::newer(Slot<Value>& slot, std::uint64_t after, Read<Value> read) {
  struct Use {
    explicit Use(std::size_t& users) noexcept : users_(users) { ++users_; }
    ~Use() { --users_; }
    std::size_t& users_;
  } use(slot.users);
  // The whole table would be read for each request.
  const bool is_known = slot.value && slot.value->read > std::max(after, slot.forgotten);
  const bool just_failed = !is_known && slot.failure && slot.failure->is(ErrorCode::shard_not_found) &&
                           Clock::now() < slot.failed_at + lost_shard_pause &&
                           slot.failed_with_shards == shard_lists_;
  if (just_failed) co_return *slot.failure;
  after = std::max({after, slot.begun, slot.forgotten});
  while (slot.begun != 0) {
    const std::uint64_t failures = slot.failures, begun = slot.begun;
    Event ended;
    slot.waiters.push_back(&ended);
    co_await ended;
    if (slot.failure && slot.failures != failures && begun > after) co_return *slot.failure;
    if (slot.value && slot.value->read > after) co_return *slot.value;
  }
  if (slot.value && slot.value->read > after) co_return *slot.value;
  reads_begun_.add();
  slot.begun = reads_begun_.value();
  auto result = co_await read(slot.value);
  const std::uint64_t begun = std::exchange(slot.begun, 0);
  if (result.has_error()) {
    failed_reads_.add();
    ++slot.failures;
    slot.failure = result.error();
    slot.failed_at = Clock::now();
    slot.failed_with_shards = shard_lists_;
    // Dropped: what was known is wrong.
    if (result.error().is(ErrorCode::namespace_not_found)) slot.value.reset();
  } else {
    slot.failure.reset();
    result->read = begun;
    note_since(*result, slot.value);
    slot.value = *result;
  }
  wake(std::exchange(slot.waiters, {}));
  co_return result;
}

Task<Result<KnownDatabase>> CatalogCache::database(std::string name, std::uint64_t after) {
  Slot<KnownDatabase>& slot = slot_of(databases_, name);
  return newer<KnownDatabase>(slot, after, [this, name](std::optional<KnownDatabase> before) {
    return read_database(name, before.has_value());
  });
}

Task<Result<KnownCollection>> CatalogCache::collection(std::string ns, std::uint64_t after) {
  Slot<KnownCollection>& slot = slot_of(collections_, ns);
  return newer<KnownCollection>(slot, after, [this, ns](std::optional<KnownCollection> before) {
    return read_collection(ns, std::move(before));
  });
}

Task<Result<KnownDatabase>> CatalogCache::read_database(std::string name, bool again) {
  auto entry = co_await config_.database(name, again);
  // The member that was asked may lack what another router has just made.
  if (!again && !entry.has_error() && !*entry) {
    auto asking = config_.database(name, true);
    entry = co_await asking;
  }
  if (entry.has_error()) co_return std::move(entry.error());
  if (!*entry) co_return no_database(name);
  auto primary = shards_.index_of((*entry)->primary);
  if (!primary) {
    auto looking = shards();
    if (auto looked = co_await looking; looked.has_error()) co_return std::move(looked.error());
    primary = shards_.index_of((*entry)->primary);
  }
  if (!primary) {
    co_return Error(
        ErrorCode::shard_not_found,
        fmt::format("the primary shard {} of database {} is not in config.shards", (*entry)->primary, name));
  }
  auto database = std::make_shared<catalog::Database>();
  database->name = std::move(name);
  database->primary = *primary;
  database->version = (*entry)->version;
  co_return KnownDatabase{std::move(database), 0};
}

Task<Result<KnownCollection>> CatalogCache::read_collection(std::string ns, std::optional<KnownCollection> before) {
  // One from before everything was forgotten may name shards that are no more.
  const bool is_usable = before && before->read > all_forgotten_;
  std::shared_ptr<const catalog::CollectionRouting> known = is_usable ? before->collection->routing : nullptr;
  bool looked_for_shards = false;
  for (int read = 1;; ++read) {
    SPILLWAY_CO_TRY(entry, co_await config_.collection(ns, before.has_value()));
    auto unsharded = std::make_shared<catalog::CachedCollection>();
    unsharded->ns = ns;
    if (!*entry) co_return KnownCollection{std::move(unsharded), 0};
    auto reading = read_chunks(ns, **std::move(entry), known, before.has_value());
    auto result = co_await reading;
    if (!result.has_error()) co_return result;
    log::debug("reading the chunks of {}: {}", ns, result.error().message);
    if (read == reads_of_chunks_max) co_return result;
    if (result.error().is(ErrorCode::shard_not_found)) {
      if (std::exchange(looked_for_shards, true)) co_return result;
      auto looking = shards();
      if (auto looked = co_await looking; looked.has_error()) co_return std::move(looked.error());
    } else if (!met_a_change(result.error())) {
      co_return result;
    }
    if (read > 1) known = nullptr;
  }
}

Task<Result<KnownCollection>> CatalogCache::read_chunks(std::string ns, catalog::CollectionEntry entry,
                                                        std::shared_ptr<const catalog::CollectionRouting> before,
                                                        bool again) {
  catalog::RoutingUpdate update(std::move(entry), std::move(before),
                                [this](std::string_view shard) { return shards_.index_of(shard); });
  if (update.incremental()) reads_in_part_.add();
  auto reading = config_.chunks(update, again);
  if (auto read = co_await reading; read.has_error()) co_return std::move(read.error());
  SPILLWAY_CO_TRY(routing, update.finish());
  // What it shares with the table before counts twice while both are in use.
  const std::size_t bytes = (*routing)->chunks.memory_bytes();
  auto held = budget_.try_reserve(bytes);
  if (!held) co_return memory_refused(budget_, bytes, "a collection's routing table");
  struct Charged final : catalog::CachedCollection {
    Reservation bytes;
  };
  auto collection = std::make_shared<Charged>();
  collection->bytes = *std::move(held);
  collection->ns = std::move(ns);
  collection->routing = *std::move(routing);
  co_return KnownCollection{std::move(collection), 0};
}

Task<Result<void>> CatalogCache::shards() {
  const std::uint64_t read = ++shard_reads_begun_;
  SPILLWAY_CO_TRY(entries, co_await config_.shards());
  if (read < shard_read_used_) co_return Result<void>();  // the answer to a later question came first
  shard_read_used_ = read;
  if (*entries != last_shards_) {
    last_shards_ = *entries;
    ++shard_lists_;
  }
  auto using_them = shards_.use(*std::move(entries));
  co_return co_await using_them;
}

Task<Result<std::vector<std::string>>> CatalogCache::changed_databases() {
  absl::flat_hash_map<std::string, std::shared_ptr<const catalog::Database>> known;
  BsonWriter filter;
  filter.begin_document("_id").begin_array("$in");
  for (const auto& [name, slot] : databases_) {
    if (!slot.value || slot.forgotten >= slot.value->read) continue;
    known.emplace(name, slot.value->database);
    filter.append_item(name);
  }
  filter.end().end();
  std::vector<std::string> changed;
  if (known.empty()) co_return changed;
  auto reading = config_.find({"databases", std::move(filter).finish()}, [&](DocView doc) -> Result<void> {
    SPILLWAY_TRY(entry, catalog::read_database_entry(doc));
    const auto found = known.find(entry->name);
    if (found == known.end()) return {};
    const catalog::Database& before = *found->second;
    const bool same = before.version == entry->version && before.primary == shards_.index_of(entry->primary);
    if (same) known.erase(found);
    return {};
  });
  if (auto read = co_await reading; read.has_error()) co_return std::move(read.error());
  for (const auto& [name, database] : known) {
    // What was read meanwhile is newer.
    const auto at = databases_.find(name);
    if (at != databases_.end() && at->second.value && at->second.value->database == database) changed.push_back(name);
  }
  co_return changed;
}

Task<Result<void>> CatalogCache::create_database(std::string name) {
  BsonWriter body;
  body.append("_configsvrCreateDatabase", name);
  body.begin_document("writeConcern").append("w", "majority").append("wtimeout", 60'000).end();
  body.append("$db", "admin");
  auto creating = config_.command(std::move(body).finish());
  SPILLWAY_CO_TRY(created, co_await creating);
  co_return Result<void>();
}

void CatalogCache::forget(std::string_view db, std::string_view collection) {
  if (db.empty()) all_forgotten_ = reads_begun_.value();
  if (collection.empty()) {
    for (auto& [name, slot] : databases_) {
      if (db.empty() || name == db) slot.forgotten = reads_begun_.value();
    }
  }
  for (auto& [ns, slot] : collections_) {
    const catalog::Namespace name = catalog::split_namespace(ns);
    const bool meant = db.empty() || (name.db == db && (collection.empty() || name.collection == collection));
    if (!meant) continue;
    slot.forgotten = reads_begun_.value();
    if (collection.empty() && slot.users == 0) slot.value.reset();  // it may not be asked for again
  }
}

void CatalogCache::drop_tables() {
  for (auto& [ns, slot] : collections_) {
    if (slot.users == 0 && slot.value && slot.value->collection->routing) slot.value.reset();
  }
}

std::vector<std::shared_ptr<const catalog::CollectionRouting>> CatalogCache::routings(std::size_t most) const {
  std::vector<std::shared_ptr<const catalog::CollectionRouting>> all;
  for (const auto& [ns, slot] : collections_) {
    if (all.size() == most) break;
    if (slot.value && slot.value->collection && slot.value->collection->routing) {
      all.push_back(slot.value->collection->routing);
    }
  }
  return all;
}

}  // namespace spillway::cluster
