// A running relay (stream.h). stream.cpp copies the batch, stream_splice.cpp passes it through a pipe, stream_rest.cpp
// handles a client that is slower than its shard.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "proxy/exec/core/context.h"
#include "proxy/exec/streams/stream.h"
#include "proxy/exec/streams/unsent.h"
#include "proxy/wire/cursor_reply_scanner.h"
#include "proxy/wire/document_counter.h"

namespace spillway::exec {

// How long the shard may take for the rest of a batch whose client is gone.
inline constexpr Duration drain_time_max = std::chrono::seconds(5);

// The scanner has seen the head. `left`: bytes of the batch that the shard has yet to send.
struct Relay {
  Context& context;
  Transport& client;
  StreamReply& stream;
  wire::CursorReplyScanner scanner;
  wire::DocumentCounter counter;
  std::size_t left = 0;
  bool client_gone = false;
  TimePoint drain_until = time_point_never;  // set when the client is gone
  bool splices = true;       // until the kernel or the budget refuses a pipe
  std::size_t spliced = 0;  // bytes that passed through a pipe. After the first, documents are not counted
  bool has_stalled = false;  // the client has not taken the unsent bytes for client_stall
  // Takes its memory when it first needs some; before the first read while memory is short.
  Unsent unsent;
  CursorCharge rest;  // what was read ahead for a slow client, until it has taken all of it
  BsonDoc times;  // that the reply's frame ends with; {}: none
  std::int64_t began_ns = steady_ns();
};

enum class Step : std::uint8_t { passed, shard_lost, malformed };

void client_went(Relay& relay);
// Waits for the shard's next bytes, but not longer than the router may take to notice that the client has left.
ReadyWait wait_for_shard(const Relay& relay);
// A wait ended without bytes: wait again?
bool waits_on(Relay& relay, const ReadyWait& waited);
// Notes that `bytes` of the batch were read from the shard.
void took(Relay& relay, std::size_t bytes);
// Counts documents in these bytes of the batch. Error: they are malformed.
Result<void> count(Relay& relay, Bytes bytes);
// Documents of the whole batch. An estimate by the mean of the counted ones if some passed through a pipe.
std::size_t documents_of(const Relay& relay) noexcept;

// May the rest of the batch pass through a pipe?
bool may_splice(Relay& relay) noexcept;
// Ends when the batch has passed, when bytes are unsent (the client has stalled), when the client is gone, or when
// may_splice() is false.
Task<Step> splice_batch(Relay& relay);
// Ends when the client has taken all unsent bytes, when the rest of the batch was read and waits for the client, or
// when the client is gone.
Task<Step> pass_unsent(Relay& relay);
// The client has taken nothing for client_stall, and keeps the shard's connection: the one that does so for the longest
// time is closed if there are too many.
void note_stall(Relay& relay, StalledClients::Place& place);
// After the shard's last byte. False: the client is gone, or its connection must be closed.
Task<bool> send_all_unsent(Relay& relay);

}  // namespace spillway::exec
