// Refusals of shards that know a newer routing table than the command came with. They come before anything of the
// operation is executed, but for a multi-write that went to its only shard with a version: a chunk may have moved in
// its middle (RoutedBy::multi_write).
#pragma once

#include <cstdint>

namespace spillway::exec {

inline constexpr std::int32_t stale_shard_version = 63;    // in writeErrors of shards below 6.0
inline constexpr std::int32_t stale_epoch = 150;
inline constexpr std::int32_t cannot_implicitly_create_collection = 227;
inline constexpr std::int32_t stale_db_version = 249;
inline constexpr std::int32_t shard_cannot_refresh_due_to_locks_held = 343;
inline constexpr std::int32_t stale_config = 13388;

// May the command be sent again once the table has been read again?
constexpr bool is_stale(std::int32_t code) noexcept {
  return code == stale_config || code == stale_db_version || code == stale_shard_version || code == stale_epoch ||
         code == shard_cannot_refresh_due_to_locks_held || code == cannot_implicitly_create_collection;
}

// The signature of $clusterTime is of a key that the server does not know. It has not looked at the command yet.
inline constexpr std::int32_t key_not_found = 211;

// The collection is a view over a sharded one, which the router must run itself.
inline constexpr std::int32_t command_on_sharded_view = 169;

// Is the error for the router, not for the client?
constexpr bool is_for_router(std::int32_t code) noexcept { return is_stale(code) || code == command_on_sharded_view; }

}  // namespace spillway::exec
