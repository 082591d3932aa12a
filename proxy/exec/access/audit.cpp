// Source of names and shapes: MongoDB's manual, "mongo Schema Audit Messages".
#include "proxy/exec/access/audit.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <ctime>
#include <utility>

#include "absl/hash/hash.h"
#include "proxy/auth/crypto.h"
#include "proxy/base/ip_address.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/command.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/counters/process_facts.h"

namespace spillway::exec {

namespace {

// A larger param is left out: clients must not control the length of a line.
constexpr std::size_t param_bytes_max = 16 * 1024;
constexpr std::size_t json_bytes_max = 16 * param_bytes_max;

// The content of a command's line. `plain` commands have no event of their own in MongoDB's schema: they get an
// authCheck that says that they were allowed, as a server writes it with auditAuthorizationSuccess.
enum class AuditKind : std::uint8_t { plain, create, create_index, drop, drop_database, drop_index, rename, shutdown };

struct Audited {
  std::string_view command;
  AuditKind kind;
};
constexpr std::array commands_with_event = {
    Audited{"create", AuditKind::create},
    Audited{"createIndexes", AuditKind::create_index},
    Audited{"drop", AuditKind::drop},
    Audited{"dropDatabase", AuditKind::drop_database},
    Audited{"dropIndexes", AuditKind::drop_index},
    Audited{"deleteIndexes", AuditKind::drop_index},
    Audited{"renameCollection", AuditKind::rename},
    Audited{"shutdown", AuditKind::shutdown},
};

AuditKind kind_of(const CommandSpec& spec) noexcept {
  for (const Audited& one : commands_with_event) {
    if (one.command == spec.name) return one.kind;
  }
  return AuditKind::plain;
}

std::string utc_text(std::int64_t ms) {
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}+00:00", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, ms % 1000);
}

// "10.0.0.1:5000" as {ip, port}.
void append_endpoint(BsonWriter& out, std::string_view name, std::string_view peer) {
  const std::string_view digits = peer.substr(peer.rfind(':') + 1);
  std::int32_t port = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
  out.begin_document(name).append("ip", without_port(peer)).append("port", port).end();
}

// The connection's two ends and its user. The process itself has neither.
void append_who(BsonWriter& out, const Client* client) {
  if (client == nullptr) {
    out.begin_document("local").append("isSystemUser", true).end();
    out.begin_document("remote").append("isSystemUser", true).end();
  } else {
    append_endpoint(out, "local", client->local);
    append_endpoint(out, "remote", client->peer);
  }
  const auth::User* const user = client == nullptr ? nullptr : client->login.user.get();
  out.begin_array("users");
  if (user != nullptr) out.begin_document_item().append("user", user->name).append("db", user->db).end();
  out.end();
  out.begin_array("roles");
  if (user != nullptr) {
    for (const auth::RoleGrant& role : user->roles) {
      out.begin_document_item().append("role", role.role).append("db", role.db).end();
    }
  }
  out.end();
}

// Only the command's name and what it names: values are clients' data.
BsonDoc shown_command(const Request& request) {
  BsonWriter out;
  const Element first = request.body.first();
  if (first.is_string()) {
    out.append(first.name, first.as_string());
  } else {
    out.append(first.name, std::int32_t{1});
  }
  // Parameters' values are settings, not data.
  if (request.name == "setParameter") {
    out.append_elements(request.body, [&](std::string_view name) {
      return name != first.name && !is_generic_argument(name) && !name.starts_with('$');
    });
  }
  if (request.name == "killOp") out.append("op", request.body["op"]);
  out.append("$db", request.db);
  return std::move(out).finish();
}

BsonDoc check_param(const Request& request) {
  BsonWriter out;
  out.append("command", request.name);
  if (!request.target().collection.empty()) out.append("ns", request.ns());
  out.append("args", shown_command(request));
  return std::move(out).finish();
}

BsonDoc ns_param(std::string_view ns) {
  return BsonWriter().append("ns", ns).finish();
}

}  // namespace

AuditLog::AuditLog(Options options) : options_(std::move(options)) {
  // No secret: a process without random bytes does not start anyway.
  if (::getrandom(&seed_, sizeof seed_, 0) != static_cast<ssize_t>(sizeof seed_)) seed_ = absl::HashOf(::getpid());
}

// --- of connections

void AuditLog::client_metadata(const Client& client) {
  BsonWriter out;
  append_endpoint(out, "localEndpoint", client.local);
  if (!client.metadata.empty()) {
    out.append("clientMetadata", DocView::trusted(client.metadata.data()));
  } else {
    out.begin_document("clientMetadata").end();
  }
  write("clientMetadata", &client, std::move(out).finish(), 0);
}

void AuditLog::authenticated(const Client& client, std::string_view mechanism, std::string_view db,
                             std::string_view user, std::int32_t result) {
  BsonWriter out;
  out.append("user", user).append("db", db).append("mechanism", mechanism);
  write("authenticate", &client, std::move(out).finish(), result);
}

void AuditLog::logged_out(const Client& client) {
  BsonWriter out;
  out.append("reason", "Logging out").begin_array("initialUsers");
  if (const auth::User* const user = client.login.user.get()) {
    out.begin_document_item().append("user", user->name).append("db", user->db).end();
  }
  out.end().begin_array("updatedUsers").end();
  write("logout", &client, std::move(out).finish(), 0);
}

// --- of commands

void AuditLog::refused(const Client& client, const CommandSpec&, const Request& request) {
  write("authCheck", &client, check_param(request), static_cast<std::int32_t>(ErrorCode::unauthorized));
}

void AuditLog::administrative(const Client& client, const Request& request, std::int32_t result) {
  write("authCheck", &client, check_param(request), result);
}

// `index`: its name, or its key.
void AuditLog::dropped_index(const Client& client, const Request& request, ValueView index, std::int32_t result) {
  BsonWriter out;
  out.append("ns", request.ns());
  out.append("indexName", index.is_string() ? std::string(index.as_string()) : to_json(index));
  write("dropIndex", &client, std::move(out).finish(), result);
}

void AuditLog::done(const Client& client, const CommandSpec& spec, const Request& request, std::int32_t result) {
  switch (kind_of(spec)) {
    case AuditKind::plain:
      return administrative(client, request, result);
    case AuditKind::create:
      return write("createCollection", &client, ns_param(request.ns()), result);
    case AuditKind::drop:
      return write("dropCollection", &client, ns_param(request.ns()), result);
    case AuditKind::drop_database:
      return write("dropDatabase", &client, ns_param(request.db), result);
    case AuditKind::create_index: {
      const ValueView indexes = request.body["indexes"];
      if (!indexes.is_array()) return administrative(client, request, result);
      for (const Element& index : indexes.as_document()) {
        if (!index.is_document()) continue;
        BsonWriter out;
        const ValueView name = index.as_document()["name"], key = index.as_document()["key"];
        out.append("ns", request.ns()).append("indexName", name.to_text());
        out.begin_document("indexSpec");
        out.append("key", key).append("name", name.to_text()).end();
        write("createIndex", &client, std::move(out).finish(), result);
      }
      return;
    }
    case AuditKind::drop_index: {
      const ValueView index = request.body["index"];
      if (!index.is_array()) return dropped_index(client, request, index, result);
      for (const Element& one : index.as_document()) dropped_index(client, request, one, result);
      return;
    }
    case AuditKind::rename: {
      const ValueView from = request.body.first(), to = request.body["to"];
      BsonWriter out;
      out.append("old", from.to_text()).append("new", to.to_text());
      return write("renameCollection", &client, std::move(out).finish(), result);
    }
    case AuditKind::shutdown:
      return write("shutdown", &client, BsonDoc(), result);
  }
}

// --- of the process

void AuditLog::started(const ProcessFacts& facts) {
  write("startup", nullptr, BsonWriter().append("options", facts.parsed_options).finish(), 0);
}

void AuditLog::shut_down() { write("shutdown", nullptr, BsonDoc(), 0); }

void AuditLog::reloaded(std::string_view outcome, bool applied) {
  write("reload", nullptr, BsonWriter().append("outcome", outcome).finish(),
        static_cast<std::int32_t>(applied ? ErrorCode::ok : ErrorCode::invalid_options));
}

void AuditLog::rotate() {
  BsonWriter out;
  out.append("pid", std::int64_t{::getpid()}).begin_document("logRotationStatus").append("status", "OK").end();
  write("rotateLog", nullptr, std::move(out).finish(), 0);
  if (options_.reopen) options_.reopen();
}

// --- lines

void AuditLog::write(std::string_view atype, const Client* client, BsonDoc param, std::int32_t result) {
  const std::int64_t now_ms = wall_clock_ms();
  if (param.view().size() > param_bytes_max) {
    param = BsonWriter().append("omittedBytes", static_cast<std::int64_t>(param.view().size())).finish();
  }
  BsonWriter rest;
  append_who(rest, client);
  rest.append("param", param).append("result", result);
  const BsonDoc tail = std::move(rest).finish();
  std::array<std::uint64_t, 2> uuid{};
  if (client != nullptr)
    uuid = {absl::HashOf(seed_, client->connection_id), absl::HashOf(client->connection_id, seed_, 1)};
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(uuid.data());
  std::string json = to_json(tail.view(), json_bytes_max);
  if (!json.starts_with('{')) {  // a client sent invalid UTF-8
    BsonWriter without;
    append_who(without, client);
    without.begin_document("param").append("unprintable", true).end().append("result", result);
    json = to_json(std::move(without).finish().view(), json_bytes_max);
  }
  hand_over(fmt::format(R"({{"atype":"{}","ts":{{"$date":"{}"}},"uuid":{{"$binary":"{}","$type":"04"}},{})", atype,
                        utc_text(now_ms), auth::to_base64(Bytes(bytes, sizeof uuid)), json.substr(1)));
}

// A line may fail before it is counted as accepted.
std::uint64_t AuditLog::written() const {
  const std::uint64_t failed = options_.failed ? options_.failed() : 0;
  return std::max(accepted_.value(), failed) - failed;
}

void AuditLog::hand_over(std::string line) { (options_.sink(std::move(line)) ? accepted_ : lost_).add(); }

std::string events_lost_line(std::uint64_t missing) {
  return fmt::format(
      R"({{"atype":"eventsLost","ts":{{"$date":"{}"}},"local":{{"isSystemUser":true}},)"
      R"("remote":{{"isSystemUser":true}},"users":[],"roles":[],"param":{{"count":{}}},"result":0}})",
      utc_text(wall_clock_ms()), missing);
}

}  // namespace spillway::exec
