// Batches for clients that use compression. A compressed reply cannot pass in pieces: the router reads the batch whole.
// If the client names no batchSize, its batches are limited to compressed_batch_bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

inline constexpr std::size_t compressed_batch_bytes = limits::mib;
// Of documents of several shards, for a client that does not compress and names no batchSize. Each scan holds such a
// batch while its client reads: with 16 MiB, as a shard sends, a hundred scans took 1.9 GB and were slower.
inline constexpr std::size_t merged_batch_bytes = 2 * limits::mib;

// How many documents of this mean size such a batch holds; at least 1. Mean 0: not known.
std::int64_t compressed_batch_documents(double mean_document_bytes) noexcept;

// The largest batch that is built for a reply to this request. `sized`: the client named a batchSize, or singleBatch.
std::size_t batch_bytes_max(const Request& request, bool sized) noexcept;

// Must this streaming reply be read whole, so that it can be compressed? Only up to twice the size that was asked for
// (document sizes vary around their mean), and not while memory is short.
bool is_read_to_compress(const Context& context, const Request& request,
                         const shard::Reply& reply) noexcept;

}  // namespace spillway::exec
