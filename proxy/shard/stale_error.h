// What a shard's error says about the router's table. Pure.
//
// A stale error comes before anything of the command, or of the write's operation, was executed. Sources: the server's
// stale_exception.cpp and write_ops.cpp, and recorded conversations with 4.2.
#pragma once

#include <cstdint>
#include <string_view>

#include "cursor/bson_view.h"

namespace spillway::shard {

enum class StaleKind : std::uint8_t {
  none,                      // another error, or no error
  stale_config,              // 13388 StaleConfig, 63 StaleShardVersion, 150 StaleEpoch
  stale_database,            // 249 StaleDbVersion
  cannot_refresh,            // 343 ShardCannotRefreshDueToLocksHeld: the shard has to look, not the router
  cannot_implicitly_create,  // 227 CannotImplicitlyCreateCollection
  view,                      // 169 CommandOnShardedViewNotSupportedOnMongod: the namespace is a view
};

// A version as the error has it; eoo where it says nothing. Which form it takes depends on the shard's version:
//   a collection's to 5.x: `version` a timestamp, `epoch` an object id, from 5.0 on `timestamp`, as three fields
//   a collection's since:  `version` the document {e, t, v}
//   a database's:          `version` the document {uuid, lastMod}, with `timestamp` inside from 5.0 on
struct StaleVersion {
  ValueView version, epoch, timestamp;
  bool exists() const noexcept { return version.exists(); }
};

// Views into the error's document.
struct StaleError {
  StaleKind kind = StaleKind::none;
  std::int32_t code = 0;   // also of other errors; 0: no error
  std::string_view ns;     // of stale_database: the database's name. Empty: the error does not say it
  StaleVersion received;   // what the router sent
  StaleVersion wanted;     // what the shard has; missing: it does not know that
  ValueView resolved_view;  // of view: the document {ns, pipeline, collation, …}; eoo otherwise
  bool stale() const noexcept { return kind != StaleKind::none; }
};

// A reply with ok: 0, or one entry of writeErrors. A reply with ok: 1 has no error, whatever its writeErrors say.
StaleError classify_error(DocView error) noexcept;

}  // namespace spillway::shard
