// Ends cursors and transactions with a connection that came through a load balancer: drivers pin them to it, and can
// continue neither over another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"

namespace spillway::exec {

// The transactions that a connection has begun. Belongs to it.
class BegunTransactions {
 public:
  // Call for each request that starts one. Forgets those that have ended meanwhile: the table's size bounds this
  // one's.
  void note(const TransactionTable& table, const Request& request);
  // Aborts those that are still open: in the table at once, on their shards in the background.
  void abort(Context& context);

  // For the connection's other end in another process: as a field of its state; those that are open in the table (null:
  // all).
  void append_to(BsonWriter& state, const TransactionTable* table) const;
  void take_from(DocView state);

 private:
  absl::flat_hash_map<std::string, std::int64_t> numbers_;  // by lsid
  std::size_t looked_at_next_ = 64;
};

// Kills the cursors that the connection used last, aborts its transactions. Call when its last request has ended.
void end_with_connection(Context& context, std::int64_t connection_id, BegunTransactions& begun);

}  // namespace spillway::exec
