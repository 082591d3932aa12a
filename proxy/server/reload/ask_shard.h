// One question to one shard, for checks that go on without its answer.
#pragma once

#include <optional>
#include <string>

#include "proxy/exec/core/context.h"

namespace spillway::server {

// Why a shard is left out from now on; no error of the check.
struct Skip {
  std::string reason;
  bool unreachable = false;  // no answer at all: do not ask it again
};

// A command's reply. `skip`: there is none, or it is ok: 0 or damaged.
struct Answer {
  shard::Reply reply;
  std::optional<Skip> skip;
};
// `body` outlives it.
Task<Answer> ask(exec::Context& context, catalog::ShardIndex shard, DocView body);

// A find of one document.
BsonDoc find_by_id(std::string_view collection, std::string_view db, std::string_view id);
// The first document of a cursor reply; nullopt when there is none.
struct Found {
  std::optional<BsonDoc> document;
  std::optional<Skip> skip;
};
Task<Found> find_one(exec::Context& context, catalog::ShardIndex shard, DocView find);

}  // namespace spillway::server
