// ConcernDefaults: what setDefaultRWConcern has set for a cluster (4.4 and later). Shards do not apply it: routers do.
#pragma once

#include <memory>

#include "cursor/bson_view.h"
#include "cursor/bson_writer.h"

namespace spillway::catalog {

// Immutable.
struct ConcernDefaults {
  using Ptr = std::shared_ptr<const ConcernDefaults>;
  // As {level: …} and {w: …, wtimeout: …, j?: …}; empty: none is set.
  BsonDoc read, write;

  bool operator==(const ConcernDefaults& other) const noexcept;
};

// Of config.settings' document with this _id. Fields of wrong types count as not set.
inline constexpr const char* concern_defaults_id = "ReadWriteConcernDefaults";
ConcernDefaults read_concern_defaults(DocView document);

}  // namespace spillway::catalog
