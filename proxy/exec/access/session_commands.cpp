// Sessions and the ends of transactions.
#include <fmt/format.h>
#include <sys/random.h>

#include "absl/container/flat_hash_set.h"
#include "cursor/registry.h"
#include "proxy/auth/impersonation.h"
#include "proxy/auth/users.h"
#include "proxy/base/log.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/access/authorization.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/cluster_fields.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/cursors/cursor_ops.h"
#include "proxy/exec/tables/session_owners.h"
#include "proxy/exec/tables/transaction_table.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

constexpr std::size_t sessions_per_command_max = 10'000;
constexpr std::uint8_t uuid_subtype = 4;
constexpr Duration tell_shards_max = std::chrono::seconds(10);
// Of one worker.
constexpr std::size_t told_later_max = 1000;

// A session as a command names it.
struct NamedSession {
  std::string id;
  std::string uid = {};  // the hash of its user's name; empty: the caller's own session

  bool operator==(const NamedSession&) const = default;
  template <class H>
  friend H AbslHashValue(H state, const NamedSession& session) {
    return H::combine(std::move(state), session.id, session.uid);
  }
};
using SessionIds = absl::flat_hash_set<NamedSession>;

Result<std::string> parse_uid(const Request& request, DocView session) {
  const ValueView uid = session["uid"];
  if (!uid.exists()) return std::string();
  if (uid.type != BsonType::binary) return wrong_type(fmt::format("{0}.{0}.uid", request.name), uid, "binData");
  const Bytes hash = uid.as_binary().data;
  if (hash.size() != auth::digest_bytes(auth::Hash::sha256)) {
    return Error(ErrorCode::unsupported_format, fmt::format("Unsupported SHA256Block hash length: {}", hash.size()));
  }
  return std::string(auth::text_of(hash));
}

// {endSessions: [{id: UUID, uid: hash of the user's name}, …]}
Task<Result<SessionIds>> parse_sessions(Context& context, const Request& request) {
  const Element list = request.body.first();
  if (!list.is_array()) co_return wrong_type(fmt::format("{0}.{0}", request.name), list, "array");
  SessionIds ids;
  TimeSlice slice(context.pump);
  for (auto item = list.as_document().begin(); !item.done(); ++item) {
    if (slice.is_over()) co_await slice.next();
    const std::string_view id = item->is_document() ? session_uuid(item->as_document()) : std::string_view();
    if (id.empty()) {
      co_return Error(ErrorCode::type_mismatch,
                      fmt::format("BSON field '{}' must hold sessions: {{id: UUID}}", request.name));
    }
    SPILLWAY_CO_TRY(uid, parse_uid(request, item->as_document()));
    ids.insert({std::string(id), *std::move(uid)});
    if (ids.size() > sessions_per_command_max) {
      co_return Error(ErrorCode::invalid_length, fmt::format("{} takes at most {} sessions",
                                                             request.name, sessions_per_command_max));
    }
  }
  co_return ids;
}

// Unauthorized(13) for the first session that names another user, unless this one may speak for others. Servers look at
// no `uid` of a router's users.
Result<void> check_uids(const Context& context, const Client& client, auth::ActionSet allowing, const SessionIds& ids) {
  const auto may = [&](auth::ActionSet actions) { return may_on_cluster(context, client, actions); };
  if (may(auth::Action::impersonate) || (!allowing.empty() && may(allowing))) return {};
  const auth::User* const user = client.login.user.get();
  const auto own = user == nullptr ? auth::session_uid({}, {}) : auth::session_uid(user->db, user->name);
  for (const NamedSession& session : ids) {
    if (session.uid.empty() || session.uid == auth::text_of(own.view())) continue;
    return Error(ErrorCode::unauthorized, "Unauthorized to set user digest in LogicalSessionId");
  }
  return {};
}

// Unauthorized(13) for the first session that is another user's. `ids` outlives the task, and stays as it is.
Task<Result<void>> check_own(Context& context, const Client& client, const SessionIds& ids) {
  if (!context.shared.authorization) co_return Result<void>();
  TimeSlice slice(context.pump);
  for (const NamedSession& session : ids) {
    if (slice.is_over()) co_await slice.next();
    if (!context.shared.session_owners.is_another_users(session_id_of(session.id), client.user, Clock::now())) continue;
    co_return Error(ErrorCode::unauthorized, "the logical session is another user's");
  }
  co_return Result<void>();
}

// Shards that keep sessions. Config servers are none of them: a change of the cluster's table that is killed in its
// middle would keep its lock until that expires.
catalog::ShardSet replica_set_shards(const Context& context, const Request& request) {
  catalog::ShardSet shards;
  for (const catalog::ShardIndex shard : request.routes->all_shards()) {
    if (context.gateway.capabilities(shard).replica_set) shards.insert(shard);
  }
  return shards;
}

// To these shards. Their answers do not matter: a session that a shard does not hear of expires there. `room`: paid for
// the document.
Task<void> tell_shards(Context& context, catalog::ShardSet shards, std::string command, BsonDoc document,
                       Reservation room) {
  shard::CallOptions options;
  options.budget = &context.shared.memory.replies;
  options.deadline = Clock::now() + tell_shards_max;
  auto outcomes = co_await call_shards(context, shards, RoutedBy::nothing(), shard::Command::of_body(document),
                                       options);
  room.release();
  for (const ShardOutcome& outcome : outcomes) {
    if (outcome.ok()) continue;
    log::info("sessions: shard {} did not take {}: {}", context.gateway.states()[outcome.shard].name,
              command, outcome.error->message);
  }
}

// Without waiting for them: a driver that closes would wait for a shard without a primary. Nothing is told while memory
// is short, or many are told already.
void tell_later(Context& context, const catalog::ShardSet& shards, std::string command, BsonDoc document) {
  if (context.background.running() >= told_later_max) return;
  auto room = room_for_copies(context, document.size(), 1);
  if (room.has_error()) return;
  context.background.start(
      tell_shards(context, shards, std::move(command), std::move(document), *std::move(room)));
}

// The client's command, for shards. They refuse a writeConcern, which drivers send with a command that they do not wait
// for (Node's endSessions).
BsonDoc forwarded(const Request& request) {
  BsonWriter body;
  copy_command(body, request, {"lsid", "txnNumber", "autocommit", "startTransaction", "writeConcern"});
  return std::move(body).finish();
}

// A command with sessions by their ids. Shards of a static table take all sessions for one user's, the router's own;
// those of a cluster are told whose they are, the caller's or another user's, as by its other routers.
BsonDoc with_ids(const Context& context, const Client& client, std::string_view command, const SessionIds& ids) {
  const auto own = session_owner(context, client);
  BsonWriter body;
  body.begin_array(command);
  for (const NamedSession& session : ids) {
    body.begin_document_item();
    body.append_binary("id", uuid_subtype, auth::bytes_of(session.id));
    if (own) body.append_binary("uid", 0, session.uid.empty() ? own->view() : auth::bytes_of(session.uid));
    body.end();
  }
  body.end();
  body.append("$db", "admin");
  return std::move(body).finish();
}

// What kills sessions, on one host. Its name at the end of `failed`, if it did not.
Task<void> kill_on_host(Context& context, const Request& request, catalog::ShardIndex shard,
                        std::optional<shard::HostAddress> host, DocView document, std::vector<std::string>& failed) {
  shard::CallOptions options = read_options(context, request);
  options.read_preference = nullptr;
  options.host = host;
  options.deadline = std::min(request.deadline, Clock::now() + tell_shards_max);
  const ShardOutcome outcome = co_await call_shard(context, shard, RoutedBy::nothing(), document, options);
  if (outcome.ok()) co_return;
  const std::string name = host ? host->text() : context.gateway.states()[shard].name;
  log::info("sessions: {} did not take {}: {}", name, request.name, outcome.error->message);
  failed.push_back(name);
}

// On every host of every shard, since reads run on secondaries, too. The answer names those that could not be told, as
// a mongos's does.
Task<Result<Response>> kill_on_hosts(Context& context, const Request& request, BsonDoc document) {
  TaskGroup calls;
  std::vector<std::string> failed;
  for (const catalog::ShardIndex shard : replica_set_shards(context, request)) {
    const shard::ShardState state = context.gateway.states()[shard];
    if (state.hosts.empty()) calls.start(kill_on_host(context, request, shard, std::nullopt, document, failed));
    for (const shard::HostState& host : state.hosts) {
      if (!host.known) {
        failed.push_back(host.address.text());
      } else if (host.primary || host.secondary) {
        calls.start(kill_on_host(context, request, shard, host.address, document, failed));
      }
    }
  }
  co_await calls.wait();
  if (failed.empty() || !context.in_cluster()) co_return ok_response();
  std::sort(failed.begin(), failed.end());
  BsonWriter extra;
  extra.begin_array("failedHosts");
  for (const std::string& host : failed) extra.append_item(host);
  extra.end();
  Error error(ErrorCode::host_unreachable, "Failed to kill on some hosts");
  error.extra = auth::text_of(std::move(extra).finish().view().bytes());
  co_return error;
}

// In a cluster a shard keeps the new session, so that it is written down with those that are used ($listSessions).
Task<Result<Response>> start_session(Context& context, Client& client, const Request& request) {
  std::array<std::uint8_t, session_uuid_bytes> id{};
  if (::getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
    co_return Error(ErrorCode::internal_error, "no random bytes for a session's id");
  }
  id[6] = static_cast<std::uint8_t>((id[6] & 0x0f) | 0x40);
  id[8] = static_cast<std::uint8_t>((id[8] & 0x3f) | 0x80);
  const catalog::ShardSet shards = replica_set_shards(context, request);
  if (context.in_cluster() && shards.size() > 0) {
    const SessionIds ids{{std::string(reinterpret_cast<const char*>(id.data()), id.size())}};
    tell_later(context, catalog::ShardSet{shards.front()}, "refreshSessions",
               with_ids(context, client, "refreshSessions", ids));
  }
  const BsonDoc session = BsonWriter().append_binary("id", uuid_subtype, id).finish();
  client.presence.note_session({reinterpret_cast<const char*>(session.view().data()), session.size()});
  co_return ok_response(BsonWriter().append("id", session).append("timeoutMinutes", std::int32_t{30}));
}

// The operations of these sessions (null: of all) end, on all workers, but not the one that asks for it.
Task<void> interrupt_operations_of(Context& context, const Client& client, const SessionIds* sessions) {
  const auto killed = std::make_shared<absl::flat_hash_set<SessionId>>();
  TimeSlice slice(context.pump);
  if (sessions != nullptr) {
    for (const NamedSession& session : *sessions) {
      killed->insert(session_id_of(session.id));
      if (slice.is_over_short(session_uuid_bytes)) co_await slice.next();
    }
  }
  const std::function<bool(const Context&)> interrupt = [killed, all = sessions == nullptr,
                                                         asking = &client](const Context& worker) {
    for (Client* other : worker.clients) {
      if (other == asking || other->running == nullptr || other->running->lsid.empty()) continue;
      const std::string_view id = session_uuid(other->running->lsid_document());
      if (id.empty() || !(all || killed->contains(session_id_of(id)))) continue;
      other->interrupt.request(Error(ErrorCode::interrupted, "operation was interrupted: its session was killed"));
    }
    return true;
  };
  auto asking = ask_workers<bool>(context, interrupt);
  co_await asking;
}

// Null: every user's. `kills`: operations, too, and waits until the shards have answered.
Task<void> end_everything_of(Context& context, const Client& client, const SessionIds* sessions, bool kills) {
  if (kills) {
    auto interrupting = interrupt_operations_of(context, client, sessions);
    co_await interrupting;
  }
  constexpr std::size_t sessions_per_step = 64;  // each is looked for in all stripes of two tables
  CursorRegistry& cursors = context.shared.cursors;
  TransactionTable& transactions = *context.shared.transactions;
  TaskGroup aborts;
  const auto abort_all = [&](std::vector<OpenTransaction> opened) {
    for (OpenTransaction& open : opened) {
      (kills ? aborts : context.background).start(abort_on_shards(context, std::move(open)));
    }
  };
  if (sessions == nullptr) {
    end_cursors(context, cursors.kill_all_sessions(), CursorEnd::killed);
    abort_all(transactions.end_all_sessions(kills));
  } else {
    TimeSlice slice(context.pump);
    std::vector<SessionId> some;
    for (auto at = sessions->begin(); at != sessions->end();) {
      some.clear();
      for (; at != sessions->end() && some.size() < sessions_per_step; ++at) some.push_back(session_id_of(at->id));
      end_cursors(context, cursors.kill_sessions(some), CursorEnd::killed);
      abort_all(transactions.end_sessions(some, kills));
      if (slice.is_over(4 * limits::kib)) co_await slice.next();
    }
  }
  co_await aborts.wait();
}

Task<Result<Response>> refresh_sessions(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(ids, co_await parse_sessions(context, request));
  if (auto checked = check_uids(context, client, {}, *ids); checked.has_error()) co_return checked.error();
  if (context.shared.authorization) {
    TimeSlice slice(context.pump);
    for (const NamedSession& session : *ids) {
      if (slice.is_over()) co_await slice.next();
      if (auto claimed = claim_session(context, client, session.id); claimed.has_error()) co_return claimed.error();
    }
  }
  tell_later(context, replica_set_shards(context, request), "refreshSessions",
             with_ids(context, client, "refreshSessions", *ids));
  co_return ok_response();
}

// Shards keep the sessions: they write down those that they know.
Task<Result<Response>> refresh_session_caches(Context& context, Client&, const Request& request) {
  const BsonDoc body = forwarded(request);
  auto calls = call_shards(context, replica_set_shards(context, request), RoutedBy::nothing(),
                           shard::Command::of_body(body), read_options(context, request));
  const auto outcomes = co_await calls;
  for (const ShardOutcome& outcome : outcomes) {
    if (outcome.error) co_return *outcome.error;
  }
  co_return ok_response();
}

// Kills all sessions of a user.
BsonDoc patterns_of(std::span<const auth::Digest> uids) {
  BsonWriter body;
  body.begin_array("killAllSessionsByPattern");
  for (const auth::Digest& uid : uids) body.begin_document_item().append_binary("uid", 0, uid.view()).end();
  body.end().append("$db", "admin");
  return std::move(body).finish();
}

SessionIds ids_of_user(const Context& context, std::string_view user) {
  SessionIds ids;
  for (const SessionId& id : context.shared.session_owners.of(user, sessions_per_command_max)) {
    ids.insert({std::string(reinterpret_cast<const char*>(id.data()), session_uuid_bytes)});
  }
  return ids;
}

// endSessions and killSessions
Task<Result<Response>> end_sessions(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(ids, co_await parse_sessions(context, request));
  const bool authorization = context.shared.authorization;
  if (authorization && client.user.empty()) co_return ok_response();  // belongs to no user
  const bool kills = request.name == "killSessions";
  const auth::ActionSet allowing = kills ? auth::ActionSet(auth::Action::kill_any_session) : auth::ActionSet();
  if (auto checked = check_uids(context, client, allowing, *ids); checked.has_error()) co_return checked.error();
  const bool may_end_any = !authorization || may_on_cluster(context, client, auth::Action::kill_any_session);
  const auto own_uid = session_owner(context, client);
  if (!may_end_any && !own_uid) {
    SPILLWAY_CO_TRY(own, co_await check_own(context, client, *ids));
  }
  // All: the user's own, where there are users.
  const bool of_user = kills && ids->empty() && authorization, all = kills && ids->empty() && !authorization;
  if (of_user) *ids = ids_of_user(context, client.user);
  // A session of another user with the same id is none of this one's.
  SessionIds here = *ids;
  if (!may_end_any && own_uid) {
    TimeSlice slice(context.pump);
    for (const NamedSession& session : *ids) {
      if (slice.is_over()) co_await slice.next();
      const bool own = !context.shared.session_owners.is_another_users(session_id_of(session.id), client.user,
                                                                       Clock::now());
      if (!own) here.erase(session);
    }
  }
  auto ending = end_everything_of(context, client, all ? nullptr : &here, kills);
  co_await ending;
  if (authorization) {
    TimeSlice slice(context.pump);
    for (const NamedSession& session : *ids) {
      if (slice.is_over()) co_await slice.next();
      context.shared.session_owners.release(session_id_of(session.id), client.user);
    }
    client.login.session = {};
  }
  if (!kills) {
    tell_later(context, replica_set_shards(context, request), "endSessions",
               with_ids(context, client, "endSessions", *ids));
    co_return ok_response();
  }
  // All of a cluster's user: the shards know those that other routers began.
  const bool by_user = of_user && own_uid;
  if (of_user && !by_user && ids->empty()) co_return ok_response();
  auto killing = kill_on_hosts(context, request, by_user ? patterns_of({&*own_uid, 1})
                                                 : all ? forwarded(request)
                                                       : with_ids(context, client, "killSessions", *ids));
  co_return co_await killing;
}

// The arguments of killAllSessions and killAllSessionsByPattern. {} and [] mean every user.
struct KillPatterns {
  bool all_users = false;
  bool of_users = false;  // the ids are those of the named users
  SessionIds ids;
  std::vector<auth::Digest> uids;  // of these users
};

Result<KillPatterns> parse_patterns(const Context& context, const Client& client, const Request& request) {
  const Element list = request.body.first();
  if (!list.is_array()) return wrong_type(fmt::format("{0}.{0}", request.name), list, "array");
  KillPatterns patterns;
  const bool by_pattern = request.name == "killAllSessionsByPattern";
  patterns.all_users = list.as_document().empty();
  for (const Element& item : list.as_document()) {
    if (!item.is_document()) {
      return Error(ErrorCode::type_mismatch, fmt::format("{} takes documents", request.name));
    }
    const DocView pattern = item.as_document();
    if (!by_pattern) {
      if (!pattern["user"].is_string() || !pattern["db"].is_string()) {
        return Error(40414, "killAllSessions takes documents {user: <string>, db: <string>}");
      }
      patterns.ids.merge(ids_of_user(
          context, auth::user_id(pattern["db"].as_string(), pattern["user"].as_string())));
      patterns.uids.push_back(auth::session_uid(pattern["db"].as_string(), pattern["user"].as_string()));
      patterns.of_users = true;
      continue;
    }
    // The servers kill in the name of these.
    const bool impersonates = pattern["users"].exists() || pattern["roles"].exists();
    if (impersonates && !may_on_cluster(context, client, auth::Action::impersonate)) {
      return Error(ErrorCode::unauthorized, "Not authorized to impersonate in killAllSessionsByPattern");
    }
    const ValueView lsid = pattern["lsid"];
    if (!lsid.exists()) {
      patterns.all_users = patterns.all_users || pattern.empty();
      continue;
    }
    const std::string_view id =
        lsid.is_document() ? session_uuid(lsid.as_document()) : std::string_view();
    if (id.empty()) return Error(ErrorCode::type_mismatch, "a pattern's lsid must be {id: UUID}");
    patterns.ids.insert({std::string(id)});
  }
  return patterns;
}

Task<Result<Response>> kill_all_sessions(Context& context, Client& client, const Request& request) {
  SPILLWAY_CO_TRY(patterns, parse_patterns(context, client, request));
  auto ending = end_everything_of(context, client, patterns->all_users ? nullptr : &patterns->ids, true);
  co_await ending;
  // The shards of a cluster know the owner of each session, but not its users.
  const bool by_user = patterns->of_users && context.in_cluster() && context.shared.shards_trust_us;
  const bool by_id = patterns->of_users && !by_user;
  if (by_id && patterns->ids.empty()) co_return ok_response();
  auto killing = kill_on_hosts(context, request, by_user ? patterns_of(patterns->uids)
                                                 : by_id ? with_ids(context, client, "killSessions", patterns->ids)
                                                         : forwarded(request));
  co_return co_await killing;
}

// Sends an end of the transaction to these shards. The answer is the first that is an error or has a
// writeConcernError, else the last.
Task<ShardOutcome> send_end(Context& context, const Request& request, catalog::ShardSet shards, BsonDoc document) {
  shard::CallOptions options = write_options(context, request);
  options.retry = shard::RetryPolicy::idempotent;  // all of them may be repeated
  options.until_sent = nullptr;                    // what is open is ended, whatever becomes of the client
  auto calls = call_shards(context, std::move(shards), RoutedBy::nothing(), shard::Command::of_body(document), options);
  auto outcomes = co_await calls;
  for (ShardOutcome& outcome : outcomes) {
    if (!outcome.ok() || outcome.body()["writeConcernError"].exists()) co_return std::move(outcome);
  }
  co_return std::move(outcomes.back());
}

// The client's commit or abort.
BsonDoc client_end(const Request& request) {
  BsonWriter body;
  copy_command(body, request, {"recoveryToken", "$readPreference"});
  return std::move(body).finish();
}

// `document`: the client's end, or the command of a coordinator.
Task<Result<Response>> end_on_shards(Context& context, const Request& request, catalog::ShardSet shards,
                                     BsonDoc document) {
  auto sending = send_end(context, request, std::move(shards), std::move(document));
  auto outcome = co_await sending;
  co_return passed_on(std::move(outcome));
}

// For the shard that coordinates the commit. No participants: it says how the commit ended, and aborts if there was
// none.
BsonDoc coordinate_commit(const Request& request, const catalog::ShardSet& participants) {
  BsonWriter body;
  body.append("coordinateCommitTransaction", std::int32_t{1});
  body.begin_array("participants");
  for (const catalog::ShardIndex shard : participants) {
    body.begin_document_item().append("shardId", request.routes->shard(shard).name).end();
  }
  body.end();
  append_generic_arguments(body, request, {"readConcern", "$readPreference"});
  return std::move(body).finish();
}

// Up to 4.4 routers commit one writer without two phases.
bool commits_writer_last(const Context& context, const Participants& participants) {
  for (const catalog::ShardIndex shard : participants.shards()) {
    if (context.gateway.capabilities(shard).max_wire_version > wire_version_of_4_4) return false;
  }
  return true;
}

// A write concern that no shard can satisfy: drivers take such a commit for one that was done. The writer's part was
// not sent.
std::optional<Error> unfit_concern(const ShardOutcome& of_readers) {
  constexpr std::int32_t unknown_mode = 79, unsatisfiable = 100;
  if (!of_readers.ok()) return std::nullopt;
  const DocView concern = of_readers.body()["writeConcernError"].to_document();
  const auto code = concern["code"].to_int64();
  if (code != unknown_mode && code != unsatisfiable) return std::nullopt;
  return Error(static_cast<std::int32_t>(*code), std::string(concern["errmsg"].to_text()));
}

// A commit in the figures of its type. One that is sent again has begun already.
class CommitCount {
 public:
  CommitCount(Metrics& metrics, bool again) noexcept : metrics_(metrics), again_(again) {}

  void participants(std::size_t count) noexcept {
    if (!again_) metrics_.participants_at_commit.add(count);
  }
  void begin(std::size_t type) noexcept {
    begun_ = &metrics_.commits[type];
    if (!again_) begun_->initiated.add();
  }
  void succeed() noexcept {
    if (begun_ != nullptr) begun_->successful.add();
  }

 private:
  Metrics& metrics_;
  bool again_;
  Metrics::Commit* begun_ = nullptr;
};

Task<Result<Response>> commit_in_cluster(Context& context, const Request& request, Participants participants,
                                         CommitCount& count) {
  using Type = CommitPlan::Type;
  const auto planned = context.shared.transactions->plan_commit(request.lsid, *request.txn_number,
                                                                commits_writer_last(context, participants));
  if (!planned) co_return Error(ErrorCode::no_such_transaction, "the transaction's session has ended meanwhile");
  const CommitPlan& plan = *planned;
  count.begin(static_cast<std::size_t>(plan.type));
  if (plan.type == Type::no_shards) co_return ok_response();
  if (plan.type == Type::single_write_shard && !plan.first.empty()) {
    auto sending = send_end(context, request, plan.first, client_end(request));
    ShardOutcome of_readers = co_await sending;
    const bool committed = of_readers.ok() && !of_readers.body()["writeConcernError"].exists();
    const bool lost = of_readers.answered() && of_readers.error &&
                      of_readers.error->is(ErrorCode::no_such_transaction);
    auto after = context.shared.transactions->readers_answered(request.lsid, *request.txn_number, committed, lost);
    if (after.to_abort) {
      auto aborting = abort_on_shards(context, *std::move(after.to_abort));
      co_await aborting;
    }
    if (!after.writer_is_next) {
      if (auto refused = unfit_concern(of_readers)) co_return *std::move(refused);
      co_return passed_on(std::move(of_readers));
    }
  }
  BsonDoc document =
      plan.type == Type::two_phase ? coordinate_commit(request, plan.first) : client_end(request);
  catalog::ShardSet last = plan.type == Type::read_only ? plan.first : catalog::ShardSet{plan.last};
  auto ending = end_on_shards(context, request, std::move(last), std::move(document));
  co_return co_await ending;
}

// Another router has begun the commit, or might have.
Task<Result<Response>> recover_commit(Context& context, const Request& request, catalog::ShardIndex shard,
                                      DocView token) {
  const catalog::ShardSet recovery_shard{shard};
  auto sending = send_end(context, request, recovery_shard, coordinate_commit(request, {}));
  auto outcome = co_await sending;
  auto ended = passed_on(std::move(outcome));
  if (ended.has_error() || ended->failed) co_return std::move(ended);
  // The commit may be sent again.
  BsonWriter reply;
  reply.append_elements(DocView::trusted(ended->pieces().front().iov_base));
  reply.append("recoveryToken", token);
  co_return Response(std::move(reply).finish());
}

Error not_in_transaction(const Request& request) {
  constexpr std::int32_t command_failed = 125;
  return Error(command_failed, fmt::format("{} must be run within a transaction", request.name));
}

Task<Result<Response>> run_commit(Context& context, Client&, const Request& request) {
  if (!request.in_transaction) co_return not_in_transaction(request);
  if (auto checked = check_api_of_transaction(context, request); checked.has_error()) co_return checked.error();
  auto answer = co_await commit_transaction(context, request);
  if (answer.has_value() && !answer->failed) context.shared.transactions->count_commit();
  // An earlier attempt may have committed it. Drivers take the result for unknown by the code.
  if (!answer.has_error() || !answer.error().is(ErrorCode::failed_to_satisfy_read_preference)) co_return answer;
  Error unknown = answer.error();
  unknown.code = static_cast<std::int32_t>(ErrorCode::host_unreachable);
  co_return unknown;
}

Task<Result<Response>> commit_by_type(Context& context, const Request& request, CommitCount& count) {
  auto known = context.shared.transactions->commit(request.lsid, *request.txn_number, Clock::now());
  if (known.has_error()) {
    auto open = context.shared.transactions->fail(request.lsid, *request.txn_number);
    if (open) context.background.start(abort_on_shards(context, *std::move(open)));
    co_return known.error();
  }
  if (*known) count.participants((*known)->size());
  if (*known && context.in_cluster()) {
    auto committing = commit_in_cluster(context, request, **std::move(known), count);
    co_return co_await committing;
  }
  if (*known) {
    const auto type = (*known)->empty() ? CommitPlan::Type::no_shards : CommitPlan::Type::single_shard;
    count.begin(static_cast<std::size_t>(type));
    if ((*known)->empty()) co_return ok_response();
    auto ending = end_on_shards(context, request, (*known)->shards(), client_end(request));
    co_return co_await ending;
  }
  // Another router's transaction: its token names the shard that wrote.
  const ValueView token = request.body["recoveryToken"];
  if (!token.is_document() && context.in_cluster()) {
    constexpr std::int32_t no_token = 50940;
    co_return Error(no_token, "Cannot recover the transaction decision without a recoveryToken");
  }
  if (!token.is_document()) {
    co_return Error(
        ErrorCode::no_such_transaction,
        fmt::format("Transaction {} was not started through this router and there is no recoveryToken",
                    *request.txn_number));
  }
  const ValueView shard_name = token.as_document()["recoveryShardId"];
  if (!shard_name.is_string()) {
    co_return Error(ErrorCode::no_such_transaction,
                    "the transaction was read-only on the router that ran it and is lost");
  }
  const auto shard = request.routes->shard_by_name(shard_name.as_string());
  if (!shard) {
    co_return Error(ErrorCode::shard_not_found,
                    fmt::format("Shard {} not found", shard_name.as_string()));
  }
  SPILLWAY_CO_TRY(checked, check_retryable(context, request, {*shard}));
  count.begin(Metrics::recovered_commit);
  if (context.in_cluster()) {
    co_return co_await recover_commit(context, request, *shard, token.as_document());
  }
  const catalog::ShardSet recovery_shard{*shard};
  auto ending = end_on_shards(context, request, recovery_shard, client_end(request));
  co_return co_await ending;
}

}  // namespace

Task<Result<Response>> commit_transaction(Context& context, const Request& request) {
  const auto before = context.shared.transactions->find(request.lsid, *request.txn_number);
  CommitCount count(context.shared.metrics, before && before->state == Transaction::State::committing);
  auto committing = commit_by_type(context, request, count);
  auto answer = co_await committing;
  if (answer.has_value() && !answer->failed &&
      context.shared.transactions->note_committed(request.lsid, *request.txn_number)) {
    count.succeed();
  }
  co_return answer;
}

namespace {

Task<Result<Response>> abort_transaction(Context& context, Client&, const Request& request) {
  if (!request.in_transaction) co_return not_in_transaction(request);
  SPILLWAY_CO_TRY(known, context.shared.transactions->abort(request.lsid, *request.txn_number, Clock::now()));
  auto ending = end_on_shards(context, request, known->shards(), client_end(request));
  co_return co_await ending;
}

}  // namespace

std::span<const CommandSpec> session_commands() {
  using auth::Action;
  using enum Trait;
  static constexpr CommandSpec specs[] = {
      {"startSession", "start a logical session", start_session, any_user},
      {"refreshSessions", "renew sessions", refresh_sessions, any_user, stable},
      {"refreshLogicalSessionCacheNow", "let the shards write their sessions down", refresh_session_caches, any_user,
       test_only},
      {"endSessions", "end sessions", end_sessions, no_login, drains | stable},
      {"killSessions", "kill sessions by their ids", end_sessions, any_user, drains | audited},
      {"killAllSessions", "kill the sessions of users", kill_all_sessions, on_cluster(Action::kill_any_session),
       drains | audited},
      {"killAllSessionsByPattern", "kill sessions by pattern", kill_all_sessions,
       on_cluster(Action::kill_any_session), drains | audited},
      {"commitTransaction", "commit a transaction", run_commit, any_user,
       admin_only | in_transaction | drains | stable},
      {"abortTransaction", "abort a transaction", abort_transaction, any_user,
       admin_only | in_transaction | drains | stable},
  };
  return specs;
}

}  // namespace spillway::exec
