// A client that passes from one process to another, between two of its requests: the process that replaces this one
// takes all that do not speak TLS, and sends back what concerns cursors and transactions of the process before.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "allocator/budget.h"
#include "cursor/bson_writer.h"
#include "proxy/base/file_descriptor.h"

namespace spillway::server {

inline constexpr std::size_t moved_state_bytes_max = 12 * 1024;  // fits into a message (handover_channel.h)

struct MovedClient {
  BsonDoc state;  // as ClientConnection writes and reads it
  FileDescriptor socket;
  Reservation room;      // of the connection, until it has left
  bool relayed = false;  // the socket's other end is a connection of the other process: it does not move again
};

// The process that this one replaces, as long as it holds cursors or transactions.
struct OlderProcess {
  std::atomic<bool> lives{true};
  std::function<void(MovedClient)> serve;  // any thread: it serves this client, which is relayed
};

}  // namespace spillway::server
