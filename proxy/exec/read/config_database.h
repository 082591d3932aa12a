// The config database, answered from the routing snapshot: find, aggregate, count and distinct on config.shards,
// databases, collections, chunks, tags, version, settings and mongos. Documents are made one by one, in turns of the
// pump; only matching ones are kept.
#pragma once

#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/kept_documents.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// The names of the collections.
const std::vector<std::string_view>& config_collections();

// Handlers of reads on db "config". Writes there are refused by the write commands with IllegalOperation(20).
Task<Result<Response>> config_find(Context& context, Client& client, const Request& request);
Task<Result<Response>> config_aggregate(Context& context, Client& client, const Request& request);
Task<Result<Response>> config_count(Context& context, const Request& request);
Task<Result<Response>> config_distinct(Context& context, const Request& request);

// A cursor over documents in memory (charged to ProcessMemory::cursors): the first batch now, the rest by getMore.
Task<Result<Response>> answer_documents(Context& context, Client& client, const Request& request,
                                        KeptDocuments documents, std::string_view collection, FirstBatch first);

}  // namespace spillway::exec
