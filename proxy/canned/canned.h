// A canned shard: a server on loopback that answers MongoDB's wire protocol from memory at the speed of the socket,
// so that a proxy can be measured and tested without a database.
//
// One thread and loop per shard; replies leave straight from the document images (documents.h), only
// key, number and CRC of each document are written. Its data and commands: canned_store.h. Large replies are sent in
// pieces, in turn, and small ones overtake them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "proxy/canned/canned_store.h"

namespace spillway::bench {

struct CannedOptions {
  std::string host = "127.0.0.1";  // an IPv4 address
  std::uint16_t port = 0;          // 0: any free one
  int index = 0;                   // this shard, of shard_count
  int shard_count = 1;
  int max_wire_version = 21;
  std::string set_name;  // empty: a standalone
  std::size_t pool_bytes = 2 << 20;
  std::size_t connections_max = 20'000;
};

class CannedShard {
 public:
  // Binds, listens and starts the shard's thread: it serves when this returns. nullptr and a reason
  // in `error` if the options are impossible or the address cannot be had. Any thread.
  static std::unique_ptr<CannedShard> start(const CannedOptions& options, std::string& error);

  ~CannedShard();  // stops
  CannedShard(const CannedShard&) = delete;
  CannedShard& operator=(const CannedShard&) = delete;

  std::uint16_t port() const noexcept { return port_; }
  std::string uri() const;

  // Closes every connection and ends the thread; returns when it has. Harmless when repeated, but
  // not from two threads at once.
  void stop();

  // Counters of the running shard, for tests. Any thread.
  std::uint64_t open_cursors() const noexcept { return open_cursors_.load(); }
  std::uint64_t open_connections() const noexcept { return open_connections_.load(); }
  std::uint64_t requests() const noexcept { return requests_.load(); }

 private:
  class Server;
  CannedShard();

  std::string host_;
  std::uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::atomic<std::uint64_t> open_cursors_{0};
  std::atomic<std::uint64_t> open_connections_{0};
  std::atomic<std::uint64_t> requests_{0};
};

}  // namespace spillway::bench
