#include "proxy/wire/cursor_reply.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "cursor/bson_writer.h"

namespace spillway::wire {
namespace {

constexpr std::int32_t code_unknown_error = 8;

// Fields of an error reply that the Error holds itself, and those that a router strips from shards' replies.
constexpr std::array<std::string_view, 18> not_extra = {
    "ok",
    "code",
    "codeName",
    "errmsg",
    "errorLabels",
    "$clusterTime",
    "operationTime",
    "$configServerState",
    "$configTime",
    "$topologyTime",
    "$gleStats",
    "lastCommittedOpTime",
    "readOnly",
    "additionalParticipants",
    "$replData",
    "$oplogQueryData",
    // Of WouldChangeOwningShard: documents for the router, which takes them from the reply itself.
    "preImage",
    "postImage",
};

bool is_true(ValueView ok) noexcept {
  return (ok.is_number() || ok.type == BsonType::boolean) && ok.truthy();
}

Error no_cursor_reply(const char* what) {
  return Error(ErrorCode::failed_to_parse, std::string("not a cursor reply: ") + what);
}

// Of two fields with one name the first counts, as in every other lookup.
Result<void> take_cursor_field(CursorReply& result, DocView reply, const Element& field) {
  if (field.name == "id") {
    const std::optional<std::int64_t> id = field.to_int64();
    if (!id) return no_cursor_reply("cursor.id is not an integer");
    result.id = *id;
    if (field.type == BsonType::int64) result.id_offset = static_cast<std::size_t>(field.bytes.data() - reply.data());
  } else if (field.name == "ns") {
    if (!field.is_string()) return no_cursor_reply("cursor.ns is not a string");
    result.ns = field.as_string();
  } else if (field.name == "firstBatch" || field.name == "nextBatch") {
    if (!field.is_array()) return no_cursor_reply("the batch is not an array");
    if (!result.batch_name.empty()) return no_cursor_reply("two batches");
    result.batch_name = field.name;
    result.batch = field.as_document();
    result.batch_offset = static_cast<std::size_t>(field.bytes.data() - reply.data());
  } else if (field.name == "partialResultsReturned") {
    result.partial_results_returned = field.truthy();
  } else if (field.name == "postBatchResumeToken") {
    result.post_batch_resume_token = field;
  } else if (field.name == "atClusterTime") {
    result.at_cluster_time = field;
  }
  return {};
}

Result<void> take_cursor(CursorReply& result, DocView reply) {
  bool has_id = false;
  DocIterator it = result.cursor.begin();
  for (; !it.done(); ++it) {
    if ((it->name == "id" && std::exchange(has_id, true)) ||
        (it->name == "ns" && result.ns.data() != nullptr)) {
      continue;
    }
    if (Result<void> taken = take_cursor_field(result, reply, *it); !taken) return taken;
  }
  if (it.malformed()) return Error(ErrorCode::invalid_bson, "the cursor of the reply is not valid BSON");
  if (!has_id) return no_cursor_reply("cursor.id is missing");
  if (result.batch_name.empty()) return no_cursor_reply("the batch is missing");
  return {};
}

}  // namespace

bool reply_is_ok(DocView reply) noexcept { return is_true(reply.find("ok")); }

Result<CursorReply> parse_cursor_reply(DocView reply) {
  CursorReply result;
  bool has_cursor = false;
  bool has_ok = false;
  bool ok = false;
  DocIterator it = reply.begin();
  for (; !it.done(); ++it) {
    if (it->name == "ok") {
      if (!std::exchange(has_ok, true)) ok = is_true(*it);
    } else if (it->name == "cursor" && it->is_document()) {
      if (has_cursor) return no_cursor_reply("two cursors");
      has_cursor = true;
      result.cursor = it->as_document();
    } else if (it->name == "operationTime") {
      result.operation_time = *it;
    } else if (it->name == "$clusterTime") {
      result.cluster_time = *it;
    } else if (it->name == "recoveryToken") {
      result.recovery_token = *it;
    }
  }
  if (it.malformed()) return Error(ErrorCode::invalid_bson, "the reply is not valid BSON");
  if (!ok) return error_from_reply(reply);
  if (!has_cursor) return no_cursor_reply("cursor is missing");
  if (Result<void> taken = take_cursor(result, reply); !taken) return std::move(taken).error();
  return result;
}

Result<CursorReply> parse_cursor(DocView reply, DocView cursor) {
  CursorReply result;
  result.cursor = cursor;
  if (Result<void> taken = take_cursor(result, reply); !taken) return std::move(taken).error();
  return result;
}

Error error_from_reply(DocView reply) {
  Error error(code_unknown_error, "the shard's error reply has no message");
  BsonWriter extra;
  bool has_extra = false;
  for (const Element& field : reply) {
    if (field.name == "code") {
      const std::optional<std::int64_t> code = field.to_int64();
      if (code && *code > 0 && *code <= std::numeric_limits<std::int32_t>::max()) {
        error.code = static_cast<std::int32_t>(*code);
      }
    } else if (field.name == "errmsg" && field.is_string()) {
      error.message = field.as_string();
    } else if (field.name == "errorLabels" && field.is_array()) {
      for (const Element& label : field.as_document()) {
        if (label.is_string()) error.labels.emplace_back(label.as_string());
      }
    } else if (std::find(not_extra.begin(), not_extra.end(), field.name) == not_extra.end()) {
      extra.append_element(field);
      has_extra = true;
    }
  }
  if (has_extra) {
    const BsonDoc document = std::move(extra).finish();
    error.extra.assign(reinterpret_cast<const char*>(document.view().data()), document.size());
  }
  return error;
}

}  // namespace spillway::wire
