// One relay under way (stream.h): stream.cpp passes the batch, stream_splice.cpp passes it unseen, stream_rest.cpp sees
// to a client that is slower than its shard.
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

// So long the shard has for what its client does not wait for.
inline constexpr Duration drain_time_max = std::chrono::seconds(5);

// The scanner has seen the head; `left` counts the batch bytes that are still to be read of the shard.
struct Relay {
  Context& context;
  Transport& client;
  StreamReply& stream;
  wire::CursorReplyScanner scanner;
  wire::DocumentCounter counter;
  std::size_t left = 0;
  bool client_gone = false;
  TimePoint drain_until = time_point_never;  // once it is
  bool splices = true;       // until the kernel or the budget has refused a pipe
  std::size_t spliced = 0;  // bytes of the batch that passed unseen: since then nothing is counted
  bool has_stalled = false;  // what is unsent has been refused for client_stall already
  // Its room is taken when first needed; where memory is short, before anything is read.
  Unsent unsent;
};

enum class Step : std::uint8_t { passed, shard_lost, malformed };

void client_went(Relay& relay);
// To be awaited where the shard has sent nothing more: not for longer than a client's leaving may go unnoticed.
ReadyWait wait_for_shard(const Relay& relay);
// After a wait that has ended without the shard: is it to be tried again?
bool waits_on(Relay& relay, const ReadyWait& waited);
// So much of the batch was taken from the shard, for the client.
void took(Relay& relay, std::size_t bytes);
// Counts the documents in bytes of the batch. Error: they are malformed.
Result<void> count(Relay& relay, Bytes bytes);
// Documents of the whole batch; by the mean of those that were counted if some passed unseen.
std::size_t documents_of(const Relay& relay) noexcept;

// May what is left of the batch pass through a pipe?
bool may_splice(Relay& relay) noexcept;
// Until nothing is left of the batch, or something is unsent (the client has stalled), or the client is gone, or
// may_splice() no more.
Task<Step> splice_batch(Relay& relay);
// Until the client has taken what is unsent, or what is left of the batch has moved to where it waits for the client,
// or the client is gone.
Task<Step> pass_unsent(Relay& relay);
// The shard has done its part. False: the client is gone, or must go.
Task<bool> send_all_unsent(Relay& relay);

}  // namespace spillway::exec
