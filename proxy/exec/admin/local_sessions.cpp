#include "proxy/exec/admin/local_sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "proxy/exec/core/ask_workers.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/kept_documents.h"
#include "proxy/exec/core/process_memory.h"

namespace spillway::exec {

namespace {

constexpr std::string_view sessions_stage = "$listLocalSessions";
constexpr std::int32_t unknown_option = 40415, unsupported_format = 12;
constexpr std::size_t session_rows_bytes_max = limits::document_bytes_max;  // of one worker
constexpr std::uint8_t session_uuid_subtype = 4;

Error wrong_option(std::string_view what, ValueView value, std::string_view expected) {
  return Error(ErrorCode::type_mismatch,
               fmt::format("{}{} must be {}, but found: {}", sessions_stage, what, expected,
                           bson_type_name(value.type)));
}

Result<void> take_users(const Element& field, std::vector<std::string>& users) {
  if (!field.is_array()) return wrong_option(".users", field, "an array");
  for (const Element& item : field.as_document()) {
    const DocView named = item.to_document();
    if (!named["user"].is_string() || !named["db"].is_string() || named.count() != 2) {
      return wrong_option(".users", item, "an array of {user, db}");
    }
    const std::string_view db = named["db"].as_string(), user = named["user"].as_string();
    users.push_back(db.empty() && user.empty() ? std::string() : fmt::format("{}.{}", db, user));
  }
  return {};
}

BsonDoc session_document(const SessionId& id, std::int64_t used_ms, std::string_view user) {
  const auto uid = uid_of_sessions(user);
  BsonWriter out;
  out.begin_document("_id");
  out.append_binary("id", session_uuid_subtype, {reinterpret_cast<const std::uint8_t*>(id.data()), sizeof id});
  out.append_binary("uid", 0, uid.view());
  out.end();
  out.append_date("lastUse", used_ms);
  return std::move(out).finish();
}

// One worker's rows, charged as they are made.
struct SessionRows {
  KeptDocuments kept;
  std::optional<Error> failed;
};

SessionRows sessions_of(const Context& worker, const ListedSessions& listed) {
  SessionRows rows{KeptDocuments(worker.shared.memory.cursors), std::nullopt};
  for (const Client* client : worker.clients) {
    const auto& users = listed.users;
    if (!listed.all && std::find(users.begin(), users.end(), client->user) == users.end()) continue;
    for (const auto& [id, used_ms] : client->presence.sessions()) {
      if (rows.kept.used_bytes() > session_rows_bytes_max) return rows;
      if (auto added = rows.kept.add(session_document(id, used_ms, client->user)); added.has_error()) {
        rows.failed = added.error();
        return rows;
      }
    }
  }
  return rows;
}

}  // namespace

auth::Digest uid_of_sessions(std::string_view user) {
  const std::size_t dot = std::min(user.find('.'), user.size());
  return auth::session_uid(user.substr(0, dot), user.substr(std::min(dot + 1, user.size())));
}

Result<ListedSessions> parse_listed_sessions(const Client& client, ValueView stage) {
  if (!stage.is_document()) return wrong_option("", stage, "an object");
  ListedSessions listed;
  for (const Element& field : stage.as_document()) {
    if (field.name == "allUsers") {
      if (field.type != BsonType::boolean) return wrong_option(".allUsers", field, "a boolean");
      listed.all = field.as_bool();
    } else if (field.name == "users") {
      if (auto taken = take_users(field, listed.users); taken.has_error()) return taken.error();
    } else {
      return Error(unknown_option, fmt::format("BSON field '{}.{}' is an unknown field.", sessions_stage, field.name));
    }
  }
  if (listed.all && !listed.users.empty()) {
    return Error(unsupported_format,
                 fmt::format("{} may not name users together with allUsers: true", sessions_stage));
  }
  if (!listed.all && listed.users.empty()) listed.users.push_back(client.user);
  return listed;
}

Task<Result<void>> list_local_sessions(Context& context, ListedSessions listed, QueryRun& into) {
  const std::function<SessionRows(const Context&)> local = [listed = std::move(listed)](const Context& worker) {
    return sessions_of(worker, listed);
  };
  auto asking = ask_workers<SessionRows>(context, local);
  const std::vector<SessionRows> answers = co_await asking;
  std::map<std::string_view, DocView> newest;
  for (const SessionRows& rows : answers) {
    if (rows.failed) co_return *rows.failed;
    for (const BsonDoc& row : rows.kept.documents()) {
      DocView& kept = newest[auth::text_of(row.view()["_id"].bytes)];
      if (kept.empty() || kept["lastUse"].as_int64() < row.view()["lastUse"].as_int64()) kept = row;
    }
  }
  for (const auto& [id, row] : newest) {
    SPILLWAY_AWAIT(pushed, into.push(row));
  }
  co_return co_await into.finish();
}

}  // namespace spillway::exec
