// Building commands for shards from a client's request, and turning shards' replies into ours.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/budget.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/shard_call.h"

namespace spillway::exec {

struct HostsTargeted;  // metrics.h

// The client's command unchanged, as sections to send. `scratch` owns the bytes when fields had to be stripped.
// Document sequences are forwarded as they came.
shard::Command forward_command(const Request& request, BsonDoc& scratch);

// Appends a field of the client's command as shards get it: some of them are completed or chosen by the router.
void append_argument(BsonWriter& out, const Request& request, const Element& argument);
// Copies the body's elements into `out` except those that are stripped and those named in `without`.
void copy_command(BsonWriter& out, const Request& request,
                  std::initializer_list<std::string_view> without);
// Appends the generic arguments of the request that shards take: $db, lsid, txnNumber, autocommit, comment,
// maxTimeMS, readConcern, writeConcern, $readPreference; except those named in `without`.
void append_generic_arguments(BsonWriter& out, const Request& request,
                              std::initializer_list<std::string_view> without = {});
// A request that takes several steps on shards. If it begins a transaction, its first step does; its next steps are
// later statements, without startTransaction and readConcern, which only the first one has. Refers to the client's
// request.
class SteppedRequest {
 public:
  explicit SteppedRequest(const Request& request) noexcept : now_(&request) {}
  SteppedRequest(const SteppedRequest&) = delete;
  SteppedRequest& operator=(const SteppedRequest&) = delete;

  // The request for the next step. Valid until sent_a_step().
  const Request& operator*() const noexcept { return *now_; }
  const Request* operator->() const noexcept { return now_; }
  // A step has gone to a shard.
  void sent_a_step();

 private:
  const Request* now_;
  std::optional<Request> later_;
  BsonDoc later_body_;
};

// One shard's reply as the client's: stripped fields cut out, in place. ok: 0 replies too.
Response passthrough(shard::Reply reply);
// Pays for copies of so many bytes of a command, unless they are small blocks; does not wait. Errors:
// memory_refused(), of a command that was not executed.
Result<Reservation> room_for_copies(const Context& context, std::size_t bytes, std::size_t copies = 1);
// The same for the copy of a request that forward_command() may make.
inline Result<Reservation> room_for_copy(const Context& context, const Request& request) {
  return room_for_copies(context, request.body.size(), request.strips_fields ? 1 : 0);
}
// The code of an ok: 0 reply; 0: it has none.
std::int32_t failure_code(DocView reply) noexcept;
// The same for a reply that is known to be ok.
Response passthrough_ok(shard::Reply&& reply);

// The targets of a namespace: chunk owners, or the primary shard if it is not sharded.
struct Targets {
  catalog::ShardSet shards;
  const catalog::CollectionRouting* routing = nullptr;  // null: unsharded
  const catalog::Database* database = nullptr;          // Routes::database()
  bool simple_collation = true;                         // of the query; true if it is not sharded
  RoutedBy by() const noexcept { return RoutedBy::collection(routing, database); }
};
Targets shards_with_chunks(const Routes& routes, std::string_view db, std::string_view ns);
// forward_to_shard() to the only shard of these targets.
Task<Result<Response>> forward_read(Context& context, const Request& request, const Targets& targets);
Task<Result<Response>> forward_write(Context& context, const Request& request, const Targets& targets);
void count_targets(HostsTargeted& metric, const Targets& targets);

// "db.collection", for a lookup: takes no memory for names of a usual length.
class NamespaceText {
 public:
  NamespaceText(std::string_view db, std::string_view collection);
  NamespaceText(const NamespaceText&) = delete;
  NamespaceText& operator=(const NamespaceText&) = delete;
  std::string_view view() const noexcept { return view_; }

 private:
  std::array<char, 128> short_;
  std::string long_;
  std::string_view view_;
};

// Is a read with this collation bound to compare strings in binary order? True for a missing collation, {} and
// {locale: "simple"}.
bool is_simple_collation(ValueView collation) noexcept;
// The same of a command on this collection, which has a default for those that name none. Null: it is not sharded.
bool is_simple_collation(ValueView collation, const catalog::CollectionRouting* routing) noexcept;

// Of a cursor's reply to a query for one document; {}: there is none.
inline DocView first_of_batch(DocView reply) noexcept {
  return reply.find_path("cursor.firstBatch").to_array().first().to_document();
}

}  // namespace spillway::exec
