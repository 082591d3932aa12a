// The config database, answered from the routing snapshot: find, aggregate, count and distinct on config.shards,
// databases, collections, chunks, tags, version, settings and mongos.
#pragma once

#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/exec/context.h"
#include "proxy/exec/request.h"
#include "proxy/exec/response.h"

namespace spillway::exec {

// The documents of config.<collection>; empty for a collection that is not kept.
std::vector<BsonDoc> config_documents(const Context& context, std::string_view collection);

// Handlers of reads on db "config". Writes there are refused by the write commands with IllegalOperation(20).
Result<Response> config_find(Context& context, const Request& request);
Result<Response> config_aggregate(Context& context, const Request& request);
Result<Response> config_count(Context& context, const Request& request);
Result<Response> config_distinct(Context& context, const Request& request);

// A reply whose whole result is in the first batch.
Response documents_response(const std::vector<BsonDoc>& documents, std::string_view ns);

}  // namespace spillway::exec
