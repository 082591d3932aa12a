// Version 1 of the Stable API for aggregations.
#pragma once

#include "cursor/bson_view.h"
#include "cursor/error.h"

namespace spillway::exec {

// An aggregate with apiStrict, or its explain, may only use stages of the Stable API; nested pipelines count, too.
// APIStrictError(323) names the first other stage. Other commands pass. (A MongoDB also checks operators inside of
// stages and fields of commands: those pass here.)
Result<void> check_stable_stages(DocView command);

}  // namespace spillway::exec
