// getParameter and setParameter: the settings, by the names that mongos gives them.
#pragma once

#include <optional>
#include <string>

#include "cursor/bson_writer.h"
#include "proxy/exec/core/context.h"

namespace spillway::exec {

// {getParameter: "*"} or {getParameter: 1, <name>: 1, …}. InvalidOptions(72) when none of the names is known.
Result<BsonDoc> get_parameters(Context& context, DocView command);
// {setParameter: 1, <name>: <value>, …}: all or nothing. The reply's `was` is the first one's old value.
Result<BsonDoc> set_parameters(Context& context, DocView command);

// Call after a change of Services::parameters: applies those that are not read from there, the log's level and the
// heap. An error's text: there is no such heap, and the old one stays.
std::optional<std::string> take_parameters_into_use(const Services& shared);

}  // namespace spillway::exec
