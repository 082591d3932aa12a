#include "proxy/shard/unread_reply.h"

#include <algorithm>
#include <string_view>

#include "cursor/bson_writer.h"
#include "proxy/base/time_slice.h"
#include "proxy/wire/cursor_reply_scanner.h"

namespace spillway::shard {

namespace {

using wire::CursorReplyScanner;

BsonDoc kill_command(const wire::CursorReplyParts& opened) {
  const std::size_t dot = std::min(opened.ns.find('.'), opened.ns.size() - 1);
  BsonWriter command;
  command.append("killCursors", opened.ns.substr(dot + 1));
  command.begin_array("cursors");
  command.append_item(opened.id);
  command.end();
  command.append("$db", opened.ns.substr(0, dot));
  return std::move(command).finish();
}

}  // namespace

UnreadReply::UnreadReply(Bytes start) noexcept
    : head_bytes_(std::min(start.size(), head_.size())), came_bytes_(start.size()) {
  std::copy_n(start.begin(), head_bytes_, head_.begin());
}

Task<void> UnreadReply::end_cursor(Connection& connection, Pump& pump, LinkBudgets budgets, TimePoint deadline) {
  CursorReplyScanner scanner;
  for (;;) {
    const auto head = scanner.feed_head(Bytes(head_).first(head_bytes_));
    if (head.has_error()) co_return;
    if (*head == CursorReplyScanner::Head::batch) break;
    if (*head != CursorReplyScanner::Head::need_more || head_bytes_ == head_.size()) co_return;
    const std::size_t got = co_await connection.read_rest(MutableBytes(head_).subspan(head_bytes_), deadline);
    if (got == 0) co_return;
    head_bytes_ += got;
    came_bytes_ += got;
  }
  const wire::CursorReplyParts& parts = scanner.parts();
  const std::size_t batch_end = parts.batch_offset + parts.batch_bytes;
  Bytes tail;
  if (came_bytes_ > batch_end) {
    if (came_bytes_ > head_bytes_) co_return;
    tail = Bytes(head_).first(head_bytes_).subspan(batch_end);
  }
  TimeSlice slice(pump);
  for (std::size_t left = batch_end - std::min(came_bytes_, batch_end);;) {
    if (left == 0) {
      const auto ended = scanner.feed_tail(tail);
      if (ended.has_error()) co_return;
      if (*ended) break;
    }
    const MutableBytes piece = pump.piece();
    const std::size_t wanted = left > 0 ? std::min(left, piece.size()) : piece.size();
    const std::size_t got = co_await connection.read_rest(piece.first(wanted), deadline);
    if (got == 0) co_return;
    const std::size_t of_batch = std::min(got, left);
    left -= of_batch;
    tail = Bytes(piece).first(got).subspan(of_batch);
    if (left > 0 && slice.is_over(got)) co_await slice.next();
  }
  if (!parts.ok || parts.id == 0 || parts.ns.empty()) co_return;
  const BsonDoc command = kill_command(parts);
  auto ignored = co_await exchange(connection, command, budgets, deadline);
}

}  // namespace spillway::shard
