#include "proxy/exec/cluster/cluster_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "proxy/auth/logical_clock.h"
#include "proxy/base/log.h"
#include "proxy/exec/cluster/cluster_router.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/core/wire_version.h"
#include "proxy/exec/counters/process_facts.h"
#include "proxy/shard/connection_string.h"

namespace spillway::exec {

namespace {

// As other routers look for new shards.
constexpr auto look_every = std::chrono::seconds(30);
constexpr auto first_look_after = std::chrono::seconds(2);  // when shards have answered
constexpr auto ping_every = std::chrono::seconds(10);
constexpr auto keys_every = std::chrono::seconds(1);  // at most
constexpr auto drop_pause = std::chrono::seconds(10);  // between two times that tables make room for one
constexpr auto shards_every = std::chrono::milliseconds(100);  // likewise, for change streams
constexpr std::uint32_t keys_left_secs = 60;          // the last key expires then: the next one is looked for

catalog::Shard config_servers_entry(std::string uri) {
  catalog::Shard config;
  config.name = "config";
  config.uri = std::move(uri);
  config.index = cluster::config_shard;
  config.holds_data = false;
  return config;
}

}  // namespace

Routes::Table table_of_config_servers(std::string uri) {
  catalog::RoutingParts parts;
  parts.shards.push_back(config_servers_entry(std::move(uri)));
  return std::make_shared<const catalog::RoutingSnapshot>(std::move(parts));
}

ClusterTable::ClusterTable(Context& first, Routes::Table config_servers, ClusterLinks links)
    : first_(first),
      links_(std::move(links)),
      config_(first.gateway, first.pump, first.shared.memory.replies, first.shared.clock, first.shared.shards_trust_us),
      cache_(config_, *this, first.shared.memory.routing),
      table_(std::move(config_servers)) {}

Task<Result<void>> ClusterTable::start() {
  SPILLWAY_CO_TRY(id, co_await config_.cluster_id());
  cluster_id_ = *id;
  auto read = co_await cache_.shards();
  co_await read_keys();
  auto reading_defaults = read_concern_defaults();
  static_cast<void>(co_await reading_defaults);
  next_look_ = Clock::now() + first_look_after;
  co_return read;
}

// An ordinary user may not read them; then clients are told the times that shards have signed.
Task<void> ClusterTable::read_keys() {
  reading_keys_ = true;
  auto keys = co_await config_.keys();
  if (keys.has_error()) {
    if (!keys_refused_) log::info("the keys of cluster times cannot be read: {}", keys.error().message);
    keys_refused_ = true;
  } else if (!(*keys)->empty()) {
    first_.shared.clock.use_keys(*std::move(keys));
  }
  reading_keys_ = false;
  for (Event* waiter : std::exchange(key_waiters_, {})) waiter->set();
}

Task<Result<bool>> ClusterTable::look_for_keys() {
  if (reading_keys_) {
    Event read;
    key_waiters_.push_back(&read);
    co_await read;
    co_return true;
  }
  if (Clock::now() < next_keys_) co_return false;
  next_keys_ = Clock::now() + keys_every;
  co_await read_keys();
  co_return true;
}

Task<Result<std::uint64_t>> ClusterTable::know_shards(std::uint64_t time) {
  // A look under way may have begun too early; the next one has not.
  const std::uint64_t too_early = shard_looks_begun_;
  while (shards_known_at_ < time && shard_looks_ended_ <= too_early) {
    if (!looking_at_shards_) {
      looking_at_shards_ = true;
      co_await look_at_shards();
    } else {
      Event ended;
      shards_waiters_.push_back(&ended);
      co_await ended;
    }
    if (shards_unknown_) co_return *shards_unknown_;
  }
  co_return shards_known_at_;
}

Task<void> ClusterTable::look_at_shards() {
  const TimePoint now = Clock::now();
  if (now < next_look_at_shards_) co_await first_.loop.sleep_for(next_look_at_shards_ - now);
  next_look_at_shards_ = Clock::now() + shards_every;
  ++shard_looks_begun_;
  // The servers are told no earlier time, and answer with what there was by then.
  const auto told = first_.shared.clock.for_server(first_.shared.shards_trust_us);
  const std::uint64_t time = told ? told->time : first_.shared.clock.now();
  const auto read = co_await cache_.shards();
  shards_unknown_.reset();
  if (read.has_error()) {
    shards_unknown_ = read.error();
  } else {
    shards_known_at_ = std::max(shards_known_at_, time);
  }
  ++shard_looks_ended_;
  looking_at_shards_ = false;
  for (Event* waiter : std::exchange(shards_waiters_, {})) waiter->set();
}

bool ClusterTable::keys_expire() const {
  const auth::ClusterKeys::Ptr keys = first_.shared.clock.keys();
  return keys && auth::seconds_of(keys->expires_at()) <= auth::seconds_of(first_.shared.clock.now()) + keys_left_secs;
}

// The config servers make the next key long before, and do not announce it.
Task<void> ClusterTable::read_expiring_keys() {
  auto reading = look_for_keys();
  static_cast<void>(co_await reading);
}

void ClusterTable::tick(TimePoint now) {
  if (!cluster_id_) return;  // start() is at work
  if (!pinging_ && now >= next_ping_) {
    pinging_ = true;
    next_ping_ = now + ping_every;
    first_.background.start(ping());
  }
  if (!reading_keys_ && now >= next_keys_ && keys_expire()) first_.background.start(read_expiring_keys());
  if (looking_ || now < next_look_) return;
  looking_ = true;
  first_.background.start(look_again());
}

// config.mongos: tools list the routers whose last ping is young.
Task<void> ClusterTable::ping() {
  const ProcessFacts& process = first_.shared.facts;
  const auto up = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - process.start_time).count();
  BsonWriter body;
  body.append("update", "mongos");
  body.begin_array("updates").begin_document_item();
  body.begin_document("q").append("_id", process.host_name).end();
  body.begin_document("u").begin_document("$set");
  body.append("_id", process.host_name).append_date("ping", wall_clock_ms());
  body.append("up", static_cast<std::int64_t>(up)).append("waiting", true);
  body.append("mongoVersion", emulated_version(first_.gateway));
  body.begin_array("advisoryHostFQDNs").end();
  body.end().end();
  body.append("upsert", true).end().end();
  body.begin_document("writeConcern").append("w", "majority").append("wtimeout", 15'000).end();
  body.append("$db", "config");
  auto telling = config_.command(std::move(body).finish());
  const auto told = co_await telling;
  if (told.has_error()) log::debug("the config servers were not told of this router: {}", told.error().message);
  pinging_ = false;
}

Task<void> ClusterTable::look_again() {
  const auto read = co_await cache_.shards();
  if (read.has_error()) log::warning("the list of shards cannot be read: {}", read.error().message);
  co_await forget_changed_databases();
  auto reading_keys = look_for_keys();
  static_cast<void>(co_await reading_keys);
  auto reading_defaults = read_concern_defaults();
  static_cast<void>(co_await reading_defaults);
  auto checking = check_identities();
  static_cast<void>(co_await checking);
  next_look_ = Clock::now() + look_every;
  looking_ = false;
}

Task<Result<void>> ClusterTable::read_concern_defaults() {
  const std::uint64_t number = ++concern_reads_;
  auto read = co_await config_.concern_defaults();
  if (read.has_error()) {
    log::warning("the default read and write concerns cannot be read: {}", read.error().message);
    co_return std::move(read.error());
  }
  if (number < concern_read_used_) co_return Result<void>();  // the answer to a later question came first
  concern_read_used_ = number;
  if (*read == (concern_defaults_ ? *concern_defaults_ : catalog::ConcernDefaults())) co_return Result<void>();
  concern_defaults_ = std::make_shared<const catalog::ConcernDefaults>(*std::move(read));
  log::info("default read concern {}, write concern {}", to_json(concern_defaults_->read.view()),
            to_json(concern_defaults_->write.view()));
  for (Context* worker : first_.shared.workers) {
    worker->loop.post([worker, defaults = concern_defaults_] {
      static_cast<ClusterRouter*>(worker->router)->use_concern_defaults(defaults);
    });
  }
  co_return Result<void>();
}

Task<Result<cluster::KnownDatabase>> ClusterTable::database(std::string name, std::uint64_t after, bool make) {
  auto known = co_await cache_.database(name, after);
  if (!make || !known.has_error() || !known.error().is(ErrorCode::namespace_not_found)) co_return known;
  SPILLWAY_AWAIT(made, cache_.create_database(name));
  co_return co_await cache_.database(name, cache_.last_read());
}

Task<Result<cluster::KnownCollection>> ClusterTable::collection(std::string ns, std::uint64_t after) {
  const std::uint64_t forgotten = forgotten_;
  auto known = co_await cache_.collection(ns, after);
  const bool refused = known.has_error() && known.error().is(ErrorCode::ingress_request_rate_limit_exceeded);
  if (refused && Clock::now() >= next_drop_) {
    next_drop_ = Clock::now() + drop_pause;
    cache_.drop_tables();
    std::function<bool(const Context&)> drop = [](const Context& worker) {
      static_cast<ClusterRouter*>(worker.router)->drop_tables();
      return true;
    };
    auto dropping = ask_workers<bool>(first_, std::move(drop));
    co_await dropping;
    log::info("memory was short for the routing table of {}: others were dropped", ns);
    known = co_await cache_.collection(ns, after);
  }
  if (known.has_error() || forgotten != forgotten_) co_return known;
  // Workers that know an older one need not hear it from a shard.
  for (Context* worker : first_.shared.workers) {
    worker->loop.post([worker, known = *known] { static_cast<ClusterRouter*>(worker->router)->offer(known); });
  }
  co_return known;
}

// A shard was removed, and other servers were added under its name before this was seen. A set that replaces its
// members keeps its name, and has one that its monitor knows, or hears of with its next hello.
bool ClusterTable::names_other_servers(const catalog::Shard& shard, const catalog::ShardEntry& entry) {
  constexpr auto heard_within = std::chrono::seconds(15);
  auto uri = uri_of(entry);
  const bool same = uri.has_error() || *uri == shard.uri;
  const auto named = same ? Result<shard::ConnectionString>(Error()) : shard::parse_connection_string(*std::move(uri));
  if (named.has_error()) {
    unheard_of_.erase(shard.name);
    return false;
  }
  const shard::ShardState& known = first_.gateway.states()[shard.index];
  if (!known.set_name.empty() && known.set_name != named->set_name) return true;
  const bool knows_one = std::any_of(known.hosts.begin(), known.hosts.end(), [&](const shard::HostState& host) {
    return std::find(named->hosts.begin(), named->hosts.end(), host.address) != named->hosts.end();
  });
  if (knows_one) {
    unheard_of_.erase(shard.name);
    return false;
  }
  const auto [since, first] = unheard_of_.try_emplace(shard.name, Clock::now());
  return Clock::now() >= since->second + heard_within;
}

Result<std::string> ClusterTable::uri_of(const catalog::ShardEntry& entry) const {
  return shard::connection_string_for(entry.host, links_.tls ? &*links_.tls : nullptr);
}

Task<Result<void>> ClusterTable::use(std::vector<catalog::ShardEntry> entries) {
  std::vector<catalog::Shard> shards = table_->shards();
  absl::flat_hash_set<std::string_view> kept;
  bool changed = false, left = false;
  std::optional<Error> wrong;  // of the last shard that cannot be used
  for (catalog::Shard& shard : shards) {
    if (!shard.holds_data) continue;
    const auto named = [&](const catalog::ShardEntry& entry) { return entry.id == shard.name; };
    const auto entry = std::find_if(entries.begin(), entries.end(), named);
    if (entry != entries.end() && !names_other_servers(shard, *entry)) {
      kept.insert(entry->id);
      continue;
    }
    log::info("shard {} has left the cluster", shard.name);
    shard.holds_data = false;
    first_.gateway.retire_shard(shard.index);
    identified_.erase(shard.name);
    unheard_of_.erase(shard.name);
    changed = left = true;
  }
  absl::erase_if(strangers_, [&](const auto& stranger) {
    return std::none_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.id == stranger.first; });
  });
  for (const catalog::ShardEntry& entry : entries) {
    if (kept.contains(entry.id)) continue;
    auto uri = uri_of(entry);
    const auto stranger = strangers_.find(entry.id);
    if (stranger != strangers_.end() && !uri.has_error() && stranger->second == *uri) continue;
    auto added = uri.has_error() ? Result<catalog::ShardIndex>(uri.error())
                                 : first_.gateway.add_shard({entry.id, *uri}, links_.credentials);
    if (added.has_error()) {
      wrong = std::move(added.error()).with_context(fmt::format("shard {}", entry.id));
      continue;
    }
    log::info("shard {} is {}", entry.id, entry.host);
    catalog::Shard shard;
    shard.name = entry.id;
    shard.uri = *std::move(uri);
    shard.index = *added;
    shards.push_back(std::move(shard));
    changed = true;
  }
  if (changed) publish(std::move(shards));
  if (left) forget_on_all({});
  if (wrong) co_return *std::move(wrong);
  co_return Result<void>();
}

// Versions protect the data of a strange shard: it refuses all of ours. Its errors do not say why.
Task<Result<void>> ClusterTable::check_identities() {
  if (!cluster_id_) co_return Result<void>();
  const std::vector<catalog::Shard> shards = table_->shards();  // the table may change meanwhile
  TaskGroup asking;  // one shard that does not answer delays no other
  for (const catalog::Shard& shard : shards) {
    if (shard.holds_data && !identified_.contains(shard.name)) asking.start(check_identity(shard));
  }
  co_await asking.wait();
  co_return Result<void>();
}

Task<void> ClusterTable::check_identity(const catalog::Shard& shard) {
  const auto cluster = co_await cluster_of(shard.index);
  if (cluster.has_error()) {
    log::debug("shard {} does not say which cluster it belongs to: {}", shard.name, cluster.error().message);
  } else if (*cluster == *cluster_id_) {
    // Not if others have got its name meanwhile.
    if (index_of(shard.name) == shard.index) identified_.insert(shard.name);
  } else {
    leave_out(shard, *cluster);
  }
}

Task<Result<catalog::ObjectId>> ClusterTable::cluster_of(catalog::ShardIndex shard) {
  constexpr auto answer_max = std::chrono::seconds(10);
  BsonWriter body;
  body.append("find", "system.version").begin_document("filter").append("_id", "shardIdentity").end();
  body.append("limit", 1).append("singleBatch", true).append("$db", "admin");
  const BsonDoc question = std::move(body).finish();
  shard::CallOptions options;
  options.budget = &first_.shared.memory.replies;
  options.deadline = Clock::now() + answer_max;
  options.retry = shard::RetryPolicy::idempotent;
  const ShardOutcome outcome = co_await call_shard(first_, shard, RoutedBy::nothing(), question, options);
  if (outcome.error) co_return *outcome.error;
  if (auto valid = outcome.body().validate(); valid.has_error()) co_return std::move(valid.error());
  const auto id = catalog::read_object_id(first_of_batch(outcome.body())["clusterId"]);
  if (!id) co_return Error(ErrorCode::namespace_not_found, "it has no shardIdentity");
  co_return *id;
}

void ClusterTable::leave_out(const catalog::Shard& shard, const catalog::ObjectId& cluster) {
  log::error("shard {} belongs to cluster {:02x}, not to {:02x} of the config servers: it is not used", shard.name,
             fmt::join(cluster, ""), fmt::join(*cluster_id_, ""));
  strangers_.insert_or_assign(shard.name, shard.uri);
  first_.gateway.retire_shard(shard.index);
  std::vector<catalog::Shard> shards = table_->shards();
  for (catalog::Shard& one : shards) one.holds_data &= one.index != shard.index;
  publish(std::move(shards));
  forget_on_all({});
}

// A worker gets the shards before any collection that lies on them: what is posted to it stays in order.
void ClusterTable::publish(std::vector<catalog::Shard> shards) {
  catalog::RoutingParts parts;
  parts.shards = std::move(shards);
  table_ = std::make_shared<const catalog::RoutingSnapshot>(std::move(parts));
  for (Context* worker : first_.shared.workers) {
    worker->loop.post([worker, table = table_] { static_cast<ClusterRouter*>(worker->router)->use_shards(table); });
  }
}

// Empty: all databases, after a shard has left: no command goes to it any more that it could refuse as stale.
void ClusterTable::forget_on_all(const std::string& db) {
  forget(db, {});
  for (Context* worker : first_.shared.workers) {
    worker->loop.post([worker, db] { static_cast<ClusterRouter*>(worker->router)->forget(db, {}); });
  }
}

// Another router may have dropped one, and made it again on another shard.
Task<void> ClusterTable::forget_changed_databases() {
  const auto changed = co_await cache_.changed_databases();
  if (changed.has_error()) {
    log::warning("the databases cannot be compared: {}", changed.error().message);
    co_return;
  }
  for (const std::string& db : *changed) forget_on_all(db);
}

std::optional<catalog::ShardIndex> ClusterTable::index_of(std::string_view name) const {
  return table_->shard_by_name(name);
}

void ClusterTable::forget(std::string_view db, std::string_view collection) {
  ++forgotten_;
  cache_.forget(db, collection);
}

namespace {

// The first worker's part of a question, whichever worker asks.
Context* first_of(Context& context) { return context.shared.workers.front(); }

}  // namespace

Task<void> forget_everywhere(Context& context, std::string db, std::string collection) {
  std::function<bool(const Context&)> forget_read = [db, collection](const Context& first) {
    first.shared.cluster->forget(db, collection);
    return true;
  };
  Context* const first[] = {first_of(context)};
  const Context* const own = first[0] == &context ? &context : nullptr;
  auto on_first = ask_these_workers<bool>(context.loop, first, own, std::move(forget_read));
  co_await on_first;
  std::function<bool(const Context&)> forget_known = [db, collection](const Context& worker) {
    static_cast<ClusterRouter*>(worker.router)->forget(db, collection);
    return true;
  };
  auto on_all = ask_workers<bool>(context, std::move(forget_known));
  co_await on_all;
}

}  // namespace spillway::exec
