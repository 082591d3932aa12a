// filemd5, which MongoDB has deprecated: the checksum of a file of GridFS, wherever its chunks are.
#include <fmt/format.h>

#include <utility>

#include "proxy/exec/core/file_chunks.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/cursors/take_memory.h"
#include "proxy/exec/read/find.h"

namespace spillway::exec {

namespace {

constexpr std::size_t state_bytes_max = 1024;

// The shards of the file's chunks, or of its n-th.
Result<Targets> chunk_targets(const Request& request, std::string_view chunks, const std::int32_t* n) {
  BsonWriter filter;
  filter.begin_document("files_id").append("$eq", ValueView(request.body.first())).end();
  if (n != nullptr) filter.append("n", *n);
  const BsonDoc query = std::move(filter).finish();
  return read_targets(request, request.db, chunks, query, {});
}

// Goes on with the chunk after those that the sum is about.
BsonDoc next_part(const Request& request, std::int32_t summed, DocView state) {
  BsonWriter body;
  copy_command(body, request, {"partialOk", "startAt", "md5state"});
  body.append("partialOk", true).append("startAt", summed);
  body.append_elements(state);
  return std::move(body).finish();
}

}  // namespace

// A shard adds what follows without a gap to the sum, until none has the next chunk.
Task<Result<Response>> file_md5_command(Context& context, Client&, const Request& request) {
  const std::string chunks = chunks_of_file(request.body);
  if (chunks.empty()) co_return Error(ErrorCode::invalid_namespace, "'root' must be of type String");
  TakeCopyRoom taking_room(context, request, 2);
  SPILLWAY_CO_TRY(room, co_await taking_room);
  SPILLWAY_CO_TRY(targets, chunk_targets(request, chunks, nullptr));
  if (targets->shards.size() == 1) co_return co_await forward_read(context, request, *targets);
  const shard::CallOptions options = read_options(context, request);
  BsonDoc state;  // {md5state: …} of the last answer
  for (std::int32_t summed = 0;;) {
    targets = chunk_targets(request, chunks, &summed);
    if (targets.has_error()) co_return targets.error();
    if (targets->shards.size() != 1) {
      co_return Error(ErrorCode::illegal_operation,
                      fmt::format("{} must be sharded by {{files_id: 1}} or {{files_id: 1, n: 1}}", chunks));
    }
    const BsonDoc body = next_part(request, summed, state);
    ShardOutcome outcome = co_await call_shard(context, targets->shards.front(), targets->by(), body, options);
    if (outcome.error) co_return *std::move(outcome.error);
    const std::int64_t now = outcome.body()["numChunks"].to_int64().value_or(-1);
    if (now == summed) co_return passthrough_ok(std::move(outcome.reply));
    const Element next = outcome.body().find("md5state");
    if (now < summed || !std::in_range<std::int32_t>(now) || !next.exists() || next.raw.size() > state_bytes_max) {
      co_return Error(ErrorCode::internal_error, "a shard's part of a file's checksum makes no sense");
    }
    summed = static_cast<std::int32_t>(now);
    state = BsonWriter().append_element(next).finish();
  }
}

}  // namespace spillway::exec
