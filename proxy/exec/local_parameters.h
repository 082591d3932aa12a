// getParameter and setParameter: the settings, by the names that mongos gives them.
#pragma once

#include "cursor/bson_writer.h"
#include "proxy/exec/context.h"

namespace spillway::exec {

// {getParameter: "*"} or {getParameter: 1, <name>: 1, …}. InvalidOptions(72) when none of the names is known.
Result<BsonDoc> get_parameters(Context& context, DocView command);
// {setParameter: 1, <name>: <value>, …}: all or nothing. The reply's `was` is the first one's old value.
Result<BsonDoc> set_parameters(Context& context, DocView command);

}  // namespace spillway::exec
