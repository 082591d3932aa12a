// Version 1 of the Stable API, as far as it is about aggregations.
#pragma once

#include "cursor/bson_view.h"
#include "cursor/error.h"

namespace spillway::exec {

// An aggregate with apiStrict, or the explain of one, keeps to the stages of the Stable API; those of nested pipelines
// count, too. APIStrictError(323) names the first that is not among them. Other commands pass. (A MongoDB also looks at
// the operators inside of stages and at the fields of commands: those pass here.)
Result<void> check_stable_stages(DocView command);

}  // namespace spillway::exec
