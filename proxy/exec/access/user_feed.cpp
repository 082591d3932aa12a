#include "proxy/exec/access/user_feed.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "proxy/base/log.h"
#include "proxy/exec/core/forward.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

constexpr std::int64_t users_read_max = 10'000;
constexpr int failures_max = 10;
constexpr Duration patience = std::chrono::seconds(10);

Error no_user(std::string_view why) {
  return Error(ErrorCode::bad_value, fmt::format("a document of admin.system.users {}", why));
}

std::optional<auth::Digest> key_of(ValueView text, auth::Hash hash) {
  return text.is_string() ? auth::digest_from_base64(hash, text.as_string()) : std::nullopt;
}

std::optional<auth::ScramCredentials> credentials_of(DocView all, auth::Hash hash) {
  const ValueView value = all[auth::mechanism_name(hash)];
  if (!value.is_document()) return std::nullopt;
  const DocView document = value.as_document();
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

BsonDoc users_command() {
  BsonWriter out;
  out.append("find", "system.users").begin_document("filter").end();
  out.append("limit", users_read_max)
      .append("batchSize", users_read_max)
      .append("singleBatch", true);
  out.append("$db", "admin");
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
  const ValueView restrictions = document["authenticationRestrictions"];
  if (restrictions.is_array() && !restrictions.as_document().empty()) {
    return no_user(fmt::format("holds authenticationRestrictions for {}.{}, which are not enforced here",
                               db.as_string(), name.as_string()));
  }
  auth::UserSpec user{std::string(name.as_string()), std::string(db.as_string()), {}, {}, {}};
  const ValueView credentials = document["credentials"];
  if (credentials.is_document()) {
    user.sha1 = credentials_of(credentials.as_document(), auth::Hash::sha1);
    user.sha256 = credentials_of(credentials.as_document(), auth::Hash::sha256);
  }
  const ValueView roles = document["roles"];
  if (!roles.is_array()) return user;
  for (const Element& item : roles.as_document()) {
    if (!item.is_document()) continue;
    const ValueView role = item.as_document()["role"];
    const ValueView role_db = item.as_document()["db"];
    if (!role.is_string() || !role_db.is_string()) continue;
    auth::RoleGrant grant{std::string(role.as_string()), std::string(role_db.as_string())};
    if (auth::check_role(grant).has_error()) {
      ++unknown_roles;
    } else {
      user.roles.push_back(std::move(grant));
    }
  }
  return user;
}

Task<Result<void>> read_stored_users(Context& context) {
  const BsonDoc command = users_command();
  shard::CallOptions options;
  options.budget = &context.shared.reply_memory;
  options.retry = shard::RetryPolicy::idempotent;
  options.deadline = Clock::now() + patience;
  auto call = call_shard(context, {*context.shared.users_from, RoutedBy::nothing(), shard::Command::of_body(command)},
                         options);
  const ShardOutcome outcome = co_await call;
  if (outcome.error) co_return *outcome.error;
  const DocView body = outcome.body();
  const ValueView cursor = body["cursor"];
  const ValueView batch = cursor.is_document() ? cursor.as_document()["firstBatch"] : ValueView();
  if (!batch.is_array()) co_return Error(ErrorCode::failed_to_parse, "the reply holds no batch");
  // Users behind the damage would lose access.
  if (batch.as_document().validate().has_error()) co_return malformed_reply("the batch");
  std::vector<auth::UserSpec> users;
  std::size_t unknown_roles = 0;
  for (const Element& item : batch.as_document()) {
    auto user = item.is_document() ? parse_stored_user(item.as_document(), unknown_roles)
                                   : Result<auth::UserSpec>(no_user("is none"));
    if (user.has_error()) {
      log::warning("users: {}; it is left out", user.error().message);
    } else {
      users.push_back(*std::move(user));
    }
  }
  const std::size_t count = users.size();
  if (context.shared.users.feed(std::move(users))) {
    log::info(
        "users: {} were read from shard {}; {} roles of theirs are not known here, and allow "
        "nothing",
        count, context.gateway.states()[*context.shared.users_from].name, unknown_roles);
  }
  co_return Result<void>();
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
  auto reading = read_stored_users(*context);
  const auto read = co_await reading;
  running_ = false;
  if (!read.has_error()) {
    failures_ = 0;
    co_return;
  }
  ++failures_;
  log::warning("users could not be read from their shard ({} times now): {}", failures_,
               read.error().message);
  if (failures_ == failures_max) {
    log::error("the users of the shard are nobody until they can be read again");
    context->shared.users.feed({});
  }
}

}  // namespace spillway::exec
