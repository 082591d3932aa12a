// Every hard limit of the program. static_assert relates limits that depend on one another, so that a change that
// breaks the relation does not compile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::limits {

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = 1024 * kib;

// --- the wire
inline constexpr std::size_t message_header_bytes = 16;
// Any wire message, header included; a longer one closes the connection.
inline constexpr std::size_t message_bytes_max = 48'000'000;
// A user's document, and the bytes of a batch returned to a client.
inline constexpr std::size_t document_bytes_max = 16 * mib;
// A command body or a shard's reply: a full document and room for its envelope.
inline constexpr std::size_t internal_document_bytes_max = document_bytes_max + 16 * kib;
// Operations in one insert, update or delete.
inline constexpr std::int32_t write_batch_size_max = 100'000;
// Nesting of documents.
inline constexpr int bson_depth_max = 200;
// OP_MSG document sequences in one message.
inline constexpr std::size_t document_sequences_max = 2;
// zstd frames that ask for a larger window than this are refused (2^23 is zstd's own default limit for level ≤ 19).
inline constexpr int zstd_window_log_max = 23;
// The client metadata document of hello.
inline constexpr std::size_t client_metadata_bytes_max = 512;
inline constexpr std::size_t application_name_bytes_max = 128;
// Database names.
inline constexpr std::size_t database_name_bytes_max = 63;

// --- the data path
// A reply up to this size is complete before its first byte leaves; a larger one streams.
inline constexpr std::size_t reply_complete_bytes_max = 256 * kib;
// One piece of a streamed reply: read from the shard and sent to the client in one turn.
inline constexpr std::size_t stream_piece_bytes = 128 * kib;
// A shard's reply. A mongod stays below message_bytes_max; FerretDB does not cap batches by bytes, and its replies
// are repacked under document_bytes_max. The budget is asked before memory is taken.
inline constexpr std::size_t shard_reply_bytes_max = 512 * mib;
// A buffer of its own for a shard's answer to hello or buildInfo, which have 4 KiB at most.
inline constexpr std::size_t handshake_reply_bytes = 8 * kib;
// The fields of a shard's cursor reply other than its batch.
inline constexpr std::size_t reply_tail_bytes_max = 64 * kib;
// Documents in a first batch for which the client named no size.
inline constexpr std::int32_t first_batch_documents_default = 101;
// The batch counts each document with this much overhead against document_bytes_max.
inline constexpr std::size_t batch_document_overhead_bytes = 10;
// When the client of a streaming reply is gone, this much of the reply is read and dropped; beyond it the shard's
// connection is closed.
inline constexpr std::size_t drain_bytes_max = 16 * mib;
// The originating command kept with a cursor, for currentOp.
inline constexpr std::size_t originating_command_bytes_max = 512;

// --- counts
inline constexpr std::size_t shards_max = 1024;
inline constexpr std::size_t workers_max = 256;
inline constexpr std::size_t cursor_stripes = 64;
// Client connections, unless net.maxIncomingConnections says otherwise.
inline constexpr std::size_t client_connections_max = 65'536;
// Requests waiting for a shard connection, per worker and host.
inline constexpr std::size_t pool_waiters_max = 100'000;

static_assert(internal_document_bytes_max < message_bytes_max);
static_assert(stream_piece_bytes <= reply_complete_bytes_max);
static_assert(reply_tail_bytes_max < reply_complete_bytes_max);
static_assert(drain_bytes_max <= message_bytes_max);

}  // namespace spillway::limits
