// Any bytes as a stream of replies that arrives in pieces: framing, the scanner of cursor replies
// and the counter of documents. What the stream's way accepts, the way of whole replies must accept
// with the same result. The first byte says how large the pieces are.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "proxy/wire/cursor_reply.h"
#include "proxy/wire/cursor_reply_scanner.h"
#include "proxy/wire/document_counter.h"
#include "proxy/wire/frame_reader.h"
#include "proxy/wire/op_msg.h"

namespace {

using namespace spillway;
using namespace spillway::wire;

void expect(bool holds) {
  if (!holds) {
    std::abort();
  }
}

bool count_in_pieces(DocumentCounter& counter, Bytes batch, std::size_t step) {
  for (std::size_t at = 0; at < batch.size(); at += step) {
    if (!counter.feed(batch.subspan(at, std::min(step, batch.size() - at)))) {
      return false;
    }
  }
  return counter.done();
}

void compare_with_whole(Bytes message, const CursorReplyParts& parts, std::size_t count) {
  const Result<OpMsg> whole = parse_op_msg_reply(message);
  expect(whole.has_value());
  expect(parts.ok == reply_is_ok(whole->body));
  const Result<CursorReply> reply = parse_cursor_reply(whole->body);
  expect(reply.has_value() == parts.ok);
  if (reply) {
    expect(reply->id == parts.id && reply->ns == parts.ns);
    expect(reply->batch_name == parts.batch_name);
    expect(reply->batch_offset + op_msg_prefix_bytes == parts.batch_offset);
    expect(reply->batch.size() == parts.batch_bytes);
    expect(reply->batch.count() == count);
    expect(reply->partial_results_returned == parts.partial_results_returned);
  }
}

void scan_reply(Bytes message, std::size_t step) {
  CursorReplyScanner scanner;
  std::size_t have = 0;
  CursorReplyScanner::Head head = CursorReplyScanner::Head::need_more;
  while (head == CursorReplyScanner::Head::need_more) {
    expect(have < message.size());  // with the whole message in hand it has an answer
    have = std::min(have + step, message.size());
    const Result<CursorReplyScanner::Head> fed = scanner.feed_head(message.first(have));
    if (!fed) {
      return;
    }
    head = *fed;
  }
  if (head != CursorReplyScanner::Head::batch) {
    return;
  }
  const CursorReplyParts& parts = scanner.parts();
  const std::size_t tail_at = parts.batch_offset + parts.batch_bytes;
  expect(tail_at + parts.tail_bytes == message.size());
  DocumentCounter counter;
  const bool counted =
      count_in_pieces(counter, message.subspan(parts.batch_offset, parts.batch_bytes), step);
  for (std::size_t at = tail_at; at < message.size(); at += step) {
    if (!scanner.feed_tail(message.subspan(at, std::min(step, message.size() - at)))) {
      return;
    }
  }
  expect(scanner.done());
  if (counted) {
    compare_with_whole(message, parts, counter.count());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) {
    return 0;
  }
  const std::size_t step = std::size_t{data[0]} + 1;
  Bytes stream(data + 1, size - 1);
  while (!stream.empty()) {
    const FrameReader::Need need = FrameReader::peek(stream);
    if (need.kind == FrameReader::Kind::more) {
      expect(stream.size() + need.bytes == limits::message_header_bytes);
      return 0;
    }
    if (need.kind == FrameReader::Kind::bad) {
      expect(FrameReader::why_bad(stream).code != 0);
      return 0;
    }
    expect(need.bytes >= limits::message_header_bytes && need.bytes <= limits::message_bytes_max);
    if (need.bytes > stream.size()) {
      return 0;
    }
    scan_reply(stream.first(need.bytes), step);
    stream = stream.subspan(need.bytes);
  }
  return 0;
}
