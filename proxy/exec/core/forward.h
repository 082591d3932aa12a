// Building commands for shards from a client's request, and turning shards' replies into ours.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/small_blocks.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"

namespace spillway::exec {

// The client's command unchanged, as sections to send. `scratch` owns the bytes when fields had to be stripped.
// Document sequences are forwarded as they came.
shard::Command forward_command(const Request& request, BsonDoc& scratch);

// Copies the body's elements into `out` except those that are stripped and those named in `without`.
void copy_command(BsonWriter& out, const Request& request,
                  std::initializer_list<std::string_view> without);
// Appends the generic arguments of the request that shards take: $db, lsid, txnNumber, autocommit, comment,
// maxTimeMS, readConcern, writeConcern, $readPreference; except those named in `without`.
void append_generic_arguments(BsonWriter& out, const Request& request,
                              std::initializer_list<std::string_view> without = {});
// A request that takes several steps on shards. If it begins a transaction, its first step does; from
// then on it is a later statement of it, without startTransaction and readConcern, which only the
// first one has. Refers to the client's request.
class SteppedRequest {
 public:
  explicit SteppedRequest(const Request& request) noexcept : now_(&request) {}
  SteppedRequest(const SteppedRequest&) = delete;
  SteppedRequest& operator=(const SteppedRequest&) = delete;

  // As the next step has it. Good until sent_a_step().
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
// The code of an ok: 0 reply; 0: it has none.
std::int32_t failure_code(DocView reply) noexcept;
// The same for a reply that is known to be ok.
Response passthrough_ok(shard::Reply reply);

// Options of a call made for this request: read preference, deadline, retry for reads.
shard::CallOptions read_options(Context& context, const Request& request);
shard::CallOptions write_options(Context& context, const Request& request);

// One outcome per shard of a command sent to several. `error` is set for network failures and for ok: 0 replies.
struct ShardOutcome {
  catalog::ShardIndex shard = 0;
  shard::Reply reply;             // set when the shard answered at all
  std::optional<Error> error;
  bool ok() const noexcept { return !error.has_value(); }
  DocView body() const noexcept { return reply.body(); }  // REQUIRES reply.bytes.size() > 0
};
using ShardOutcomes = RecycledVector<ShardOutcome>;

// A command for one shard of a fan-out.
struct ShardCommand {
  catalog::ShardIndex shard = 0;
  shard::Command command;
  std::optional<shard::HostAddress> host;
  Buffer* room = nullptr;  // for its reply (CallOptions::room)
};

// A shard's reply that cannot be read to its end: what follows the damage is missing.
Error malformed_reply(std::string_view what);

// Sends in parallel, waits for all. Outcomes stand in the order of `commands`. ok: 0 replies are errors
// (with the shard's own code) in the outcome. A damaged reply is as good as none, but for batches: their
// documents are checked as they are read.
Task<ShardOutcomes> call_shards(Context& context, std::span<const ShardCommand> commands,
                                shard::CallOptions options);

// The targets of a namespace: chunk owners, or the primary shard if it is not sharded.
struct Targets {
  catalog::ShardSet shards;
  const catalog::CollectionRouting* routing = nullptr;  // null: unsharded
};
Targets shards_with_chunks(Context& context, std::string_view db, std::string_view ns);
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

}  // namespace spillway::exec
