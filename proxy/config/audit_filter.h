// auditLog.filter. Does not throw.
#pragma once

#include <memory>
#include <string>

#include "cursor/error.h"
#include "proxy/exec/pipeline/match.h"

namespace spillway {

// Null: there is none, and everything is wanted.
Result<std::unique_ptr<const pipeline::Filter>> make_audit_filter(const std::string& text);

}  // namespace spillway
