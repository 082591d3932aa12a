#include "proxy/exec/commands/failing.h"

#include <algorithm>
#include <array>

#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/fail_command.h"
#include "proxy/exec/core/stale.h"
#include "proxy/exec/counters/metrics.h"
#include "proxy/exec/read/aggregate.h"
#include "proxy/shard/topology.h"

namespace spillway::exec {

namespace {

// That take a writeConcern.
constexpr std::array<std::string_view, 49> writing{
    "abortTransaction",   "addShard",         "addshard",           "collMod",          "commitTransaction",
    "convertToCapped",    "create",           "createIndexes",      "createRole",       "createUser",
    "delete",             "deleteIndexes",    "drop",               "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",               "dropDatabase",       "dropIndexes",      "dropRole",
    "dropUser",           "enableSharding",   "enablesharding",     "findAndModify",    "findandmodify",
    "grantPrivilegesToRole",                  "grantRolesToRole",   "grantRolesToUser", "insert",
    "moveChunk",          "moveCollection",   "movePrimary",        "moveRange",        "movechunk",
    "moveprimary",        "refineCollectionShardKey",               "removeShard",      "removeshard",
    "renameCollection",   "reshardCollection", "revokePrivilegesFromRole",              "revokeRolesFromRole",
    "revokeRolesFromUser", "setDefaultRWConcern", "setFeatureCompatibilityVersion",     "setIndexCommitQuorum",
    "shardCollection",    "shardcollection",  "update",             "updateRole",       "updateUser"};
static_assert(std::is_sorted(writing.begin(), writing.end()));

bool takes_write_concern(const Request& request) {
  if (std::binary_search(writing.begin(), writing.end(), request.name)) return true;
  const ValueView pipeline = request.body["pipeline"];
  return request.name == "aggregate" && pipeline.is_array() && ends_in_write(pipeline.as_document());
}

// After these a transaction may be tried again as a whole.
bool is_transient(std::int32_t code, bool commits) {
  constexpr std::array<std::int32_t, 8> always{24, 112, 239, 246, 250, 251, 267, 272};
  if (std::binary_search(always.begin(), always.end(), code) || is_stale(code)) return true;
  return !commits && shard::is_retriable(code) && code != 134 && code != 262;
}

FailSubject subject_of(const Request& request) { return {request.name, request.db, request.body}; }

}  // namespace

Task<std::optional<Response>> fail_on_purpose(Context& context, Client& client, Request& request) {
  TimePoint deadline = time_point_never;
  if (request.deadline != time_point_never)
    deadline = request.arrived + std::chrono::milliseconds(*request.max_time_ms);
  auto planning = fail_as_planned(context, client, subject_of(request), deadline);
  std::optional<PlannedFailure> failure = co_await planning;
  if (!failure) {
    request.answers_router = request.answers_router || takes_write_concern(request);
    co_return std::nullopt;
  }
  if (failure->closes) {
    Response none;
    none.closes = true;
    co_return none;
  }
  if (!failure->labelled && request.in_transaction &&
      is_transient(failure->error.code, request.name == "commitTransaction")) {
    failure->error.labels.emplace_back("TransientTransactionError");
  }
  co_return refuse(context.shared.metrics, failure->error);
}

void fail_write_concern(Context& context, const Client& client, const Request& request, Response& response) {
  if (response.stream() != nullptr || !takes_write_concern(request)) return;
  const FailCommand::PlanPtr plan = context.shared.fail_command.meet_write_concern(client, subject_of(request));
  if (!plan) return;
  const BsonDoc document = response.copy();
  BsonWriter out;
  out.append_elements(document, [&](std::string_view name) {
    return name != "writeConcernError" && !(plan->labels && name == "errorLabels");
  });
  out.append("writeConcernError", DocView::trusted(plan->write_concern_error.data()));
  if (plan->labels && !plan->labels->empty()) {
    out.begin_array("errorLabels");
    for (const std::string& label : *plan->labels) out.append_item(std::string_view(label));
    out.end();
  }
  Response changed(std::move(out).finish());
  changed.failed = response.failed;
  changed.failure_code = response.failure_code;
  response = std::move(changed);
}

}  // namespace spillway::exec
