// Batches for clients that compress: compressed bytes cannot be cut through,
// so what is to leave compressed is read whole. Where the client named no batchSize, its batches
// are made as large as that is worth.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/shard/gateway.h"

namespace spillway::exec {

inline constexpr std::size_t compressed_batch_bytes = limits::mib;

// How many documents of this mean size such a batch holds; at least 1. 0: the mean is not known.
std::int64_t compressed_batch_documents(double mean_document_bytes) noexcept;

// The cap of a batch that is put together for a reply to this request. `sized`: the client named a
// size, or whatever is left out is lost.
std::size_t batch_bytes_max(const Request& request, bool sized) noexcept;

// Is this streaming reply to be read whole, so that it can be compressed? Twice the size that was
// asked for is, for means are no more than that; nothing is while memory is short.
bool is_read_to_compress(const Context& context, const Request& request,
                         const shard::Reply& reply) noexcept;

}  // namespace spillway::exec
