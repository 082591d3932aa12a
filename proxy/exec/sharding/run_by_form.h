// Running a command that another server of the cluster carries out.
#pragma once

#include "proxy/exec/core/response.h"
#include "proxy/exec/sharding/command_forms.h"

namespace spillway::exec {

// By the table of forms. When it returns, no worker uses what it knew before of what the command is about.
// CommandNotFound(59) if the cluster's version does not have it, or the server says so.
Task<Result<Response>> run_by_form(Context& context, const Request& request);
// Is that its answer? Then the servers may still take the command as clients send it.
bool is_unknown_form(const Result<Response>& result) noexcept;

// Shards of 8.0 and later have the router make a collection before a write puts the first document into it: they refuse
// the write (227). Earlier ones make it themselves: then this does nothing.
Task<Result<void>> make_collection(Context& context, const Request& request, std::string collection);

// The routes of these names as of now. Errors: those of Router::learn().
Task<Result<Routes>> routes_of(Context& context, const Request& request, RouteNames names, bool make_database);
// The same of a collection, read from the config servers after this was called. NamespaceNotSharded(118).
Task<Result<Routes>> read_again(Context& context, const Request& request, std::string ns);

// A command for one server, made here, and its answer: ok: 0 is an error.
Task<Result<shard::Reply>> command_to(Context& context, const Request& request, catalog::ShardIndex shard, BsonDoc body,
                                      shard::RetryPolicy retry);
// The documents of config.<collection> that a filter finds, from the config servers' primary: a short list, as
// `cursor.firstBatch`.
Task<Result<shard::Reply>> find_in_config(Context& context, const Request& request, std::string_view collection,
                                          BsonDoc filter);

}  // namespace spillway::exec
