// Counters that serverStatus and /metrics show. Relaxed atomics: monotonic, exact in sum, never a synchronisation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "proxy/exec/counters/command_times.h"

namespace spillway::exec {

// A counter that many threads add to.
class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// A counter as serverStatus shows it: BSON has no unsigned integers.
inline std::int64_t as_long(std::uint64_t value) noexcept { return static_cast<std::int64_t>(value); }

// How many hosts a command was sent to: shardingStatistics.numHostsTargeted.
struct HostsTargeted {
  Counter all_shards, many_shards, one_shard, unsharded;
};

// Errors that clients got, by code. Any thread. The number of codes is bounded; further codes count as others.
class ErrorCounts {
 public:
  static constexpr std::size_t codes_max = 128;

  void add(std::int32_t code) noexcept {
    for (Slot& slot : slots_) {
      std::int64_t held = slot.code.load(std::memory_order_relaxed);
      if (held == free_slot && slot.code.compare_exchange_strong(held, code, std::memory_order_relaxed)) held = code;
      if (held != code) continue;
      slot.count.add();
      return;
    }
    others_.add();
  }
  // In the order of their first occurrence.
  std::vector<std::pair<std::int32_t, std::uint64_t>> by_code() const {
    std::vector<std::pair<std::int32_t, std::uint64_t>> all;
    for (const Slot& slot : slots_) {
      const std::int64_t code = slot.code.load(std::memory_order_relaxed);
      if (code == free_slot) break;
      all.emplace_back(static_cast<std::int32_t>(code), slot.count.value());
    }
    return all;
  }
  std::uint64_t others() const noexcept { return others_.value(); }

 private:
  static constexpr std::int64_t free_slot = INT64_MIN;
  struct Slot {
    std::atomic<std::int64_t> code{free_slot};
    Counter count;
  };
  std::array<Slot, codes_max> slots_;
  Counter others_;
};

struct Metrics {
  // opcounters: find counts as query only, getMore as getmore only; inserts count documents, updates and
  // deletes count operations; everything else is command.
  Counter op_insert, op_query, op_update, op_delete, op_getmore, op_command;
  struct Command {
    Counter total, failed;
  };
  std::array<Command, commands_max> commands;  // by CommandSpec::index
  Counter unknown_commands;
  Counter stale_refusals;  // of shards that know a newer table
  ErrorCounts errors;  // ok: 0 replies, of shards and of the proxy
  Counter bytes_in, bytes_out, requests;
  HostsTargeted find, insert, update, delete_, aggregate;
  Counter streamed_replies, streamed_bytes, stream_failures, stream_refusals;
  Counter spliced_bytes;  // of streamed_bytes
  // Clients that stopped reading: the rest of the reply moved away from its shard; or the connection was closed.
  Counter streams_moved, stalled_clients_closed;
  Counter uncompressed_replies;  // to compressed requests: streams, or no memory to compress them
  Counter cursors_more_than_one_batch;
  Counter cursors_killed;  // by clients: killCursors, and the ends of sessions
  Counter asserts_user;
  Counter killed_due_to_client_disconnect;  // operations
  Counter requests_refused;     // no memory, after a wait
  Counter cursors_refused;      // not opened, since memory was short
  Counter cursors_beyond_share;  // ended: one client's held over half of the memory
  // Batches fetched before a client asked for them: begun; taken by a getMore without a wait, or with one; ended
  // without being taken.
  Counter read_ahead_started, read_ahead_hits, read_ahead_waits, read_ahead_wasted;
  Counter senders_stopped;      // connections closed in the middle of a message
  Counter tls_handshakes, tls_handshakes_failed;
  // Logins by mechanism; the speculative ones, inside hello, count as both.
  struct Mechanism {
    Counter received, successful, speculative_received, speculative_successful;
  };
  enum MechanismIndex : std::size_t { scram_sha_1, scram_sha_256, x509, mechanism_count };
  std::array<Mechanism, mechanism_count> mechanisms;
  // Commits of transactions, by CommitPlan::Type; the last ones are those that other routers began.
  struct Commit {
    Counter initiated, successful;
  };
  static constexpr std::size_t recovered_commit = 5;
  std::array<Commit, recovered_commit + 1> commits;
  Counter participants_at_commit;
  Counter unauthenticated_commands, unauthorized_commands;  // refused
  // Connections: refused beyond net.maxIncomingConnections; closed for silence.
  Counter connections_rejected, idle_clients_closed, silent_clients_closed;
  Counter clients_timed_out;  // took or acknowledged no sent data for TCP_USER_TIMEOUT
  // Of traced commands: taken by the collector; no room for them, too many a second; sent in vain or refused by it.
  Counter spans_exported, spans_dropped, spans_failed;
  Counter hellos_with_backpressure, hellos_without_backpressure;  // first ones of connections
};

}  // namespace spillway::exec
