// filemd5 names a bucket of GridFS, not a collection.
#pragma once

#include <string>

#include "cursor/bson_view.h"

namespace spillway::exec {

// The collection of the chunks of the command's file: "<root>.chunks". Empty: `root` is no string.
inline std::string chunks_of_file(DocView command) {
  const ValueView root = command["root"];
  if (root.exists() && !root.is_string()) return {};
  const bool named = root.is_string() && !root.as_string().empty();
  return std::string(named ? root.as_string() : "fs") + ".chunks";
}

}  // namespace spillway::exec
