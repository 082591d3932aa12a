#include "proxy/exec/cursors/compressed_batches.h"

#include <algorithm>

#include "proxy/exec/cursors/take_memory.h"

namespace spillway::exec {

std::int64_t compressed_batch_documents(double mean_document_bytes) noexcept {
  if (mean_document_bytes <= 0) return 0;
  const double documents =
      static_cast<double>(compressed_batch_bytes) / std::max(mean_document_bytes, 1.0);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(documents));
}

std::size_t batch_bytes_max(const Request& request, bool sized) noexcept {
  if (sized) return limits::document_bytes_max;
  return request.compressed ? compressed_batch_bytes : merged_batch_bytes;
}

bool is_read_to_compress(const Context& context, const Request& request,
                         const shard::Reply& reply) noexcept {
  constexpr std::size_t copies = 3;  // the shard's reply, the same in the router's envelope, the compressed one
  return request.compressed && reply.message_bytes <= 2 * compressed_batch_bytes &&
         !is_scarce(context, copies * reply.message_bytes);
}

}  // namespace spillway::exec
