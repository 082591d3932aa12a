// Gateway: how one worker reaches all shards. Chooses a host, takes a pooled connection, sends one command, returns
// its reply.
//
// One per worker; every method is for that worker's thread. Replies of up to limits::reply_complete_bytes_max are
// complete when call() returns; larger ones are complete, too, unless the caller asked for a stream: then the rest is
// still in the shard connection's socket.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/buffer.h"
#include "allocator/limits.h"
#include "allocator/memory_queue.h"
#include "cursor/bson_writer.h"
#include "cursor/host_name.h"
#include "proxy/base/latency.h"
#include "proxy/base/loop.h"
#include "proxy/base/transport.h"
#include "proxy/shard/read_preference.h"

namespace spillway {
class Pump;        // base/pump.h
class TlsContext;  // base/tls_context.h
}
namespace spillway::auth {
class ServiceLogin;  // auth/service_login.h
}

namespace spillway::auth {
struct User;
}  // namespace spillway::auth

namespace spillway::shard {

class Connection;  // connection.h
class Pool;        // pool.h
class Interrupt;   // interrupt.h
class ShardTime;   // shard_time.h
class SharedShard;  // shared_shard.h
class ShardList;    // shard_list.h

// A shard as the configuration names it. The index is its position in the routing snapshot.
struct ShardAddress {
  std::string name;
  std::string uri;  // mongodb://…
};

// A host of a shard. Cursors stay on the host that opened them.
struct HostAddress {
  HostName host;
  std::uint16_t port = 0;
  bool operator==(const HostAddress&) const = default;
  std::string text() const;  // "host:port"
};

// A command on its way out: the OP_MSG sections, without the header and flags, in a few pieces: the kind of a body, the
// body, and the sequences. Views: the caller keeps the bytes until call() returned.
struct Command {
  std::uint32_t flags = 0;  // OP_MSG flag bits (no checksum; never moreToCome)
  std::array<iovec, 2 + limits::document_sequences_max> sections{};  // kind byte included in the bytes
  std::size_t section_count = 0;
  // Elements that are appended to the body as it leaves, wherever it stands in the sections: see elements_of(). Each
  // attempt appends them once. Empty: none. They must not repeat a field of the body.
  Bytes suffix;
  std::size_t bytes() const noexcept;  // of all this

  // Where the body document stands, the pieces seen as one. nullopt: nowhere.
  struct BodyPlace {
    std::size_t offset, size;
  };
  std::optional<BodyPlace> find_body() const noexcept;
  // The body's first field: the command's name, cut to `bytes_max`.
  std::string name(std::size_t bytes_max) const;

  // The sections of a body without sequences: kind byte 0 and the document.
  static Command of_body(DocView body) noexcept;
  // The sections of a whole OP_MSG as it arrived: everything after header and flags, checksum cut
  // off.
  static Command of_sections(Bytes sections) noexcept;
};

// A document without its length and its end, as Command::suffix takes it.
inline Bytes elements_of(DocView document) noexcept { return document.bytes().subspan(4, document.size() - 5); }

// Which commands may be sent again after a failure, at most four times in all:
//
//                                                                     none      not_idempotent  idempotent
//   not sent as a whole                                               retry     retry           retry
//   refused by a host that is no primary (10107, 13435, 13436)        no        retry           retry
//   stepped down or shut down, perhaps in the middle (91, 189,
//     11600, 11602); connection broken after sending                  no        no              retry
//   6, 7, 89, 262, 317, 9001 in the reply                             pass on   pass on         retry, then pass on
//   a state change in writeErrors or writeConcernError                relabel   relabel         retry
//   the deadline, our memory, a broken protocol                       no        no              no
enum class RetryPolicy : std::uint8_t {
  none,            // once
  not_idempotent,  // only when the shard surely did nothing of it: not sent as a whole, or refused by a host that was
                   // no primary before it began
  idempotent,  // reads, and writes with a txnNumber
};

// What an operation holds of replies that it needs at the same time. Another reply may never fit beside them.
struct HeldReplies {
  std::uint64_t of_budget = 0, of_reserve = 0;
  bool least = false;  // one document of each shard was asked for: no smaller replies would do

  // Where a reply's memory is counted; null: nowhere, a small one.
  std::uint64_t* part_of(const Buffer& reply, const MemoryBudget& budget) noexcept {
    if (reply.budget() == &budget) return &of_budget;
    return budget.queue() != nullptr && budget.queue()->is_large_reserve(reply.budget()) ? &of_reserve : nullptr;
  }
  bool leave_room(const MemoryBudget& budget, std::size_t bytes) const noexcept;
};

// Memory for a reply.
struct ReplyRoom {
  Reservation paid;                      // pays for it, if that is enough
  MemoryQueue::Holder holder = nullptr;  // if it has to wait for memory
  HeldReplies* held = nullptr;           // of those that are needed with it; outlives the call
};

// What a connection is wanted for.
enum class Use : std::uint8_t {
  point,
  bulk,     // a getMore or scan: leaves connections for point operations
  waiting,  // a getMore that waits for new documents: leaves connections for the other getMores, too
};

struct CallOptions {
  const ReadPreference* read_preference = nullptr;  // null: primary
  std::optional<HostAddress> host;                  // this host only: getMore, killCursors
  RetryPolicy retry = RetryPolicy::none;
  TimePoint deadline = time_point_never;  // maxTimeMS; a long query alone is never cut
  MemoryBudget* budget = nullptr;         // pays for the reply. REQUIRED
  ReplyRoom* room = nullptr;              // outlives the call
  Interrupt* interrupt = nullptr;  // may end the call; outlives it
  Interrupt* until_sent = nullptr;  // without `interrupt`: may end the call as long as nothing was sent; outlives it
  ShardTime* time = nullptr;       // gets the time that the call waited for its shard; outlives it
  const auth::User* user = nullptr;  // of a cluster's client: for its servers' audit logs and currentOp; outlives it
  bool stream = false;  // a reply over reply_complete_bytes_max may come as a stream
  Use use = Use::point;
  // Over a connection of its own pool, which says that it is a cluster's own server's (internalClient). REQUIRES that
  // the command names a readConcern and, where it may have one, a writeConcern: such connections have no defaults.
  bool as_router = false;
};

// A connection on loan. Destroying it returns the connection to its pool if the last reply was read
// to its end, and closes it otherwise.
class Lease {
 public:
  Lease() noexcept = default;
  Lease(Pool* pool, std::unique_ptr<Connection> connection) noexcept;
  Lease(Lease&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), connection_(std::exchange(other.connection_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      release();
      pool_ = std::exchange(other.pool_, nullptr);
      connection_ = std::exchange(other.connection_, nullptr);
    }
    return *this;
  }
  // Most are empty: they move with each reply.
  ~Lease() {
    if (connection_ != nullptr) release();
  }
  explicit operator bool() const noexcept { return connection_ != nullptr; }
  Connection& operator*() const noexcept { return *connection_; }
  Connection* operator->() const noexcept { return connection_; }
  void release() noexcept;
  // Its reply proved to be large: counts as a bulk request until it ends.
  void mark_bulk() noexcept;

 private:
  Pool* pool_ = nullptr;
  Connection* connection_ = nullptr;  // owned
};

// A shard's reply. `bytes` starts at the OP_MSG header; compressed replies arrive decompressed.
struct Reply {
  Buffer bytes;                   // the whole message, or its first bytes if streaming()
  std::size_t message_bytes = 0;  // the message's length
  HostAddress host;
  Lease lease;  // only while streaming: the rest of the message is read through it
  // Where the values of operationTime and $clusterTime stand in `bytes`; 0: there is none, or the reply streams.
  std::uint32_t operation_time_at = 0;
  std::uint32_t cluster_time_at = 0;
  // Likewise its only field `cursor`, if that is a document.
  std::uint32_t cursor_at = 0;
  bool says_ok = false;  // as wire::reply_is_ok() tells it; false, too, if the reply streams
  bool plain = false;    // it has no fields but `cursor` and `ok`

  bool streaming() const noexcept { return bytes.size() < message_bytes; }
  // The reply document. REQUIRES !streaming().
  DocView body() const noexcept;
  // As the shard sent them: a timestamp (eoo: none), a document (empty: none). Valid while `bytes` stay as they are:
  // read them before the fields are stripped for the client.
  ValueView operation_time() const noexcept;
  DocView cluster_time() const noexcept;
  DocView cursor() const noexcept { return DocView::trusted(bytes.data() + cursor_at); }  // REQUIRES cursor_at != 0
};

// The state of a shard as its worker knows it.
struct HostState {
  HostAddress address;
  bool known = false;    // answered its last hello
  bool primary = false;  // writes go here (a standalone counts)
  bool secondary = false;
  std::int64_t ping_ms = 0;
  std::size_t in_use = 0, available = 0, created = 0;
  std::size_t waiting = 0;          // requests in line for a connection
  std::size_t connections_max = 0;  // of this worker
};
// What a shard supports.
struct ShardCapabilities {
  bool replica_set = false;      // every known host is a replica-set member
  bool offers_sort_key = false;  // a mongod: projections may ask for {$meta: "sortKey"}
  bool ferretdb = false;         // no 16 MB cap on batches, 250 documents when batchSize is missing
  // The lowest of its hosts, each as last known: an outage changes nothing. 0 before the first answer.
  std::int32_t max_wire_version = 0;
};
struct ShardState : ShardCapabilities {
  std::string name;
  std::string set_name;  // empty: standalone
  bool retired = false;  // no shard any more (retire_shard()): nothing but its name is set
  std::vector<HostState> hosts;

  bool any_known() const noexcept {
    return std::any_of(hosts.begin(), hosts.end(), [](const HostState& host) { return host.known; });
  }
};

// The credentials of a shard's connections, and the means to verify the shard. Shared by the workers.
struct ShardCredentials {
  std::shared_ptr<TlsContext> tls;                  // null: plain text
  std::shared_ptr<const auth::ServiceLogin> login;  // null: without logging in
};

// Statistics of calls and connections to a shard. The worker's thread adds, any thread reads.
struct CallCounts {
  // Of answered commands: from the last byte sent to the first byte of the reply.
  LatencyHistogram round_trips;
  OwnCounter failed;   // calls without a reply
  OwnCounter retries;  // attempts after a call's first
  OwnCounter opened;   // connections, also to hosts that are members no more
};

struct GatewayOptions {
  std::vector<ShardAddress> shards;
  std::int64_t connect_timeout_ms = 10'000;
  std::int64_t heartbeat_ms = 10'000;
  std::int64_t expedited_heartbeat_ms = 500;  // while a request waits, and while a host is down
  std::int64_t local_threshold_ms = 15;
  std::size_t pool_min = 1;
  std::size_t pool_max = 1'000;
  std::size_t pool_connecting_max = 2;
  std::int64_t pool_idle_ms = 300'000;
  std::string compressors;  // net.shardCompression; empty: none
  std::string application_name = "spillway";
  // For shards whose connection string names no user; null: no login.
  std::shared_ptr<const auth::ServiceLogin> login = nullptr;
  std::vector<ShardCredentials> credentials;  // of every shard; empty: the gateway reads them from valid files
};

// In the shards' order: `login` and the credentials of their connection strings. Reads files: for start-up and
// reloads, on any thread. InvalidSSLConfiguration(140), naming the shard. REQUIRES connection strings that were
// checked.
Result<std::vector<ShardCredentials>> read_credentials(const GatewayOptions& options);

class Gateway {
 public:
  virtual ~Gateway() = default;

  // Sends one command and reads its reply. On failure the error is one a client may see:
  // HostUnreachable(6), NetworkTimeout(89), FailedToSatisfyReadPreference(133),
  // MaxTimeMSExpired(50), … State-change errors of the shard (91, 189, 10107, 11600, 11602, 13435,
  // 13436) never leave call(), nor inside a reply's writeErrors or writeConcernError: after the last attempt they
  // become HostUnreachable(6). A reply with ok: 0 and another code is a success here: the caller reads it.
  virtual Task<Result<Reply>> call(std::uint16_t shard, Command command, CallOptions options) = 0;

  // The state of every shard, in order, also of retired ones. Valid until the loop runs again.
  virtual const std::vector<ShardState>& states() const = 0;
  // What a shard can do, without a walk over the hosts. Valid as long.
  virtual const ShardCapabilities& capabilities(std::uint16_t shard) const { return states()[shard]; }
  // Any thread, while the gateway lives. Null: this one does not count.
  virtual const CallCounts* call_counts(std::size_t shard) const noexcept {
    static_cast<void>(shard);
    return nullptr;
  }

  // A set of shards that changes, as a cluster's does. For the gateway that filled in the SharedShards, on its thread;
  // the others follow. An index is never given to another shard.
  //
  // Adds a shard behind the last one; its index. When this has returned, every worker's gateway knows the shard, so
  // that a table that names it may be published. Reads no files. Errors: as of parse_connection_string();
  // IllegalOperation(20) if there are too many.
  virtual Result<std::uint16_t> add_shard(ShardAddress address, ShardCredentials credentials);
  // From now on, and in the other workers as soon as their loops get to it, calls to it fail with ShardNotFound(70),
  // those that wait for a host or a connection, too. What was sent goes on. Its monitors stop, its connections close
  // as they fall idle. A retired shard may be retired again.
  virtual void retire_shard(std::uint16_t shard) { static_cast<void>(shard); }

  // Waits until every shard answered once, or the deadline. For start-up.
  virtual Task<bool> wait_until_known(TimePoint deadline) = 0;

  // Connections that open from now on use these (read_credentials()). Open connections stay, unless their user
  // changes: then they end with the command under way. Shards that were added get the last one's.
  virtual void use_credentials(const std::vector<ShardCredentials>&) {}

  // Housekeeping, every 250 ms: trims idle connections, keeps the minimum.
  virtual void tick(TimePoint now) = 0;
  // Ends the commands that shards are working on: their calls fail with HostUnreachable(6) and are
  // not sent again; interrupted calls no longer wait for a host or a connection. For a shutdown whose grace period
  // has ended; calls may be made afterwards.
  virtual void abort_calls() {}
  // Stops its monitors, closes idle connections; leases end on their own. co_await before the loop
  // stops.
  virtual Task<void> shut_down() = 0;
};

// Shared by the gateways of a process. The gateway that gets it empty fills it in: its loop has the monitors, and the
// others rely on it while they serve. They may shut down in any order; no loop ends before all have.
class SharedShards {
 public:
  SharedShards();
  const std::shared_ptr<ShardList>& list() const noexcept { return list_; }

 private:
  std::shared_ptr<ShardList> list_;
};

// `link_budget` pays for handshakes and the monitors' questions (handshake.h), `budget` for larger replies to them
// and for commands that are compressed. All outlive the gateway.
std::unique_ptr<Gateway> make_gateway(Loop& loop, Pump& pump, Network& network, MemoryBudget& budget,
                                      MemoryBudget& link_budget, GatewayOptions options, SharedShards& shared);

}  // namespace spillway::shard
