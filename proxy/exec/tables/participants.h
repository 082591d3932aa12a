// The shards that take part in a transaction, and what follows from that for its statements and its commit. Rules only:
// no I/O.
#pragma once

#include <absl/container/inlined_vector.h>

#include <cstdint>
#include <optional>

#include "proxy/catalog/chunk_map.h"

namespace spillway::exec {

// How a transaction is committed.
struct CommitPlan {
  enum class Type : std::uint8_t {
    no_shards,           // nothing was sent: it is committed
    single_shard,        // commitTransaction to `last`
    read_only,           // … to `first`: all of them
    single_write_shard,  // … to `first`, and to the writer `last` if they have committed; empty: they have
    two_phase            // `last` coordinates the commit of `first`: all of them
  };
  Type type = Type::no_shards;
  catalog::ShardSet first;
  catalog::ShardIndex last = 0;
};

class Participants {
 public:
  // What a shard must be told with a command.
  struct Contact {
    bool first = false;        // startTransaction, readConcern
    bool coordinator = false;  // coordinator
  };

  void begin_statement() noexcept { ++statement_; }
  // A command of the present statement goes to this shard.
  Contact contact(catalog::ShardIndex shard);
  // The shard has executed one. `read_only`: it has written nothing so far.
  void note_answer(catalog::ShardIndex shard, bool read_only);
  // A shard says of another one that it has brought in.
  void add(catalog::ShardIndex shard, bool read_only);
  // The same, with an error: the shard still takes part with what the present statement has seen.
  void add_with_error(catalog::ShardIndex shard);

  // May the present statement be sent again? Not if a shard took part before: it has seen other statements. Nor if a
  // shard has brought in others: it would go on with their time of reading.
  bool may_restart() const noexcept;
  // Forgets the shards that the present statement has brought in: they must abort before it is sent again.
  catalog::ShardSet restart();

  bool empty() const noexcept { return all_.empty(); }
  std::size_t size() const noexcept { return all_.size(); }
  catalog::ShardSet shards() const;
  bool contains(catalog::ShardIndex shard) const noexcept { return find(shard) != nullptr; }
  catalog::ShardIndex coordinator() const noexcept { return all_.front().shard; }  // REQUIRES: not empty
  // The first that has written: it knows the outcome.
  std::optional<catalog::ShardIndex> recovery_shard() const noexcept { return recovery_shard_; }

  // A shard whose statement was never answered with success: then nothing may be committed.
  std::optional<catalog::ShardIndex> unanswered() const noexcept;
  // `one_writer_last`: one writer needs no two phases. The first call decides: a commit that is sent again goes the
  // same way, whatever versions its shards have by then.
  void choose_commit(bool one_writer_last) noexcept {
    if (!one_writer_last_) one_writer_last_ = one_writer_last;
  }
  CommitPlan plan_commit() const;  // REQUIRES choose_commit()
  // The readers of a commit whose writer comes last. A commit that is sent again must not ask them: their next
  // primaries know nothing of what has only read.
  void note_readers_committed() noexcept { readers_committed_ = true; }
  bool readers_committed() const noexcept { return readers_committed_; }

 private:
  enum class ReadOnly : std::uint8_t { unknown, yes, no };
  struct Participant {
    catalog::ShardIndex shard = 0;
    ReadOnly read_only = ReadOnly::unknown;
    std::uint32_t created_at = 0, used_at = 0;  // statements
  };
  const Participant* find(catalog::ShardIndex shard) const noexcept;
  Participant* find(catalog::ShardIndex shard) noexcept {
    return const_cast<Participant*>(static_cast<const Participants*>(this)->find(shard));
  }

  absl::InlinedVector<Participant, 2> all_;  // in the order of their first contacts
  std::optional<catalog::ShardIndex> recovery_shard_;
  std::uint32_t statement_ = 0;
  std::uint32_t added_with_error_ = 0;  // the statement; 0: none
  bool readers_committed_ = false;
  std::optional<bool> one_writer_last_;
};

}  // namespace spillway::exec
