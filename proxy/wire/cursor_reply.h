// Cursor replies of shards ({cursor: {firstBatch: […], id, ns}, ok: 1}): whole ones.
// Replies that arrive in pieces: cursor_reply_scanner.h. Counting documents: document_counter.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cursor/bson_view.h"

namespace spillway::wire {

// Views into the reply's bytes. Values that are absent have type eoo.
struct CursorReply {
  std::int64_t id = 0;        // 0: the shard's cursor is exhausted
  std::size_t id_offset = 0;  // of the 8 bytes of an int64 id, from the reply's start; 0: not int64
  std::string_view ns;
  std::string_view batch_name;   // "firstBatch" or "nextBatch"
  DocView batch;                 // the array; its elements are checked while iterating
  std::size_t batch_offset = 0;  // of the array's length, from the reply's start
  bool partial_results_returned = false;
  DocView cursor;  // the whole sub-document
  ValueView post_batch_resume_token;
  ValueView at_cluster_time;
  ValueView operation_time;
  ValueView cluster_time;  // $clusterTime
  ValueView recovery_token;
};

// `reply` with ok: 1 and a cursor with id and one batch. A reply with ok: 0 is the Error it
// describes (error_from_reply); one that is no cursor reply is FailedToParse.
Result<CursorReply> parse_cursor_reply(DocView reply);

// The same for a reply of which is known that it has ok: 1 and this cursor. Values beside the cursor stay unset.
Result<CursorReply> parse_cursor(DocView reply, DocView cursor);

// ok is a number (or bool) that is true.
bool reply_is_ok(DocView reply) noexcept;

// The error that an ok: 0 reply describes: code, errmsg, errorLabels; `extra` are its further
// fields, without those that a router strips from shards' replies.
Error error_from_reply(DocView reply);

}  // namespace spillway::wire
