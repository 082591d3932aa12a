#include "proxy/exec/commands/op_query_commands.h"

#include <algorithm>
#include <array>

namespace spillway::exec {

namespace {

constexpr std::array<std::string_view, 24> watching{
    "authenticate",  "buildInfo",        "buildinfo",   "collStats", "collstats",
    "connPoolStats", "connectionStatus", "dbStats",     "dbstats",   "getCmdLineOpts",
    "getLog",        "getnonce",         "hostInfo",    "isdbgrid",  "listCollections",
    "listCommands",  "listDatabases",    "logout",      "ping",      "replSetGetStatus",
    "saslContinue",  "saslStart",        "serverStatus", "whatsmyuri"};
static_assert(std::is_sorted(watching.begin(), watching.end()));

constexpr std::array<std::string_view, 6> reading{"aggregate", "count",   "distinct",
                                                  "find",      "getMore", "killCursors"};
static_assert(std::is_sorted(reading.begin(), reading.end()));

}  // namespace

bool is_answered_over_op_query(std::string_view command, std::string_view db) noexcept {
  return std::binary_search(watching.begin(), watching.end(), command) ||
         (db == "config" && std::binary_search(reading.begin(), reading.end(), command));
}

Result<Request> parse_query_command(DocView command, std::string_view db, TimePoint now,
                                    std::vector<std::uint8_t>& sections) {
  const auto others = [](std::string_view name) { return name != "$db"; };
  const BsonDoc document = BsonWriter().append_elements(command, others).append("$db", db).finish();
  sections.assign(1, 0);  // the kind of a body
  sections.insert(sections.end(), document.view().data(), document.view().data() + document.size());
  wire::OpMsg message;
  message.body = DocView::trusted(sections.data() + 1);
  return parse_request(message, sections, now);
}

}  // namespace spillway::exec
