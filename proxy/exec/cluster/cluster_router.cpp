#include "proxy/exec/cluster/cluster_router.h"

#include <absl/strings/string_view.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "allocator/limits.h"
#include "proxy/auth/logical_clock.h"
#include "proxy/exec/cluster/cluster_table.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/forward.h"
#include "proxy/shard/interrupt.h"
#include "proxy/shard/waiter.h"

namespace spillway::exec {

namespace {

constexpr auto keys_patience = std::chrono::seconds(10);
// A question that has waited for so long serves later requests, too.
constexpr auto joined_after = std::chrono::seconds(1);
// To the first worker, unanswered, about databases and about collections. Any client can ask for names.
constexpr std::size_t questions_max = 10'000;
// While fewer wait, a request within a name's first second has a question of its own, whose answer is newer.
constexpr std::size_t answered_each_max = 64;
// "db.collection": servers keep none with a longer name.
constexpr std::size_t namespace_bytes_max = 255;

absl::string_view key_of(std::string_view text) noexcept { return {text.data(), text.size()}; }

Routes::DatabasePtr on_config_servers(std::string name) {
  auto database = std::make_shared<catalog::Database>();
  database->name = std::move(name);
  database->primary = cluster::config_shard;
  return database;
}

// Of `config` only this one is sharded; the others, and those of `admin`, lie on the config servers. Clients choose the
// names: long ones would fill the memory.
bool may_be_sharded(RouteName name) noexcept {
  if (name.db.size() + 1 + name.collection.size() > namespace_bytes_max) return false;
  if (name.db == "config") return name.collection == "system.sessions";
  return name.db != "admin" && !name.collection.empty();
}

bool lies_on_config_servers(std::string_view db) noexcept { return db == "admin" || db == "config"; }

}  // namespace

ClusterRouter::ClusterRouter(Context& context, ClusterTable& table, Routes::Table shards)
    : context_(context),
      table_(table),
      shards_(StaticRouter::own_reference(std::move(shards))),
      admin_(on_config_servers("admin")),
      config_(on_config_servers("config")) {}

std::optional<Routes> ClusterRouter::resolve(const RouteNames& names) {
  Routes routes = Routes::of_cluster(shards_);
  bool sharded = false;  // the name before
  for (const RouteName& name : names) {
    if (name.db.empty() && !name.collection.empty()) return std::nullopt;  // for the error
    if (name.db.empty() || (name.buckets && sharded)) continue;
    std::uint64_t since = 0;
    if (lies_on_config_servers(name.db)) {
      routes.add(name.db == "admin" ? admin_ : config_);
    } else {
      const auto found = databases_.find(key_of(name.db));
      if (found == databases_.end() || found->second.stale) return std::nullopt;
      found->second.used = true;
      routes.note_learned(found->second.learned_at);
      routes.add(found->second.value);
      since = found->second.since;
    }
    if (!may_be_sharded(name)) continue;
    const NamespaceText ns(name.db, name.collection);
    const auto found = collections_.find(key_of(ns.view()));
    if (found == collections_.end() || found->second.stale) return std::nullopt;
    if (is_outdated(found->second, since)) {
      found->second.stale = true;
      return std::nullopt;
    }
    found->second.used = true;
    routes.note_learned(found->second.learned_at);
    routes.add(found->second.value);
    sharded = found->second.value->routing != nullptr;
  }
  return routes;
}

Task<Result<void>> ClusterRouter::learn(RouteNames names, RouteWait wait) {
  bool sharded = false;  // the name before
  for (const RouteName& name : names) {
    if (name.db.empty() && !name.collection.empty()) {
      co_return Error(ErrorCode::invalid_namespace, "Invalid namespace specified");
    }
    if (name.db.empty() || (name.buckets && sharded)) continue;
    if (name.db.size() > limits::database_name_bytes_max) {
      co_return Error(ErrorCode::invalid_namespace, "Invalid database name: it is too long");
    }
    std::uint64_t since = 0;
    if (!lies_on_config_servers(name.db)) {
      SPILLWAY_AWAIT(learned, learn_database(std::string(name.db), wait));
      const auto database = databases_.find(key_of(name.db));
      if (database != databases_.end()) since = database->second.since;
    }
    if (!may_be_sharded(name)) continue;
    const std::string ns = fmt::format("{}.{}", name.db, name.collection);
    SPILLWAY_AWAIT(learned, learn_collection(ns, since, wait));
    const auto found = collections_.find(ns);
    sharded = found != collections_.end() && found->second.value->routing != nullptr;
  }
  co_return Result<void>();
}

// Lives until the answer has come, even if the request has given up.
template <class Value>
struct ClusterRouter::Asked {
  shard::WaiterLine line;  // the requests that wait
  std::optional<Result<Value>> answer;
  std::uint64_t after = 0;  // of a read that begins after this one
  TimePoint at = Clock::now();
  bool forgotten = false;  // its answer may be too old for requests from now on
};

template <class Value>
std::shared_ptr<ClusterRouter::Asked<Value>> ClusterRouter::ask_first_worker(
    std::function<Task<Result<Value>>(ClusterTable&)> ask) {
  if (*unanswered_ >= questions_max) return nullptr;
  ++*unanswered_;
  auto asked = std::make_shared<Asked<Value>>();
  constexpr auto answer = [](std::shared_ptr<Asked<Value>> of, Loop* home, std::shared_ptr<std::size_t> unanswered,
                             ClusterTable* table,
                             std::function<Task<Result<Value>>(ClusterTable&)> question) -> Task<void> {
    auto result = co_await question(*table);
    home->post([of = std::move(of), unanswered = std::move(unanswered), result = std::move(result)]() mutable {
      --*unanswered;
      of->answer.emplace(std::move(result));
      shard::wake_all(of->line);
    });
  };
  table_.worker().loop.post([asked, ask = std::move(ask), home = &context_.loop, unanswered = unanswered_,
                             table = &table_, answer]() mutable {
    table->worker().background.start(answer(asked, home, std::move(unanswered), table, std::move(ask)));
  });
  return asked;
}

template <class Value>
Task<Result<Value>> ClusterRouter::answer_of(std::shared_ptr<Asked<Value>> asked, RouteWait wait) {
  if (!asked) {
    co_return Error(ErrorCode::network_interface_exceeded_time_limit, "too many questions wait for the config servers");
  }
  const TimePoint given_up = std::min(wait.deadline, Clock::now() + cluster::config_patience);
  if (!asked->answer) {
    shard::Waiter waiter(context_.loop, given_up);
    asked->line.push_back(waiter);
    const shard::Interruptible interruptible(wait.interrupt, waiter);
    co_await waiter;
  }
  if (asked->answer) co_return *asked->answer;
  if (const Error* why = shard::requested_of(wait.interrupt)) co_return *why;
  if (given_up == wait.deadline) co_return time_limit_exceeded();
  co_return Error(ErrorCode::network_interface_exceeded_time_limit,
                  "the config servers did not tell the routing table in time");
}

// While config servers do not answer, repeated requests add no questions.
template <class Value>
Task<Result<Value>> ClusterRouter::ask_about(Questions<Value>& questions, std::string name, std::uint64_t after,
                                             std::function<Task<Result<Value>>(ClusterTable&)> ask, RouteWait wait) {
  std::shared_ptr<Asked<Value>> asked;
  if (const auto found = questions.find(name); found != questions.end()) asked = found->second.lock();
  const bool goes_on = asked && !asked->answer && !asked->forgotten && asked->after >= after;
  const bool joins = goes_on && (*unanswered_ >= answered_each_max || asked->at + joined_after < Clock::now());
  if (!joins) {
    if (questions.size() >= questions_max) {
      absl::erase_if(questions, [](const auto& each) { return each.second.expired(); });
    }
    if (asked = ask_first_worker<Value>(std::move(ask)); asked) asked->after = after;
    if (!goes_on && asked) questions[std::move(name)] = asked;  // else the older one will serve sooner
  }
  auto answering = answer_of<Value>(std::move(asked), wait);
  co_return co_await answering;
}

ClusterRouter::Learning::Learning(ClusterRouter& of, RouteName learned) : router(of), name(learned) {
  router.learning_.insert(this);
}

ClusterRouter::Learning::~Learning() { router.learning_.erase(this); }

Task<Result<void>> ClusterRouter::learn_database(std::string name, RouteWait wait) {
  const auto found = databases_.find(name);
  if (found != databases_.end() && !found->second.stale) co_return Result<void>();
  const std::uint64_t after = found == databases_.end() ? 0 : found->second.read;
  using Value = cluster::KnownDatabase;
  std::function<Task<Result<Value>>(ClusterTable&)> ask = [name, after, wait](ClusterTable& table) {
    return table.database(name, after, wait.make_database);
  };
  Learning learning(*this, {name, {}});
  // No database has a name with a dot.
  auto asking = ask_about(databases_asked_, name + (wait.make_database ? "." : ""), after, std::move(ask), wait);
  auto known = co_await asking;
  if (known.has_error()) {
    const auto now = databases_.find(name);
    const bool is_older = now != databases_.end() && now->second.read <= after;  // else another read came meanwhile
    if (known.error().is(ErrorCode::namespace_not_found) && is_older) databases_.erase(now);
    co_return std::move(known.error());
  }
  keep(databases_, name,
       {StaticRouter::own_reference(std::move(known->database)), known->read, learning.forgotten,
        context_.shared.clock.now(), true, known->since});
  co_return Result<void>();
}

Task<Result<void>> ClusterRouter::learn_collection(std::string ns, std::uint64_t since, RouteWait wait) {
  const auto found = collections_.find(ns);
  if (found != collections_.end() && !found->second.stale) co_return Result<void>();
  const std::uint64_t after = std::max(found == collections_.end() ? 0 : found->second.read, since);
  using Value = cluster::KnownCollection;
  std::function<Task<Result<Value>>(ClusterTable&)> ask = [ns, after](ClusterTable& table) {
    return table.collection(ns, after);
  };
  const catalog::Namespace names = catalog::split_namespace(ns);
  Learning learning(*this, {names.db, names.collection});
  SPILLWAY_AWAIT(known, ask_about(collections_asked_, ns, after, std::move(ask), wait));
  keep(collections_, ns,
       {StaticRouter::own_reference(std::move(known->collection)), known->read, learning.forgotten,
        context_.shared.clock.now()});
  co_return Result<void>();
}

Task<void> ClusterRouter::learn_keys(RouteWait wait) {
  std::function<Task<Result<bool>>(ClusterTable&)> ask = [](ClusterTable& table) { return table.look_for_keys(); };
  // One question for all: a client that has not logged in may name any key.
  auto asked = keys_asked_.lock();
  if (!asked || asked->answer) keys_asked_ = asked = ask_first_worker<bool>(std::move(ask));
  wait.deadline = std::min(wait.deadline, Clock::now() + keys_patience);
  auto asking = answer_of<bool>(std::move(asked), wait);
  static_cast<void>(co_await asking);  // what is known is used
}

Task<Result<std::uint64_t>> ClusterRouter::know_shards(std::uint64_t time, RouteWait wait) {
  std::function<Task<Result<std::uint64_t>>(ClusterTable&)> ask = [time](ClusterTable& table) {
    return table.know_shards(time);
  };
  auto asking = answer_of<std::uint64_t>(ask_first_worker<std::uint64_t>(std::move(ask)), wait);
  co_return co_await asking;
}

Task<Result<std::uint64_t>> know_shards(Context& context, std::uint64_t time, RouteWait wait) {
  return static_cast<ClusterRouter*>(context.router)->know_shards(time, wait);
}

namespace {

Task<Result<bool>> told(Task<Result<void>> reading) {
  const auto read = co_await reading;
  co_return read.has_error() ? Result<bool>(read.error()) : Result<bool>(true);
}

}  // namespace

Task<Result<void>> ClusterRouter::read_again(Reads reads, RouteWait wait) {
  std::function<Task<Result<bool>>(ClusterTable&)> ask = [reads](ClusterTable& table) {
    return told((table.*reads)());
  };
  SPILLWAY_AWAIT(answered, answer_of<bool>(ask_first_worker<bool>(std::move(ask)), wait));
  // What was posted to the workers before has reached them when they answer.
  auto reaching = ask_workers<bool>(context_, [](const Context&) { return true; });
  co_await reaching;
  co_return Result<void>();
}

Task<Result<void>> read_shards_again(Context& context, RouteWait wait) {
  return static_cast<ClusterRouter*>(context.router)->read_again(&ClusterTable::read_shards, wait);
}

Task<Result<void>> read_concern_defaults_again(Context& context, RouteWait wait) {
  return static_cast<ClusterRouter*>(context.router)->read_again(&ClusterTable::read_concern_defaults, wait);
}

namespace {

constexpr bool is_cheap(const Routes::DatabasePtr&) noexcept { return true; }
bool is_cheap(const Routes::CollectionPtr& collection) noexcept { return collection->routing == nullptr; }

}  // namespace

// As many names as the cache has, at most. To make room, names that were unused since the last time go; else those
// without a table do, which are soon read again; else all do.
template <class Ptr>
void ClusterRouter::keep(Names<Ptr>& names, const std::string& name, Known<Ptr> known) {
  // The first worker has offered a later read meanwhile, which may be stale already.
  const auto found = names.find(name);
  if (found != names.end() && found->second.read > known.read) return;
  if (names.size() >= cluster::CatalogCache::names_max && !names.contains(name)) {
    absl::erase_if(names, [](auto& entry) { return !std::exchange(entry.second.used, false); });
    if (names.size() >= cluster::CatalogCache::names_max) {
      absl::erase_if(names, [](const auto& entry) { return is_cheap(entry.second.value); });
    }
    if (names.size() >= cluster::CatalogCache::names_max) names.clear();
  }
  names[name] = std::move(known);
}

void ClusterRouter::note_stale(RouteName name) {
  if (name.collection.empty()) {
    const auto found = databases_.find(key_of(name.db));
    if (found != databases_.end()) found->second.stale = true;
    return;
  }
  const NamespaceText ns(name.db, name.collection);
  const auto found = collections_.find(key_of(ns.view()));
  if (found != collections_.end()) found->second.stale = true;
}

void ClusterRouter::note_refused(const catalog::CollectionRouting& sent_by) {
  const auto found = collections_.find(sent_by.ns);
  if (found == collections_.end()) return;
  const auto& routing = found->second.value->routing;
  if (routing && routing->cluster && sent_by.cluster) {
    const catalog::ChunkVersion& known = routing->cluster->version;
    const catalog::ChunkVersion& before = sent_by.cluster->version;
    const bool same_collection = known.epoch == before.epoch && known.timestamp == before.timestamp;
    if (same_collection && known.lastmod() > before.lastmod()) return;
  }
  found->second.stale = true;
}

void ClusterRouter::note_refused(const catalog::Database& sent_by) {
  const auto found = databases_.find(sent_by.name);
  if (found == databases_.end()) return;
  const auto& known = found->second.value->version;
  const auto& before = sent_by.version;
  const bool same_database = known && before && known->uuid == before->uuid && known->timestamp == before->timestamp;
  if (!same_database || known->last_mod <= before->last_mod) found->second.stale = true;
}

void ClusterRouter::drop_tables() {
  const auto is_table = [](const Known<Routes::CollectionPtr>& known) { return known.value->routing != nullptr; };
  const std::size_t before = collections_.size();
  absl::erase_if(collections_, [&](auto& entry) {
    return is_table(entry.second) && !std::exchange(entry.second.used, false);
  });
  if (collections_.size() == before) {
    absl::erase_if(collections_, [&](const auto& entry) { return is_table(entry.second); });
  }
}

void ClusterRouter::use_shards(Routes::Table shards) { shards_ = StaticRouter::own_reference(std::move(shards)); }

void ClusterRouter::offer(cluster::KnownCollection known) {
  const auto found = collections_.find(known.collection->ns);
  if (found == collections_.end() || found->second.read >= known.read) return;
  found->second = {StaticRouter::own_reference(std::move(known.collection)), known.read, false,
                   context_.shared.clock.now(), found->second.used};
}

void ClusterRouter::forget(std::string_view db, std::string_view collection) {
  for (Learning* each : learning_) {
    const bool of_it = db.empty() || each->name.db == db;
    each->forgotten |= of_it && (collection.empty() || each->name.collection == collection);
  }
  const auto forget_question = [](const auto& each) {
    if (const auto asked = each.second.lock()) asked->forgotten = true;
  };
  std::for_each(databases_asked_.begin(), databases_asked_.end(), forget_question);
  std::for_each(collections_asked_.begin(), collections_asked_.end(), forget_question);
  if (!collection.empty()) return note_stale({db, collection});
  for (auto& [name, known] : databases_) known.stale |= db.empty() || name == db;
  for (auto& [ns, known] : collections_) known.stale |= db.empty() || catalog::split_namespace(ns).db == db;
}

}  // namespace spillway::exec
