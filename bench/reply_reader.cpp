#include "bench/reply_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace spillway::bench {
namespace {

constexpr std::size_t name_bytes_max = 256;  // of an element of a reply, batch keys included
constexpr std::size_t element_bytes_max = 17 * 1024 * 1024;

}  // namespace

std::span<char> ReplyReader::room() {
  if (begin_ == end_) begin_ = end_ = 0;
  const std::size_t wanted = std::max(wanted_, room_bytes_);
  // Moving the rest to the front is cheap as long as it is little; a buffer twice as large as what
  // is wanted keeps it rare.
  if (buffer_.size() - end_ < room_bytes_ / 2 || buffer_.size() - begin_ < wanted_) {
    if (begin_ < end_) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (buffer_.size() < wanted + room_bytes_ / 2) buffer_.resize(wanted + room_bytes_ / 2);
  }
  return {buffer_.data() + end_, std::min(buffer_.size() - end_, room_bytes_)};
}

void ReplyReader::consume(std::size_t bytes) noexcept {
  begin_ += bytes;
  message_left_ -= bytes;
  for (auto& left : level_left_) left = left > bytes ? left - bytes : 0;
}

ReplyReader::Step ReplyReader::fail(std::string why) {
  error_ = std::move(why);
  level_ = Level::broken;
  return Step::broken;
}

ReplyReader::Step ReplyReader::need(std::size_t bytes) {
  wanted_ = bytes;
  return Step::need_bytes;
}

ReplyReader::Step ReplyReader::step() {
  switch (level_) {
    case Level::header:
      return read_header();
    case Level::broken:
      return Step::broken;
    default:
      return read_element();
  }
}

ReplyReader::Step ReplyReader::read_header() {
  constexpr std::size_t prefix_bytes = op_msg_prefix_bytes + 4;  // and the document's length
  const auto bytes = available();
  if (bytes.size() < prefix_bytes) return need(prefix_bytes);
  const auto header = load_header(bytes.data());
  const auto flags = load_bytes<std::uint32_t>(bytes.data() + header_bytes);
  if (!header.plausible() || header.opcode != op_msg) return fail("not an OP_MSG reply");
  if ((flags & 0xffffU) != 0) return fail("a reply with flags " + std::to_string(flags));
  if (bytes[op_msg_prefix_bytes - 1] != 0) return fail("a reply that does not start with kind 0");
  const auto document = load_bytes<std::int32_t>(bytes.data() + op_msg_prefix_bytes);
  const auto whole = static_cast<std::uint64_t>(header.bytes);
  if (document < 5 || static_cast<std::uint64_t>(document) + op_msg_prefix_bytes != whole) {
    return fail("a reply whose document is not as long as its message");
  }
  summary_ = {};
  summary_.response_to = header.response_to;
  level_ = Level::top;
  message_left_ = whole;
  level_left_[0] = whole - op_msg_prefix_bytes;
  level_left_[1] = level_left_[2] = 0;
  begin_ += prefix_bytes;
  message_left_ -= prefix_bytes;
  level_left_[0] -= 4;
  return read_element();
}

bool ReplyReader::enter(const Field& field, std::size_t head_bytes, std::size_t declared_bytes) {
  if (level_ == Level::top && field.name == "cursor" && field.is_document()) {
    level_ = Level::cursor;
    summary_.has_cursor = true;
  } else if (level_ == Level::cursor && field.is_array() &&
             (field.name == "firstBatch" || field.name == "nextBatch")) {
    level_ = Level::batch;
  } else {
    return false;
  }
  consume(head_bytes + 4);
  level_left_[level_ == Level::cursor ? 1 : 2] = declared_bytes - 4;
  return true;
}

ReplyReader::Step ReplyReader::end_level() {
  const std::size_t depth = level_ == Level::top ? 0 : level_ == Level::cursor ? 1 : 2;
  if (level_left_[depth] != 1) return fail("a document ends before its length says");
  consume(1);
  if (depth == 0) {
    level_ = Level::header;
    return Step::reply;
  }
  level_ = depth == 1 ? Level::top : Level::cursor;
  return read_element();
}

void ReplyReader::note_top(const Field& field) {
  if (field.name == "ok") summary_.ok = field.number().value_or(0);
  if (field.name == "n") summary_.n = field.integer().value_or(-1);
  if (field.name == "code") summary_.code = field.integer().value_or(0);
  if (field.name == "errmsg") summary_.message = field.text().value_or("");
  if (field.name == "errorLabels" && field.is_array()) {
    FieldWalk walk(field.value);
    while (const auto label = walk.next()) {
      summary_.labels +=
          (summary_.labels.empty() ? "" : ",") + std::string(label->text().value_or("?"));
    }
  }
  if (field.name != "writeErrors" && field.name != "writeConcernError") return;
  summary_.has_write_errors = true;
  const auto first = field.is_array() ? FieldWalk(field.value).next() : std::optional(field);
  if (!first || !first->is_document()) return;
  if (const auto code = find_field(first->value, "code"))
    summary_.code = code->integer().value_or(0);
  if (const auto text = find_field(first->value, "errmsg")) {
    summary_.message = text->text().value_or("");
  }
}

ReplyReader::Step ReplyReader::read_element() {
  while (true) {
    const auto bytes = available();
    if (bytes.empty()) return need(1);
    if (bytes[0] == 0) return end_level();
    const auto* const nul = static_cast<const char*>(
        std::memchr(bytes.data() + 1, 0, std::min(bytes.size() - 1, name_bytes_max)));
    if (nul == nullptr) {
      if (bytes.size() > name_bytes_max) return fail("an element with an endless name");
      return need(bytes.size() + 1);
    }
    Field field;
    field.type = static_cast<std::uint8_t>(bytes[0]);
    field.name = {bytes.data() + 1, static_cast<std::size_t>(nul - bytes.data() - 1)};
    const std::size_t head_bytes = field.name.size() + 2;
    const std::size_t depth = level_ == Level::top ? 0 : level_ == Level::cursor ? 1 : 2;
    if (level_left_[depth] <= head_bytes) return fail("an element beyond its document");
    const std::uint64_t room =
        std::min<std::uint64_t>(level_left_[depth] - head_bytes - 1, element_bytes_max);
    if (field.is_document() || field.is_array()) {
      if (bytes.size() < head_bytes + 4) return need(head_bytes + 4);
      const auto declared = load_bytes<std::int32_t>(bytes.data() + head_bytes);
      const bool whole_batch =
          level_ != Level::batch && declared >= 5 &&
          static_cast<std::uint64_t>(declared) < level_left_[depth] - head_bytes;
      if (whole_batch && enter(field, head_bytes, static_cast<std::size_t>(declared))) continue;
    }
    const std::size_t here = bytes.size() - head_bytes;
    const auto size =
        value_bytes(field.type, bytes.data() + head_bytes, std::min<std::size_t>(here, room));
    if (!size) {
      // Either it is not all here yet, or it can never be.
      if (here >= room) return fail("an element of an unknown type or beyond its document");
      std::size_t more = bytes.size() + 1;
      if (here >= 4 && (field.is_document() || field.type == bson::binary_type)) {
        const auto declared = load_bytes<std::int32_t>(bytes.data() + head_bytes);
        if (declared < 0 || static_cast<std::uint64_t>(declared) > room) {
          return fail("an element longer than its document");
        }
        more = std::max(more, head_bytes + static_cast<std::size_t>(declared));
      }
      return need(more);
    }
    field.value = bytes.substr(head_bytes, *size);
    if (level_ == Level::batch) {
      if (!field.is_document()) return fail("a batch holds something that is no document");
      document_ = field.value;
      ++summary_.documents;
      consume(head_bytes + *size);
      return Step::document;
    }
    if (level_ == Level::top) note_top(field);
    if (level_ == Level::cursor && field.name == "id") {
      summary_.cursor_id = field.integer().value_or(0);
    }
    consume(head_bytes + *size);
  }
}

}  // namespace spillway::bench
