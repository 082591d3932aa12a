#include "proxy/exec/cursor_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "allocator/memory_layer.h"
#include "proxy/base/memory_wait.h"
#include "proxy/exec/forward.h"
#include "proxy/exec/parking.h"
#include "proxy/exec/take_memory.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::exec {

namespace {

// A batch that no size was asked for and that is this large goes out without waiting for more.
constexpr std::size_t unsized_batch_bytes_min = 256 * limits::kib;

// What a shard is asked for at once when the client named no batch size.
constexpr double sorted_fetch_bytes = 1.0 * limits::mib;
constexpr double unsorted_fetch_bytes = 4.0 * limits::mib;
// Where memory is short. (None changes what a client sees: its batches are filled by several.)
constexpr double scarce_fetch_bytes = 0.25 * limits::mib;
constexpr double fetch_bytes_least = 32.0 * limits::kib;
constexpr double passthrough_fetch_bytes = 15.0 * limits::mib;
constexpr std::int64_t fetch_documents_max = 100'000;

// How long an empty batch waits for room.
constexpr Duration room_wait_max = std::chrono::seconds(10);

Error malformed_reply(std::string_view what) {
  return Error(ErrorCode::internal_error, fmt::format("a shard's cursor reply is malformed: {}", what));
}

// Copies a document without some dotted paths; arrays on the way are followed.
void copy_without(BsonWriter& out, DocView document, const std::vector<std::string_view>& paths);

void copy_value_without(BsonWriter& out, const Element& field, const std::vector<std::string_view>& below) {
  if (field.is_document()) {
    out.begin_document(field.name);
    copy_without(out, field.as_document(), below);
    out.end();
  } else if (field.is_array()) {
    out.begin_array(field.name);
    for (auto at = field.as_document().begin(); !at.done(); ++at) {
      if (at->is_document() || at->is_array()) {
        copy_value_without(out, *at, below);
      } else {
        out.append_element(*at);
      }
    }
    out.end();
  } else {
    out.append_element(field);
  }
}

void copy_without(BsonWriter& out, DocView document, const std::vector<std::string_view>& paths) {
  for (auto at = document.begin(); !at.done(); ++at) {
    bool drop = false;
    std::vector<std::string_view> below;
    for (const std::string_view path : paths) {
      const std::size_t dot = path.find('.');
      if (path.substr(0, dot) != at->name) continue;
      if (dot == std::string_view::npos) {
        drop = true;
      } else {
        below.push_back(path.substr(dot + 1));
      }
    }
    if (drop) continue;
    if (below.empty()) {
      out.append_element(*at);
    } else {
      copy_value_without(out, *at, below);
    }
  }
}

Result<void> append_document(ClusterCursor& cursor, BatchBuilder& out, DocView document) {
  if (cursor.strip_fields.empty()) return out.append(document);
  const std::vector<std::string_view> paths(cursor.strip_fields.begin(), cursor.strip_fields.end());
  BsonWriter writer;
  copy_without(writer, document, paths);
  const BsonDoc stripped = std::move(writer).finish();
  return out.append(stripped);
}

void pop_document(RemoteCursor& remote) {
  remote.batches.front().pop();
  remote.head_keyed = false;
  while (!remote.batches.empty() && !remote.batches.front().peek() && !remote.batches.front().malformed()) {
    remote.batches.erase(remote.batches.begin());
  }
}

// Pays for the key that was just made. False: there is no room, and the key is gone.
bool pay_for_key(RemoteCursor& remote, MemoryBudget& budget, std::size_t& needed) {
  needed = remote.key_bytes();
  const std::uint64_t paid = remote.key_room.bytes();
  if (needed <= paid) return true;
  if (paid > 0 && remote.key_room.try_grow(needed - paid)) return true;
  remote.key_room.release();
  if (auto room = reserve_now(budget, needed)) {
    remote.key_room = *std::move(room);
    return true;
  }
  remote.drop_key();
  return false;
}

Result<void> key_head(const ClusterCursor& cursor, RemoteCursor& remote) {
  if (remote.head_keyed) return {};
  remote.head_key.clear();
  const DocView document = *remote.front()->peek();
  Result<void> keyed;
  if (cursor.sort_keys == SortKeySource::sort_key_field) {
    const ValueView key = document["$sortKey"];
    if (!key.exists()) {
      return Error(ErrorCode::internal_error, "a shard's document lacks $sortKey");
    }
    keyed = cursor.sort->append_key_from_sort_key(remote.head_key, key);
  } else {
    keyed = cursor.sort->append_key(remote.head_key, document);
  }
  if (keyed.has_error()) return keyed.error();
  remote.head_keyed = true;
  return {};
}

// What the cursor's remotes offer now.
struct NextInput {
  enum class Kind { document, fetch, key_room, end } kind = Kind::end;
  RemoteCursor* remote = nullptr;
  std::size_t bytes = 0;  // key_room: what its next document's key needs, and is not there
};

Result<NextInput> next_sorted(ClusterCursor& cursor, MemoryBudget& budget) {
  RemoteCursor* best = nullptr;
  for (RemoteCursor& remote : cursor.remotes) {
    if (!remote.has_document()) {
      if (remote.id != 0 || remote.must_unpark()) return NextInput{.kind = NextInput::Kind::fetch};
      continue;
    }
    if (auto keyed = key_head(cursor, remote); keyed.has_error()) return keyed.error();
    std::size_t needed = 0;
    if (!pay_for_key(remote, budget, needed)) return NextInput{NextInput::Kind::key_room, &remote, needed};
    if (best == nullptr || remote.head_key < best->head_key) best = &remote;
  }
  if (best == nullptr) return NextInput{};
  return NextInput{.kind = NextInput::Kind::document, .remote = best};
}

NextInput next_unsorted(ClusterCursor& cursor) {
  bool open = false;
  const std::size_t n = cursor.remotes.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = (cursor.next_remote + i) % n;
    RemoteCursor& remote = cursor.remotes[at];
    if (remote.has_document()) {
      cursor.next_remote = at;
      return {.kind = NextInput::Kind::document, .remote = &remote};
    }
    open = open || remote.id != 0 || remote.must_unpark();
  }
  return {.kind = open ? NextInput::Kind::fetch : NextInput::Kind::end};
}

Result<NextInput> next_input(ClusterCursor& cursor, MemoryBudget& budget) {
  for (const RemoteCursor& remote : cursor.remotes) {
    if (remote.front() != nullptr && remote.front()->malformed()) return malformed_reply("the batch");
  }
  if (cursor.limit_remaining && *cursor.limit_remaining <= 0) return NextInput{};
  if (cursor.sort_keys != SortKeySource::none) return next_sorted(cursor, budget);
  return next_unsorted(cursor);
}

bool is_memory_refusal(const Error& error) noexcept {
  return error.is(ErrorCode::ingress_request_rate_limit_exceeded);
}

std::function<bool()> not_interrupted(const FillLimits& limits) {
  return [interrupt = limits.interrupt] { return interrupt == nullptr || interrupt->requested() == nullptr; };
}

Error refusal(const FillLimits& limits, const MemoryBudget& budget, std::size_t bytes, std::string_view what) {
  if (limits.interrupt != nullptr && limits.interrupt->requested() != nullptr) return *limits.interrupt->requested();
  if (Clock::now() >= limits.deadline) {
    return Error(ErrorCode::max_time_ms_expired, "operation exceeded time limit");
  }
  return memory_refused(budget, bytes, what);
}

// There is no room for the next document of a batch: an empty batch waits for it, a longer one ends. True: go on.
Task<Result<bool>> room_or_end(Context& context, const FillLimits& limits, BatchBuilder& out, std::size_t bytes) {
  if (out.count() > 0 && !limits.whole) co_return false;
  const std::size_t room = BatchBuilder::room_for(bytes);
  MemoryBudget& budget = context.shared.reply_memory;
  const std::function<bool()> wanted = not_interrupted(limits);
  auto waiting =
      wait_for_buffer(context.loop, budget, room, std::min(limits.deadline, Clock::now() + room_wait_max), wanted);
  auto chunk = co_await waiting;
  if (!chunk || !wanted()) co_return refusal(limits, budget, room, "a document of the reply");
  out.add_room(*std::move(chunk));
  co_return true;
}

// The same for a document's sort key.
Task<Result<bool>> key_room_or_end(Context& context, const FillLimits& limits, const BatchBuilder& out,
                                   const NextInput& input) {
  if (out.count() > 0 && !limits.whole) co_return false;
  MemoryBudget& budget = context.shared.cursor_memory;
  const std::function<bool()> wanted = not_interrupted(limits);
  auto waiting = wait_for_reservation(context.loop, budget, input.bytes,
                                      std::min(limits.deadline, Clock::now() + room_wait_max), wanted);
  auto room = co_await waiting;
  if (!room || !wanted()) co_return refusal(limits, budget, input.bytes, "a document's sort key");
  input.remote->key_room = *std::move(room);
  co_return true;
}

// Takes one document out of the cursor's stage, if it has one now.
Result<bool> drain_stage(ClusterCursor& cursor, BatchBuilder& out, bool& full) {
  if (!cursor.stashed) {
    auto next = cursor.stage->next();
    if (next.has_error()) return next.error();
    cursor.stashed = *std::move(next);
  }
  if (!cursor.stashed) return false;
  if (!out.fits(cursor.stashed->size())) {
    full = true;
    return true;
  }
  if (auto appended = out.append(*cursor.stashed); appended.has_error()) return appended.error();
  cursor.stashed.reset();
  return true;
}

}  // namespace

std::int64_t steady_ns() noexcept { return Clock::now().time_since_epoch().count(); }

BsonDoc remote_get_more(const ClusterCursor& cursor, const RemoteCursor& remote, std::int64_t batch_size,
                        std::optional<std::int64_t> max_time_ms) {
  BsonWriter command;
  command.append("getMore", remote.id);
  command.append("collection", cursor.collection);
  if (batch_size > 0) command.append("batchSize", batch_size);
  if (max_time_ms) command.append("maxTimeMS", *max_time_ms);
  if (!cursor.session.lsid.empty()) command.append("lsid", DocView::trusted(cursor.session.lsid.data()));
  if (cursor.session.txn_number) command.append("txnNumber", *cursor.session.txn_number);
  if (cursor.session.in_transaction) command.append("autocommit", false);
  if (!cursor.comment.empty()) command.append_elements(DocView::trusted(cursor.comment.data()));
  command.append("$db", cursor.database);
  return std::move(command).finish();
}

std::int64_t documents_in_window(const Context& context, double mean_document_bytes, bool sorted) {
  const bool scarce = is_scarce(context);
  double window = scarce ? scarce_fetch_bytes : sorted ? sorted_fetch_bytes : unsorted_fetch_bytes;
  // A few dozen cursors over a few shards are to fit into what there is.
  const auto limit = static_cast<double>(context.shared.memory.usage().limit_bytes);
  if (limit > 0) window = std::min(window, std::max(limit / (scarce ? 256 : 64), fetch_bytes_least));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(window / std::max(mean_document_bytes, 1.0)));
}

std::int64_t remote_batch_size(const Context& context, const ClusterCursor& cursor, std::uint16_t shard,
                               bool passes) {
  const bool caps_by_bytes = context.gateway.states()[shard].offers_sort_key;  // a mongod
  // A mongod fills 16 MiB by itself and stops there; other shards need a number.
  if (caps_by_bytes && passes) return cursor.batch_size;
  const std::int64_t wanted = cursor.batch_size > 0 ? cursor.batch_size : fetch_documents_max;
  if (cursor.mean_document_bytes <= 0) {
    if (!passes && is_scarce(context)) return 1;
    return cursor.batch_size > 0 ? cursor.batch_size : limits::first_batch_documents_default;
  }
  const std::int64_t fitting =
      passes ? static_cast<std::int64_t>(passthrough_fetch_bytes / std::max(cursor.mean_document_bytes, 1.0))
             : documents_in_window(context, cursor.mean_document_bytes, cursor.sort_keys != SortKeySource::none);
  return std::clamp<std::int64_t>(fitting, 1, wanted);
}

Result<void> take_reply(ClusterCursor& cursor, RemoteCursor& remote, shard::Reply reply) {
  auto parsed = wire::parse_cursor_reply(reply.body());
  if (parsed.has_error()) return parsed.error();
  remote.id = parsed->id;
  remote.host = reply.host.host;
  remote.port = reply.host.port;
  const std::size_t documents = parsed->batch.count();
  if (documents > 0) {
    const double mean = static_cast<double>(parsed->batch.size()) / static_cast<double>(documents);
    cursor.mean_document_bytes =
        cursor.mean_document_bytes > 0 ? (cursor.mean_document_bytes + mean) / 2 : mean;
    const DocView batch = parsed->batch;
    remote.batches.emplace_back(std::move(reply.bytes), batch);
  }
  return {};
}

namespace {

Task<void> unpark_into(Context* context, RemoteCursor* remote, shard::Interrupt* interrupt,
                       std::optional<Error>* failed) {
  auto unparking = unpark(*context, *remote, interrupt);
  auto unparked = co_await unparking;
  if (unparked.has_error()) *failed = unparked.error();
}

}  // namespace

namespace {

// `ahead`: more may come behind what is there already.
Task<Result<void>> fetch(Context& context, ClusterCursor& cursor, TimePoint deadline,
                         shard::Interrupt* interrupt, bool* broken, bool ahead) {
  TaskGroup unparking;
  std::optional<Error> failed;
  std::vector<BsonDoc> bodies;
  std::vector<ShardCommand> commands;
  std::vector<std::size_t> remotes;
  bodies.reserve(cursor.remotes.size());
  // Where memory is short, nobody waits for room while he holds what another has waited for; and room is taken before
  // a batch is asked for, which is lost if it finds none.
  const bool one_at_a_time = !ahead && is_scarce(context);
  Buffer room;
  bool asked = false;
  for (std::size_t n = 0; n < cursor.remotes.size(); ++n) {
    const std::size_t i = (cursor.next_remote + n) % cursor.remotes.size();
    RemoteCursor& remote = cursor.remotes[i];
    if (one_at_a_time && asked) break;
    if (remote.must_unpark() && !ahead) {
      asked = true;
      unparking.start(unpark_into(&context, &remote, interrupt, &failed));
      continue;
    }
    if (remote.id == 0 || !remote.parked.empty()) continue;
    if (ahead ? remote.batches.size() >= cursor.ahead_depth : remote.has_document()) continue;
    asked = true;
    const bool as_before = ahead && cursor.from_one_shard;
    const std::int64_t size = as_before ? cursor.ahead_batch_size : remote_batch_size(context, cursor, remote.shard, false);
    bodies.push_back(remote_get_more(cursor, remote, size, {}));
    commands.push_back({remote.shard, shard::Command::of_body(bodies.back()),
                        shard::HostAddress{remote.host, remote.port}});
    remotes.push_back(i);
    if (one_at_a_time) {
      const double expected = 1.1 * cursor.mean_document_bytes * static_cast<double>(std::max<std::int64_t>(size, 1));
      auto taking = take_buffer_for(context, interrupt, deadline, context.shared.cursor_memory,
                                    cursor.mean_document_bytes > 0 ? static_cast<std::size_t>(expected) + 4096
                                                                   : limits::reply_complete_bytes_max,
                                    "a shard's batch");
      auto taken = co_await taking;
      if (taken.has_error()) co_return taken.error();
      room = *std::move(taken);
      commands.back().room = &room;
    }
  }
  shard::CallOptions options;
  options.budget = &context.shared.cursor_memory;
  options.deadline = deadline;
  options.interrupt = interrupt;
  options.bulk = true;
  auto calls = call_shards(context, commands, options);
  auto outcomes = co_await calls;
  room.reset();
  co_await unparking.wait();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    RemoteCursor& remote = cursor.remotes[remotes[i]];
    if (outcomes[i].ok()) {
      auto taken = take_reply(cursor, remote, std::move(outcomes[i].reply));
      if (taken.has_error()) failed = taken.error();
      continue;
    }
    if (cursor.allow_partial) {
      remote.id = 0;
      cursor.partial = true;
      continue;
    }
    if (outcomes[i].error->is(ErrorCode::cursor_not_found)) remote.id = 0;
    if (broken != nullptr) *broken = true;
    failed = *outcomes[i].error;
  }
  if (failed) co_return *failed;
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> fetch_more(Context& context, ClusterCursor& cursor, TimePoint deadline,
                              shard::Interrupt* interrupt, bool* broken) {
  return fetch(context, cursor, deadline, interrupt, broken, false);
}

Task<Result<void>> fetch_ahead(Context& context, ClusterCursor& cursor, shard::Interrupt* interrupt) {
  return fetch(context, cursor, time_point_never, interrupt, nullptr, true);
}

Task<Result<void>> fill_batch(Context& context, ClusterCursor& cursor, FillLimits limits,
                              BatchBuilder& out) {
  bool ignored = false;
  bool& broken = limits.broken != nullptr ? *limits.broken : ignored;
  const std::size_t batches_before = cursor.remotes.empty() ? 0 : cursor.remotes.front().batches.size();
  for (;;) {
    if (limits.one_batch && out.count() > 0 && cursor.remotes.front().batches.size() != batches_before) break;
    if (limits.interrupt != nullptr && limits.interrupt->requested() != nullptr) {
      co_return *limits.interrupt->requested();
    }
    if (limits.documents_max > 0 && static_cast<std::int64_t>(out.count()) >= limits.documents_max) break;
    if (cursor.stage) {
      bool full = false;
      auto drained = drain_stage(cursor, out, full);
      if (drained.has_error() && is_memory_refusal(drained.error()) && cursor.stashed) {
        auto finding = room_or_end(context, limits, out, cursor.stashed->size());
        auto found = co_await finding;
        if (found.has_error()) co_return found.error();
        if (!*found) break;
        continue;
      }
      if (drained.has_error()) {
        broken = true;
        co_return drained.error();
      }
      if (full) break;
      if (*drained) continue;
      if (cursor.stage_finished) break;
    }
    auto input = next_input(cursor, context.shared.cursor_memory);
    if (input.has_error()) co_return input.error();
    if (input->kind == NextInput::Kind::fetch) {
      // Without a size to reach, what the shards have sent so far is a batch, if there is much of it. A little is
      // worth asking for more: then the last batch mostly says that it is the last.
      const bool enough = limits.documents_max == 0 && out.document_bytes() >= unsized_batch_bytes_min;
      if (enough && cursor.sort_keys == SortKeySource::none) break;
      // Where memory is short, a shorter batch goes out rather than hold it and wait for more.
      if (out.count() > 0 && !limits.whole && is_scarce(context)) break;
      auto fetch = fetch_more(context, cursor, limits.deadline, limits.interrupt, &broken);
      auto fetched = co_await fetch;
      if (fetched.has_error()) {
        const bool may_wait = is_memory_refusal(fetched.error()) && !broken;
        if (may_wait && out.count() > 0 && !limits.whole) break;
        co_return fetched.error();
      }
      continue;
    }
    if (input->kind == NextInput::Kind::key_room) {
      auto finding = key_room_or_end(context, limits, out, *input);
      auto found = co_await finding;
      if (found.has_error()) co_return found.error();
      if (!*found) break;
      continue;
    }
    const bool stage_full = cursor.stage && !cursor.stage->wants_more();
    if (input->kind == NextInput::Kind::end || stage_full) {
      if (!cursor.stage) break;
      if (auto finished = cursor.stage->finish(); finished.has_error()) {
        broken = true;
        co_return finished.error();
      }
      cursor.stage_finished = true;
      kill_remotes(context, cursor);
      for (RemoteCursor& remote : cursor.remotes) {
        remote.batches.clear();
        remote.parked.clear();
      }
      continue;
    }
    RemoteCursor& remote = *input->remote;
    const DocView document = *remote.front()->peek();
    if (cursor.skip_remaining > 0) {
      --cursor.skip_remaining;
      pop_document(remote);
      continue;
    }
    if (cursor.stage) {
      if (auto pushed = cursor.stage->push(document); pushed.has_error()) {
        broken = true;
        co_return pushed.error();
      }
    } else {
      if (!out.fits(document.size())) break;
      if (auto added = append_document(cursor, out, document); added.has_error()) {
        if (!is_memory_refusal(added.error())) co_return added.error();
        auto finding = room_or_end(context, limits, out, document.size());
        auto found = co_await finding;
        if (found.has_error()) co_return found.error();
        if (!*found) break;
        continue;
      }
      if (cursor.limit_remaining) --*cursor.limit_remaining;
    }
    pop_document(remote);
  }
  co_return Result<void>();
}

CursorPtr make_cursor(Client& client, const Request& request, std::string_view collection) {
  auto cursor = std::make_unique<ClusterCursor>();
  cursor->database = request.db;
  cursor->collection = collection;
  cursor->ns = fmt::format("{}.{}", request.db, collection);
  cursor->session.lsid = request.lsid;
  if (request.in_transaction) {
    cursor->session.txn_number = request.txn_number;
    cursor->session.in_transaction = true;
  }
  cursor->owner = client.user;
  cursor->client = client.presence.facts();
  cursor->created_ms = wall_clock_ms();
  if (request.body.size() <= limits::originating_command_bytes_max) {
    cursor->originating_command.assign(reinterpret_cast<const char*>(request.body.data()),
                                       request.body.size());
  }
  if (request.comment.exists()) {
    BsonWriter comment;
    comment.append("comment", request.comment);
    const BsonDoc document = std::move(comment).finish();
    cursor->comment.assign(reinterpret_cast<const char*>(document.view().data()), document.size());
  }
  return cursor;
}

Task<Result<Response>> answer_first_batch(Context& context, CursorPtr cursor, std::int64_t batch_size,
                                          bool batch_size_given, bool single_batch, const Request& request) {
  BatchBuilder batch(context.shared.reply_memory);
  if (!batch_size_given || batch_size > 0) {
    const FillLimits limits{batch_size_given ? batch_size : limits::first_batch_documents_default,
                            request.deadline, request.interrupt, single_batch};
    auto filling = fill_batch(context, *cursor, limits, batch);
    auto filled = co_await filling;
    if (filled.has_error()) {
      end_cursor(context, std::move(cursor));
      co_return try_again(std::move(filled.error()));
    }
  }
  cursor->documents_returned += batch.count();
  cursor->batches_returned = 1;
  std::int64_t id = 0;
  const std::string ns = cursor->ns;
  const bool partial = cursor->partial;
  const bool keep = !single_batch && (!cursor->exhausted() || (batch_size_given && batch_size == 0));
  if (keep) {
    cursor->compact(context.shared.cursor_memory);
    id = context.shared.cursors.insert(std::move(cursor), steady_ns());
  } else {
    end_cursor(context, std::move(cursor));
  }
  co_return std::move(batch).finish("firstBatch", id, ns, partial);
}

}  // namespace spillway::exec
