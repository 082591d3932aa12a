// Counters that serverStatus shows. Relaxed atomics: monotonic, exact in sum, never a synchronisation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace spillway::exec {

// A counter that many threads add to.
class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// How many hosts a command was sent to: shardingStatistics.numHostsTargeted.
struct HostsTargeted {
  Counter all_shards, many_shards, one_shard, unsharded;
};

inline constexpr std::size_t commands_max = 192;

struct Metrics {
  // opcounters: find counts as query only, getMore as getmore only; inserts count documents, updates and
  // deletes count operations; everything else is command.
  Counter op_insert, op_query, op_update, op_delete, op_getmore, op_command;
  struct Command {
    Counter total, failed;
  };
  std::array<Command, commands_max> commands;  // by CommandSpec::index
  Counter unknown_commands;
  Counter bytes_in, bytes_out, requests;
  HostsTargeted find, insert, update, delete_, aggregate;
  Counter streamed_replies, streamed_bytes, stream_failures, stream_refusals;
  Counter spliced_bytes;  // of streamed_bytes
  // Clients that stopped reading: what was left of the reply moved away from its shard; or they were closed.
  Counter streams_moved, stalled_clients_closed;
  Counter uncompressed_replies;  // to compressed requests: streams, or no memory to compress them
  Counter cursors_more_than_one_batch;
  Counter asserts_user;
  Counter killed_due_to_client_disconnect;  // operations
  Counter requests_refused;     // no memory, after a wait
  Counter cursors_refused;      // not opened: memory was critical
  Counter cursors_beyond_share;  // ended: one client's held over half of the memory
  // Batches fetched before a client asked for them: begun; taken by a getMore that did not wait for them,
  // or that did; ended without being taken.
  Counter read_ahead_started, read_ahead_hits, read_ahead_waits, read_ahead_wasted;
  Counter senders_stopped;      // connections closed in the middle of a message
  // Logins by mechanism; the speculative ones, inside hello, count as both.
  struct Mechanism {
    Counter received, successful, speculative_received, speculative_successful;
  };
  enum MechanismIndex : std::size_t { scram_sha_1, scram_sha_256, x509, mechanism_count };
  std::array<Mechanism, mechanism_count> mechanisms;
  Counter unauthenticated_commands, unauthorized_commands;  // refused
  Counter hellos_with_backpressure, hellos_without_backpressure;  // first ones of connections
};

}  // namespace spillway::exec
