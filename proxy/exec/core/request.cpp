#include "proxy/exec/core/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

#include "cursor/field_table.h"
#include "proxy/exec/core/arguments.h"
#include "proxy/exec/core/command.h"

namespace spillway::exec {

namespace {

// opTime and electionId: of writes, for routers.
constexpr FieldTable<13> stripped_reply_fields(
    {"$clusterTime", "operationTime", "$configServerState", "$configTime", "$topologyTime", "$gleStats",
     "lastCommittedOpTime", "readOnly", "additionalParticipants", "$replData", "$oplogQueryData", "opTime",
     "electionId"});

constexpr FieldTable<14> generic_arguments(
    {"$db", "lsid", "txnNumber", "autocommit", "startTransaction", "comment", "maxTimeMS", "readConcern",
     "writeConcern", "$readPreference", "clientOperationKey", "$queryOptions", "stmtId", "coordinator"});

// The fields that take_argument() reads, in the order of request_fields.
enum class Argument : std::uint8_t {
  db, lsid, txn_number, autocommit, start_transaction, max_time_ms, read_preference, comment, read_concern,
  old_max_time_ms, write_concern, encryption, constants, variables, api_version,
  api_strict, api_deprecation_errors, help, cluster_time, trace_context
};
// From apiVersion on: those that a router strips. ($traceCtx: generic from MongoDB 8.3 on, and unknown to servers
// before it.)
constexpr auto first_stripped_field = static_cast<std::size_t>(Argument::api_version);
constexpr FieldTable<33> request_fields(
    {"$db", "lsid", "txnNumber", "autocommit", "startTransaction", "maxTimeMS", "$readPreference", "comment",
     "readConcern", "$maxTimeMs", "writeConcern", "encryptionInformation", "runtimeConstants", "let", "apiVersion",
     "apiStrict", "apiDeprecationErrors", "help", "$clusterTime", "$traceCtx", "$configTime", "$topologyTime",
     "$configServerState", "$client", "$audit", "$oplogQueryData", "$replData", "tracking_info", "maxTimeMSOpOnly",
     "allowImplicitCollectionCreation", "shardVersion", "databaseVersion", "mayBypassWriteBlocking"});
static_assert(request_fields.find("apiVersion") == first_stripped_field);
static_assert(request_fields.find("$traceCtx") == static_cast<std::size_t>(Argument::trace_context));

// As servers on Linux, which forbid others on Windows alone; `$` is for the shards to judge.
constexpr std::array<bool, 256> forbidden_in_database_names = [] {
  std::array<bool, 256> all{};
  for (const char each : std::string_view("/\\. \"\0", 6)) all[static_cast<unsigned char>(each)] = true;
  return all;
}();

Result<void> check_database_name(std::string_view db) {
  const auto is_forbidden = [](char c) { return forbidden_in_database_names[static_cast<unsigned char>(c)]; };
  if (db.empty() || db.size() > limits::database_name_bytes_max || std::any_of(db.begin(), db.end(), is_forbidden)) {
    return Error(ErrorCode::invalid_namespace, fmt::format("Invalid database name: '{}'", db));
  }
  return {};
}

// Strict as servers are: further fields would be kept with cursors and transactions.
Result<void> take_lsid(Request& request, const Element& field) {
  if (!field.is_document()) return wrong_type("lsid", field, "object");
  constexpr FieldTable<4> fields({"id", "uid", "txnNumber", "txnUUID"});
  constexpr std::array<std::size_t, 4> binary_bytes = {16, 32, 0, 16};  // 0: a long
  std::array<bool, 4> seen{};
  auto at = field.as_document().begin();
  for (; !at.done(); ++at) {
    const auto name = [&at] { return fmt::format("lsid.{}", at->name); };
    const std::size_t known = fields.find(at->name);
    if (known == fields.absent) return unknown_field(name());
    if (std::exchange(seen[known], true)) {
      return Error(40413, fmt::format("BSON field '{}' is a duplicate field", name()));
    }
    const std::size_t bytes = binary_bytes[known];
    const bool fits =
        bytes == 0 ? at->type == BsonType::int64
                   : at->type == BsonType::binary && at->as_binary().data.size() == bytes;
    if (!fits) return wrong_type(name(), *at, bytes == 0 ? "long" : "binData");
  }
  if (at.malformed()) return Error(ErrorCode::invalid_bson, "the lsid is malformed");
  if (!seen[0]) return wrong_type("lsid.id", ValueView(), "binData");
  request.lsid = {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()};
  return {};
}

Result<void> take_txn_number(Request& request, const Element& field) {
  if (field.type != BsonType::int64) return wrong_type("txnNumber", field, "long");
  if (field.as_int64() < 0) {
    return Error(ErrorCode::invalid_options, "Transaction number cannot be negative");
  }
  request.txn_number = field.as_int64();
  return {};
}

Result<void> take_max_time(Request& request, const Element& field) {
  const auto ms = field.to_int64();
  if (!ms) {
    if (!field.is_number()) return wrong_type("maxTimeMS", field, "long");
    return Error(ErrorCode::bad_value, "maxTimeMS must be an integral value");
  }
  if (*ms < 0 || *ms > std::numeric_limits<std::int32_t>::max()) {
    return Error(ErrorCode::bad_value, fmt::format("{} value for maxTimeMS is out of range [0, 2147483647]", *ms));
  }
  if (*ms > 0) request.max_time_ms = *ms;
  return {};
}

Result<void> take_read_preference(Request& request, const Element& field) {
  if (!field.is_document()) return wrong_type("$readPreference", field, "object");
  SPILLWAY_TRY(parsed, shard::ReadPreference::parse(field.as_document()));
  request.read_preference = *std::move(parsed);
  request.has_read_preference = true;
  return {};
}

// autocommit and startTransaction: each has one value that is allowed.
Result<void> take_flag(bool& flag, const Element& field, bool allowed) {
  if (field.type != BsonType::boolean) return wrong_type(field.name, field, "bool");
  if (field.as_bool() != allowed) {
    return Error(ErrorCode::invalid_options, fmt::format("Specifying {}={} is not allowed.", field.name, !allowed));
  }
  flag = true;
  return {};
}

Result<void> take_api_version(Request& request, const Element& field) {
  if (!field.is_string()) return wrong_type("apiVersion", field, "string");
  if (field.as_string() != "1") return Error(ErrorCode::api_version_error, "API version must be \"1\"");
  request.api.version = true;
  return {};
}

Result<void> take_api_flag(std::optional<bool>& flag, const Element& field) {
  if (field.type != BsonType::boolean) return wrong_type(field.name, field, "bool");
  flag = field.as_bool();
  return {};
}

// Reads one generic argument into the request; `which` may lie beyond those.
Result<void> take_argument(Request& request, Argument which, const Element& field) {
  switch (which) {
    case Argument::db:
      if (!field.is_string()) return wrong_type("$db", field, "string");
      request.db = field.as_string();
      request.has_db = true;
      break;
    case Argument::lsid:
      return take_lsid(request, field);
    case Argument::txn_number:
      return take_txn_number(request, field);
    case Argument::autocommit:
      return take_flag(request.in_transaction, field, false);
    case Argument::start_transaction:
      return take_flag(request.start_transaction, field, true);
    case Argument::max_time_ms:
      return take_max_time(request, field);
    case Argument::read_preference:
      return take_read_preference(request, field);
    case Argument::comment:
      request.comment = field;
      break;
    case Argument::read_concern:
      if (!field.is_document()) return wrong_type("readConcern", field, "object");
      if (field.is_document() && field.as_document().empty()) {
        request.strips_fields = true;  // as if there were none: shards get the default one
      } else {
        request.read_concern = field;
      }
      break;
    case Argument::constants:
    case Argument::variables:
      request.sets_variables = true;
      break;
    case Argument::encryption:
      request.encrypted = true;
      break;
    case Argument::api_version:
      return take_api_version(request, field);
    case Argument::api_strict:
      return take_api_flag(request.api.strict, field);
    case Argument::api_deprecation_errors:
      // Version 1 has no deprecated parts.
      return take_api_flag(request.api.deprecation_errors, field);
    case Argument::old_max_time_ms:
      return Error(ErrorCode::invalid_options, "no such field: $maxTimeMs; use maxTimeMS");
    case Argument::help:
      request.help = field.truthy();
      break;
    case Argument::cluster_time:
      request.cluster_time = field;
      break;
    case Argument::trace_context:
      request.trace_context = field;
      break;
    case Argument::write_concern:
      request.lacks_w = field.is_document() && !field.as_document()["w"].exists();
      request.unacknowledged = field.is_document() && field.as_document()["w"].to_double().value_or(1) == 0;
      request.strips_fields = request.strips_fields || request.unacknowledged;
      break;
  }
  return {};
}

Result<void> check_transaction_fields(const Request& request) {
  if (request.txn_number && request.lsid.empty()) {
    return Error(ErrorCode::invalid_options, "Transaction number requires a session ID to also be specified");
  }
  if (request.in_transaction && !request.txn_number) {
    return Error(ErrorCode::invalid_options, "'autocommit' field requires a transaction number to also be specified");
  }
  if (request.start_transaction && !request.in_transaction) {
    return Error(ErrorCode::invalid_options,
                 "'startTransaction' field requires 'autocommit' field to also be specified");
  }
  return {};
}

}  // namespace

bool is_stripped_from_request(std::string_view field) noexcept {
  const std::size_t known = request_fields.find(field);
  return known != request_fields.absent && known >= first_stripped_field;
}
bool is_stripped_from_reply(std::string_view field) noexcept {
  return stripped_reply_fields.contains(field);
}
bool is_generic_argument(std::string_view field) noexcept { return generic_arguments.contains(field); }
bool is_argument_of_any_command(std::string_view field) noexcept {
  return is_generic_argument(field) || is_stripped_from_request(field);
}

void Request::replace_body(DocView now) noexcept {
  body = message.body = now;
  sections = {};
  strips_fields = true;
}

namespace {

bool is_about_collection(const CommandSpec& spec) noexcept {
  return spec.need.of == CommandNeed::Of::collection || spec.routes == RouteNeed::collection ||
         spec.routes == RouteNeed::written || spec.routes == RouteNeed::pipeline || spec.name == "killCursors";
}

}  // namespace

catalog::Namespace Request::target() const {
  const CommandSpec* const spec = command_named(name);
  if (spec == nullptr) return {db, {}};
  const Element first = body.first();
  if (spec->name == "getMore") return {db, body["collection"].to_text()};
  if (is_about_collection(*spec)) return {db, first.to_text()};
  if (spec->routes == RouteNeed::explained && first.is_document()) {
    return {db, first.as_document().first().to_text()};
  }
  const bool named_whole = spec->routes == RouteNeed::full_name || spec->need.of == CommandNeed::Of::full_name;
  if (named_whole && first.is_string()) return catalog::split_namespace(first.as_string());
  return {db, {}};
}

std::string Request::ns() const {
  const catalog::Namespace named = target();
  if (named.collection.empty()) return fmt::format("{}.$cmd.{}", named.db, name);
  return fmt::format("{}.{}", named.db, named.collection);
}

bool reads_snapshot(const Request& request) noexcept {
  if (request.in_transaction || !request.read_concern.is_document()) return false;
  const ValueView level = request.read_concern.as_document()["level"];
  return level.is_string() && level.as_string() == "snapshot";
}

// The shards of a static table are separate clusters: one's cluster time means nothing to another, and clients get
// none.
Result<void> check_read_time(const Request& request, bool in_cluster) {
  if (!request.read_concern.is_document()) return {};
  if (request.name == "getMore") return {};  // pymongo repeats its cursor's
  constexpr FieldTable<3> at_snapshots({"find", "aggregate", "distinct"});
  const DocView concern = request.read_concern.as_document();
  const bool snapshot = reads_snapshot(request);
  const bool chosen = in_cluster && snapshot && at_snapshots.contains(request.name);
  const std::string_view why = in_cluster ? "only find, aggregate and distinct read at a snapshot"
                                          : "the shards of a static table are separate clusters, without a common time";
  for (const std::string_view time : {"afterClusterTime", "atClusterTime"}) {
    if (!concern[time].exists() || chosen || (in_cluster && time == "afterClusterTime")) continue;
    return Error(ErrorCode::invalid_options, fmt::format("readConcern.{} is not supported: {}", time, why));
  }
  if (snapshot && !chosen) {
    return Error(ErrorCode::invalid_options,
                 fmt::format("readConcern level snapshot is not supported outside transactions: {}", why));
  }
  return {};
}

Result<void> read_request(Request& request, Bytes sections, TimePoint now) {
  request.sections = sections;
  request.body = request.message.body;
  IndexedIterator at(request.body, &request.message.fields);
  if (at.done()) return Error(ErrorCode::failed_to_parse, "the command document is empty");
  request.name = at->name;
  request.arrived = now;
  for (++at; !at.done(); ++at) {
    const std::size_t known = request_fields.find(at->name);
    if (known == request_fields.absent) continue;
    if (known >= first_stripped_field) request.strips_fields = true;
    if (auto taken = take_argument(request, static_cast<Argument>(known), *at); taken.has_error()) return taken;
  }
  if (!request.api.version && (request.api.strict || request.api.deprecation_errors)) {
    return Error(4886600, "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion");
  }
  if (!request.has_db) {
    return Error(40571, "OP_MSG requests require a $db argument");
  }
  if (auto checked = check_database_name(request.db); checked.has_error()) return checked;
  if (request.db == "local") {
    return Error(ErrorCode::illegal_operation, "Can't use 'local' database through mongos");
  }
  if (auto checked = check_transaction_fields(request); checked.has_error()) return checked;
  if (request.max_time_ms && request.name != "getMore") {
    // The shard's own limit fires first; ours is for a shard that hangs.
    request.deadline = now + std::chrono::milliseconds(*request.max_time_ms + 250);
  }
  return {};
}

Result<Request> parse_request(const wire::OpMsg& message, Bytes sections, TimePoint now) {
  Request request;
  request.message = message;
  if (auto read = read_request(request, sections, now); read.has_error()) return std::move(read).error();
  return request;
}

}  // namespace spillway::exec
