// The privileges of commands that need more than actions on one thing: rules for their rows in the command table.
#pragma once

#include "proxy/exec/core/command_need.h"

namespace spillway::exec {

CommandNeed::Rule may_insert, may_update, may_bulk_write, may_find_and_modify, may_aggregate, may_explain, may_sum_file,
    may_map_reduce, may_get_more, may_create, may_coll_mod, may_rename, may_list_collections,
    may_current_op;

// Stages whose privileges these rules do not know: as a first stage they are refused by name when they are run.
bool is_unjudged_stage(std::string_view name) noexcept;

}  // namespace spillway::exec
