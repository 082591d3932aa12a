#include "proxy/wire/cursor_reply_scanner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "allocator/limits.h"
#include "proxy/wire/cursor_reply.h"
#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"

namespace spillway::wire {
namespace {

constexpr std::size_t body_at = op_msg_prefix_bytes;
constexpr std::size_t document_size_min = 5;

Error malformed(const char* what) {
  return Error(ErrorCode::protocol_error, std::string("malformed cursor reply: ") + what);
}

bool is_batch_name(std::string_view name) { return name == "firstBatch" || name == "nextBatch"; }

// The front of an element whose value may not be here yet.
struct ElementHead {
  BsonType type;
  std::string_view name;
  std::size_t value_at;
};

// nullopt: its name is incomplete in these bytes.
std::optional<ElementHead> read_head(Bytes bytes, std::size_t at, std::size_t end) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(std::min(at + 1, bytes.size()));
  const auto last = bytes.begin() + static_cast<std::ptrdiff_t>(std::min(end, bytes.size()));
  if (first >= last) return std::nullopt;
  const auto nul = std::find(first, last, std::uint8_t{0});
  if (nul == last) return std::nullopt;
  const auto size = static_cast<std::size_t>(nul - first);
  return ElementHead{static_cast<BsonType>(bytes[at]),
                     {reinterpret_cast<const char*>(bytes.data()) + at + 1, size},
                     at + 2 + size};
}

}  // namespace

Result<CursorReplyScanner::Head> CursorReplyScanner::feed_head(Bytes from_start) {
  cursor_fields_.resize(4);
  reply_fields_.resize(4);
  fields_overflow_ = false;
  Result<Head> opened = open_message(from_start);
  if (!opened || *opened != Head::batch) return opened;
  from_start = from_start.first(std::min(from_start.size(), message_bytes_));
  Result<Walk> walked = walk_reply(from_start);
  if (!walked) return std::move(walked).error();
  if (fields_overflow_) return Head::unstreamable;
  switch (*walked) {
    case Walk::batch:
      if (cursor_fields_.size() + reply_fields_.size() + parts_.tail_bytes >
          limits::reply_tail_bytes_max) {
        return Head::unstreamable;
      }
      publish();
      if (Result<void> checked = check_fields(); !checked) return std::move(checked).error();
      return Head::batch;
    case Walk::finished:
      return from_start.size() == message_bytes_ ? Head::no_batch : Head::unstreamable;
    case Walk::need_more:
      break;
  }
  if (from_start.size() == message_bytes_) return malformed("an element goes beyond its document");
  return from_start.size() >= limits::reply_complete_bytes_max ? Head::unstreamable
                                                               : Head::need_more;
}

// Head::batch here means: the envelope is right and known, go on.
Result<CursorReplyScanner::Head> CursorReplyScanner::open_message(Bytes from_start) {
  if (from_start.size() < limits::message_header_bytes) return Head::need_more;
  Result<MessageHeader> header = parse_reply_header(from_start);
  if (!header) return std::move(header).error();
  if (!header->is(OpCode::msg)) return malformed("not an OP_MSG");
  message_bytes_ = static_cast<std::size_t>(header->message_length);
  if (message_bytes_ < body_at + document_size_min) return malformed("too short");
  if (from_start.size() < body_at + 4) return Head::need_more;
  if (peek_flags(from_start) != 0 || from_start[body_at - 1] != 0) {
    return Head::unstreamable;  // parse_op_msg_reply judges it
  }
  const auto body_bytes = load_le<std::uint32_t>(from_start.data() + body_at);
  if (body_bytes < document_size_min || body_bytes > message_bytes_ - body_at) {
    return malformed("the body's length is wrong");
  }
  if (body_at + body_bytes != message_bytes_) {
    return Head::unstreamable;  // another section follows
  }
  body_end_ = message_bytes_ - 1;
  return Head::batch;
}

Result<CursorReplyScanner::Walk> CursorReplyScanner::walk_reply(Bytes from_start) {
  std::size_t at = body_at + 4;
  while (at < body_end_) {
    const std::optional<ElementHead> head = read_head(from_start, at, body_end_);
    if (!head) return Walk::need_more;
    if (head->name == "cursor" && head->type == BsonType::document) {
      if (head->value_at + 4 > std::min(from_start.size(), body_end_)) return Walk::need_more;
      const auto size = load_le<std::uint32_t>(from_start.data() + head->value_at);
      if (size < document_size_min || size > body_end_ - head->value_at) {
        return malformed("the cursor's length is wrong");
      }
      cursor_end_ = head->value_at + size - 1;
      return walk_cursor(from_start, head->value_at + 4, cursor_end_);
    }
    const std::uint8_t* value = from_start.data() + head->value_at;
    const std::size_t size =
        bson_value_size(head->type, value, from_start.data() + std::min(from_start.size(), body_end_));
    if (size == no_size) return Walk::need_more;
    const std::size_t next = head->value_at + size;
    fields_overflow_ = !add_field(reply_fields_, from_start.subspan(at, next - at));
    if (fields_overflow_) return Walk::need_more;
    at = next;
  }
  return Walk::finished;
}

Result<CursorReplyScanner::Walk> CursorReplyScanner::walk_cursor(Bytes from_start, std::size_t at,
                                                                 std::size_t end) {
  while (at < end) {
    const std::optional<ElementHead> head = read_head(from_start, at, end);
    if (!head) return Walk::need_more;
    if (is_batch_name(head->name)) {
      if (head->type != BsonType::array) return malformed("the batch is not an array");
      if (head->value_at + 4 > std::min(from_start.size(), end)) return Walk::need_more;
      Result<void> taken = take_batch(from_start, head->name, head->value_at, end);
      if (!taken) return std::move(taken).error();
      return Walk::batch;
    }
    const std::uint8_t* value = from_start.data() + head->value_at;
    const std::size_t size =
        bson_value_size(head->type, value, from_start.data() + std::min(from_start.size(), end));
    if (size == no_size) return Walk::need_more;
    const std::size_t next = head->value_at + size;
    fields_overflow_ = !add_field(cursor_fields_, from_start.subspan(at, next - at));
    if (fields_overflow_) return Walk::need_more;
    at = next;
  }
  return Walk::finished;
}

Result<void> CursorReplyScanner::take_batch(Bytes from_start, std::string_view name,
                                            std::size_t value_at, std::size_t cursor_end) {
  const auto size = load_le<std::uint32_t>(from_start.data() + value_at);
  if (size < document_size_min || size > cursor_end - value_at) return malformed("the batch's length is wrong");
  parts_.batch_name = name == "firstBatch" ? "firstBatch" : "nextBatch";
  parts_.batch_offset = value_at;
  parts_.batch_bytes = size;
  parts_.tail_bytes = message_bytes_ - value_at - size;
  return {};
}

Result<bool> CursorReplyScanner::feed_tail(Bytes piece) {
  if (piece.size() > tail_missing()) return malformed("bytes after its end");
  tail_.reserve(parts_.tail_bytes);
  tail_.insert(tail_.end(), piece.begin(), piece.end());
  if (!done_ && tail_missing() == 0) {
    if (Result<void> finished = finish_tail(); !finished) return std::move(finished).error();
    done_ = true;
  }
  return done_;
}

Result<void> CursorReplyScanner::finish_tail() {
  const std::size_t tail_at = parts_.batch_offset + parts_.batch_bytes;
  const std::uint8_t* cursor_end = tail_.data() + (cursor_end_ - tail_at);
  const std::uint8_t* body_end = tail_.data() + (body_end_ - tail_at);
  if (*cursor_end != 0 || *body_end != 0) return malformed("a document does not end with a zero byte");
  cursor_fields_.pop_back();
  reply_fields_.pop_back();
  DocIterator it(tail_.data(), cursor_end);
  for (; !it.done(); ++it) {
    if (is_batch_name(it->name)) return malformed("two batches");
    cursor_fields_.insert(cursor_fields_.end(), it->raw.begin(), it->raw.end());
  }
  if (it.malformed()) return malformed("the cursor's fields");
  it = DocIterator(cursor_end + 1, body_end);
  for (; !it.done(); ++it) {
    if (it->name == "cursor") return malformed("two cursors");
    reply_fields_.insert(reply_fields_.end(), it->raw.begin(), it->raw.end());
  }
  if (it.malformed()) return malformed("the reply's fields");
  publish();
  if (!parts_.id_known || !parts_.ok_known) return malformed("id or ok is missing");
  return check_fields();
}

Result<void> CursorReplyScanner::check_fields() const {
  const ValueView id = parts_.cursor_fields["id"];
  const ValueView ns = parts_.cursor_fields["ns"];
  if ((id.exists() && !parts_.id_known) || (ns.exists() && !ns.is_string())) {
    return malformed("the type of id or ns is wrong");
  }
  return {};
}

// False: too many bytes for a reply's fields.
bool CursorReplyScanner::add_field(RecycledBytes& fields, Bytes raw) {
  if (cursor_fields_.size() + reply_fields_.size() + raw.size() > limits::reply_tail_bytes_max) return false;
  fields.insert(fields.end(), raw.begin(), raw.end());
  return true;
}

// Closes the two documents of fields and reads what is known from them.
void CursorReplyScanner::publish() {
  for (RecycledBytes* fields : {&cursor_fields_, &reply_fields_}) {
    fields->push_back(0);
    store_le(fields->data(), static_cast<std::uint32_t>(fields->size()));
  }
  parts_.cursor_fields = DocView::trusted(cursor_fields_.data());
  parts_.reply_fields = DocView::trusted(reply_fields_.data());
  const std::optional<std::int64_t> id = parts_.cursor_fields["id"].to_int64();
  parts_.id_known = id.has_value();
  parts_.id = id.value_or(0);
  const ValueView ns = parts_.cursor_fields["ns"];
  parts_.ns = ns.is_string() ? ns.as_string() : std::string_view();
  parts_.partial_results_returned = parts_.cursor_fields["partialResultsReturned"].truthy();
  parts_.ok_known = parts_.reply_fields["ok"].exists();
  parts_.ok = reply_is_ok(parts_.reply_fields);
}

}  // namespace spillway::wire
