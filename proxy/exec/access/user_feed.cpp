#include "proxy/exec/access/user_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>

#include "proxy/auth/privilege.h"
#include "proxy/auth/users.h"
#include "proxy/base/log.h"
#include "proxy/catalog/versions.h"
#include "proxy/config/parameters.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/cursor_ops.h"

namespace spillway::exec {

namespace {

constexpr std::int32_t users_read_max = 10'000;
constexpr std::size_t users_resolved_at_once = 50;  // a reply has at most 16 MiB
constexpr int failures_max = 10;
constexpr Duration patience = std::chrono::seconds(10);

Error no_user(std::string_view why) {
  return Error(ErrorCode::bad_value, fmt::format("a document of admin.system.users {}", why));
}

std::optional<auth::Digest> key_of(ValueView text, auth::Hash hash) {
  return text.is_string() ? auth::digest_from_base64(hash, text.as_string()) : std::nullopt;
}

std::optional<auth::ScramCredentials> credentials_of(DocView all, auth::Hash hash) {
  const DocView document = all[auth::mechanism_name(hash)].to_document();
  const auto iterations = document["iterationCount"].to_int64();
  const ValueView salt_text = document["salt"];
  const auto salt = salt_text.is_string() ? auth::from_base64(salt_text.as_string()) : std::nullopt;
  const auto stored_key = key_of(document["storedKey"], hash);
  const auto server_key = key_of(document["serverKey"], hash);
  const bool sound = iterations && *iterations >= auth::scram_iterations_min &&
                     *iterations <= auth::scram_iterations_max && salt && !salt->empty() &&
                     salt->size() <= auth::scram_salt_bytes_max && stored_key && server_key;
  if (!sound) return std::nullopt;
  return auth::ScramCredentials{static_cast<std::uint32_t>(*iterations), *salt, *stored_key,
                                *server_key};
}

// Restrictions of the user, or a list of those of each role.
bool restricts(ValueView restrictions) {
  for (const Element& item : restrictions.to_array()) {
    if (!item.is_array() || !item.as_document().empty()) return true;
  }
  return false;
}

std::vector<auth::RoleGrant> grants_of(ValueView roles) {
  std::vector<auth::RoleGrant> grants;
  for (const Element& item : roles.to_array()) {
    const ValueView role = item.to_document()["role"], role_db = item.to_document()["db"];
    if (!role.is_string() || !role_db.is_string()) continue;
    grants.push_back({std::string(role.as_string()), std::string(role_db.as_string())});
  }
  return grants;
}

std::vector<auth::Privilege> privileges_of(DocView list) {
  std::vector<auth::Privilege> privileges;
  for (const Element& item : list) {
    if (!item.is_document()) continue;
    if (auto read = auth::read_privilege(item.as_document())) privileges.push_back(*std::move(read));
  }
  return privileges;
}

// Empty names: all users.
BsonDoc users_command(std::string_view db = {}, std::string_view name = {}) {
  BsonWriter out;
  out.append("find", "system.users").begin_document("filter");
  if (!name.empty()) out.append("user", name).append("db", db);
  out.end();
  // Of what parse_stored_user() reads: a reply has at most 16 MiB.
  out.begin_document("projection").append("_id", 0);
  for (const char* const field : {"user", "db", "userId", "roles", "credentials", "authenticationRestrictions"}) {
    out.append(field, 1);
  }
  out.end();
  out.append("limit", users_read_max + 1).append("batchSize", users_read_max + 1).append("$db", "admin");
  return std::move(out).finish();
}

}  // namespace

Result<auth::UserSpec> parse_stored_user(DocView document, std::size_t& unknown_roles) {
  const ValueView name = document["user"];
  const ValueView db = document["db"];
  if (!name.is_string() || !db.is_string() || name.as_string().empty() || db.as_string().empty() ||
      name.as_string().size() > auth::user_name_bytes_max ||
      db.as_string().find('.') != std::string_view::npos) {
    return no_user("names no user and database");
  }
  if (restricts(document["authenticationRestrictions"]) || restricts(document["inheritedAuthenticationRestrictions"])) {
    return no_user(fmt::format("holds authenticationRestrictions for {}.{}, which are not enforced here",
                               db.as_string(), name.as_string()));
  }
  auth::UserSpec user{std::string(name.as_string()), std::string(db.as_string()), {}, {}, {}};
  user.uuid = catalog::read_uuid(document["userId"]);
  const DocView credentials = document["credentials"].to_document();
  user.sha1 = credentials_of(credentials, auth::Hash::sha1);
  user.sha256 = credentials_of(credentials, auth::Hash::sha256);
  std::vector<auth::RoleGrant> grants = grants_of(document["roles"]);
  if (const ValueView privileges = document["inheritedPrivileges"]; privileges.is_array()) {
    user.roles = std::move(grants);
    user.resolved = {grants_of(document["inheritedRoles"]), privileges_of(privileges.as_document())};
    return user;
  }
  for (auth::RoleGrant& grant : grants) {
    if (auth::check_role(grant).has_error()) {
      ++unknown_roles;
    } else {
      user.roles.push_back(std::move(grant));
    }
  }
  return user;
}

namespace {

// As the shard of the users answers; its reply must be ok. Without a primary a secondary does.
Task<ShardOutcome> ask_for_users(Context& context, BsonDoc question, Duration longest = patience) {
  BsonWriter out;
  out.append_elements(question).begin_document("$readPreference").append("mode", "primaryPreferred").end();
  const BsonDoc command = std::move(out).finish();
  shard::CallOptions options;
  options.read_preference = &shard::ReadPreference::primary_preferred();
  options.budget = &context.shared.memory.replies;
  options.retry = shard::RetryPolicy::idempotent;
  options.deadline = Clock::now() + longest;
  co_return co_await call_shard(context, *context.shared.users_from, RoutedBy::nothing(), command, options);
}

// Users behind a damage would lose access.
Result<DocView> sound(ValueView list) {
  if (!list.is_array()) return Error(ErrorCode::failed_to_parse, "the reply holds no batch");
  if (list.as_document().validate().has_error()) return malformed_reply("the batch");
  return list.as_document();
}

void add_users(std::vector<auth::UserSpec>& users, DocView batch, std::size_t& unknown_roles) {
  for (const Element& item : batch) {
    auto user = item.is_document() ? parse_stored_user(item.as_document(), unknown_roles)
                                   : Result<auth::UserSpec>(no_user("is none"));
    if (user.has_error()) {
      log::warning("users: {}; it is left out", user.error().message);
    } else {
      users.push_back(*std::move(user));
    }
  }
}

using Names = std::vector<std::pair<std::string, std::string>>;  // name, db

Result<Names> names_of(ValueView users) {
  SPILLWAY_TRY(list, sound(users));
  Names names;
  for (const Element& item : *list) {
    const ValueView name = item.to_document()["user"], db = item.to_document()["db"];
    if (name.is_string() && db.is_string()) names.emplace_back(name.as_string(), db.as_string());
  }
  return names;
}

BsonDoc generation_command() {
  return BsonWriter().append("_getUserCacheGeneration", std::int32_t{1}).append("$db", "admin").finish();
}

BsonDoc names_command() {
  return BsonWriter().begin_document("usersInfo").append("forAllDBs", true).end().append("$db", "admin").finish();
}

// Servers resolve privileges of users that are named, and of no others.
BsonDoc resolving_command(std::span<const Names::value_type> names) {
  BsonWriter out;
  out.begin_array("usersInfo");
  for (const auto& [name, db] : names) out.begin_document_item().append("user", name).append("db", db).end();
  out.end();
  for (const char* const option : {"showCredentials", "showPrivileges", "showAuthenticationRestrictions"}) {
    out.append(option, true);
  }
  out.append("$db", "admin");
  return std::move(out).finish();
}

// The users do not fit into one reply.
bool is_about_size(const Error& error) noexcept {
  constexpr std::int32_t buffer_too_large = 13548;
  return error.is(ErrorCode::bson_object_too_large) || error.code == buffer_too_large;
}

constexpr int tries_max = 5;

// False: other users were fed that were read later, and nothing has changed.
Task<Result<bool>> read_users_once(Context& context, std::string* generation) {
  const std::uint64_t number = context.shared.users.begin_read();
  // Read first: a change meanwhile is seen the next time. A router that may not ask reads them each time.
  std::string now;
  {
    auto asking = ask_for_users(context, generation_command());
    const ShardOutcome outcome = co_await asking;
    if (!outcome.error) now = auth::text_of(outcome.body()["cacheGeneration"].bytes);
  }
  if (!now.empty() && now == *generation) co_return true;
  Names names;
  {
    auto asking = ask_for_users(context, names_command());
    const ShardOutcome outcome = co_await asking;
    if (outcome.error) co_return *outcome.error;
    SPILLWAY_CO_TRY(found, names_of(outcome.body()["users"]));
    names = *std::move(found);
  }
  std::vector<auth::UserSpec> users;
  std::size_t unknown_roles = 0;
  std::size_t at_once = users_resolved_at_once;
  for (std::span<const Names::value_type> left = names; !left.empty();) {
    const std::size_t count = std::min(left.size(), at_once);
    auto asking = ask_for_users(context, resolving_command(left.first(count)));
    const ShardOutcome outcome = co_await asking;
    if (outcome.error && !is_about_size(*outcome.error)) co_return *outcome.error;
    if (outcome.error && count > 1) {
      at_once = count / 2;
      continue;
    }
    if (outcome.error) {
      // Better out than with rights that may have been taken away. The next time is another try.
      log::warning("users: {}@{} is left out, since the config servers cannot tell of this user: {}",
                   left.front().first, left.front().second, outcome.error->message);
      left = left.subspan(1);
      now.clear();
      continue;
    }
    at_once = std::min(2 * at_once, users_resolved_at_once);
    SPILLWAY_CO_TRY(batch, sound(outcome.body()["users"]));
    add_users(users, *batch, unknown_roles);
    left = left.subspan(count);
  }
  const std::size_t count = users.size();
  const auto fed = context.shared.users.feed(number, std::move(users));
  if (!fed) co_return false;
  if (*fed) log::info("users: {} were read from the config servers", count);
  *generation = std::move(now);
  co_return true;
}

// One user, as the config servers resolve it or, where they do not tell what roles allow, as it is stored. No user:
// there is none.
Task<Result<std::vector<auth::UserSpec>>> find_user(Context& context, Names::value_type named, Duration longest) {
  auto asking = ask_for_users(context, resolving_command({&named, 1}), longest);
  ShardOutcome outcome = co_await asking;
  const bool resolves = !outcome.error || !outcome.error->is(ErrorCode::unauthorized);
  if (!resolves) {
    auto asking_stored = ask_for_users(context, users_command(named.second, named.first), longest);
    outcome = co_await asking_stored;
  }
  if (outcome.error) co_return *outcome.error;
  SPILLWAY_CO_TRY(batch, sound(resolves ? outcome.body()["users"] : outcome.body().find_path("cursor.firstBatch")));
  std::vector<auth::UserSpec> users;
  std::size_t unknown_roles = 0;
  add_users(users, *batch, unknown_roles);
  co_return users;
}

// False: other users were fed that were read later, and nothing has changed.
Task<Result<bool>> read_user_once(Context& context, const Names::value_type& named) {
  const std::uint64_t number = context.shared.users.begin_read();
  SPILLWAY_AWAIT(users, find_user(context, named, patience));
  const auto& [name, db] = named;
  const auto fed = context.shared.users.feed_one(number, db, name, users->empty() ? nullptr : &users->front());
  co_return fed.has_value();
}

}  // namespace

namespace {

// With their roles as they are stored: what these allow is known of built-in ones only.
Task<Result<void>> read_unresolved_users(Context& context) {
  const std::uint64_t number = context.shared.users.begin_read();
  auto asking = ask_for_users(context, users_command());
  const ShardOutcome outcome = co_await asking;
  if (outcome.error) co_return *outcome.error;
  SPILLWAY_CO_TRY(batch, sound(outcome.body().find_path("cursor.firstBatch")));
  // Those that are missing would lose access.
  const std::int64_t rest = outcome.body().find_path("cursor.id").to_int64().value_or(0);
  kill_unread(context, outcome, "admin.system.users", rest);
  if (rest != 0 || std::cmp_greater(batch->count(), users_read_max)) {
    co_return Error(ErrorCode::bson_object_too_large,
                    fmt::format("there are more than {} users, or more than a reply of 16 MiB holds", users_read_max));
  }
  std::vector<auth::UserSpec> users;
  std::size_t unknown_roles = 0;
  add_users(users, *batch, unknown_roles);
  const std::size_t count = users.size();
  // Not if the answer to a later question came first.
  const auto fed = context.shared.users.feed(number, std::move(users));
  if (fed && *fed) {
    log::info(
        "users: {} were read from shard {}; {} roles of theirs are not known here, and allow "
        "nothing",
        count, context.gateway.states()[*context.shared.users_from].name, unknown_roles);
  }
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> read_stored_users(Context& context) {
  if (!context.shared.users_of_cluster) co_return co_await read_unresolved_users(context);
  std::string generation;
  co_return co_await read_cluster_users(context, &generation);
}

Task<Result<void>> read_cluster_users(Context& context, std::string* generation) {
  for (int tries = 0; tries < tries_max; ++tries) {
    const Result<bool> read = co_await read_users_once(context, generation);
    // The router's own user may not ask what roles allow.
    if (read.has_error() && read.error().is(ErrorCode::unauthorized)) co_return co_await read_unresolved_users(context);
    if (read.has_error()) co_return read.error();
    if (*read) co_return Result<void>();
  }
  co_return Error(ErrorCode::conflicting_operation_in_progress, "users change while they are read");
}

Task<Result<void>> read_cluster_user(Context& context, std::string name, std::string db) {
  const Names::value_type named(std::move(name), std::move(db));
  for (int tries = 0; tries < tries_max; ++tries) {
    const Result<bool> read = co_await read_user_once(context, named);
    if (read.has_error()) co_return read.error();
    if (*read) co_return Result<void>();
  }
  co_return Result<void>();  // many change now: the next tick reads again
}

Task<void> learn_user(Context& context, UserToLearn user) {
  constexpr Duration longest = std::chrono::seconds(1);  // the client waits for its hello
  const std::uint64_t number = context.shared.users.begin_read();
  auto finding = find_user(context, {std::move(user.name), std::move(user.db)}, longest);
  const auto users = co_await finding;
  if (!users.has_error() && !users->empty()) context.shared.users.feed_new(number, users->front());
}

namespace {

// The name of the one user that a command changes; empty: it may change several.
std::string_view changed_user(const Request& request) {
  constexpr std::array<std::string_view, 5> of_one = {"createUser", "updateUser", "dropUser", "grantRolesToUser",
                                                      "revokeRolesFromUser"};
  const Element who = request.body.first();
  const bool one = std::find(of_one.begin(), of_one.end(), request.name) != of_one.end() && who.is_string();
  return one ? who.as_string() : std::string_view();
}

}  // namespace

Task<void> read_changed_users(Context& context, const Request& request) {
  if (!context.shared.users_from) co_return;
  const std::string_view user = changed_user(request);
  auto reading = user.empty() || !context.shared.users_of_cluster
                     ? read_stored_users(context)
                     : read_cluster_user(context, std::string(user), std::string(request.db));
  const auto read = co_await reading;
  if (read.has_error()) log::warning("users could not be read after {}: {}", request.name, read.error().message);
}

void UserFeed::tick(Context& context, TimePoint now) {
  if (!context.shared.users_from || running_ || now < next_) return;
  const bool first = next_ == TimePoint{};
  next_ = now + std::chrono::seconds(context.shared.parameters.user_refresh_secs.load());
  if (first) return;  // the start has read users already
  running_ = true;
  context.background.start(refresh(&context));
}

Task<void> UserFeed::refresh(Context* context) {
  auto reading = context->shared.users_of_cluster ? read_cluster_users(*context, &generation_)
                                                  : read_stored_users(*context);
  const auto read = co_await reading;
  running_ = false;
  if (!read.has_error()) {
    failures_ = 0;
    co_return;
  }
  ++failures_;
  // As in other routers of a cluster, its users keep the rights that they had.
  if (context->in_cluster()) {
    log::warning("users could not be read from the config servers ({} times now), and stay as they were: {}", failures_,
                 read.error().message);
    co_return;
  }
  log::warning("users could not be read from their shard ({} times now): {}", failures_,
               read.error().message);
  if (failures_ == failures_max) {
    log::error("no user of the shard can log in until its users can be read again");
    context->shared.users.suspend_fed();
  }
}

}  // namespace spillway::exec
