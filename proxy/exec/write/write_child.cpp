#include "proxy/exec/write/write_child.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "allocator/limits.h"
#include "proxy/base/time_slice.h"
#include "proxy/exec/core/forward.h"
#include "proxy/exec/core/process_memory.h"
#include "proxy/exec/cursors/take_memory.h"

namespace spillway::exec {

namespace {

constexpr std::uint8_t body_kind = 0, sequence_kind = 1;
// A copy is faster than other work.
constexpr std::size_t copied_bytes_per_step_byte = 4;
constexpr std::size_t id_element_bytes = 1 + 4 + 12;  // type, "_id" with its NUL, ObjectId

Task<BsonDoc> child_body(TimeSlice& slice, const Request& request, const WriteCommand& command,
                         std::span<const ChildOp> ops) {
  BsonWriter out;
  copy_command(out, request, {command.list_name, "stmtIds", "stmtId"});
  if (command.retryable) {
    out.begin_array("stmtIds");
    for (const ChildOp& op : ops) {
      out.append_item(op.stmt_id);
      if (slice.is_over_short(listed_op_bytes)) co_await slice.next();
    }
    out.end();
  }
  co_return std::move(out).finish();
}

// The documents as one range of the client's message, if they are neighbours there.
Bytes neighbours(std::span<const ChildOp> ops) noexcept {
  const std::uint8_t* const first = ops.front().document.data();
  const std::uint8_t* at = first;
  for (const ChildOp& op : ops) {
    if (op.new_id != nullptr || op.document.data() != at) return {};
    at += op.document.size();
  }
  return {first, static_cast<std::size_t>(at - first)};
}

// Neighbours in a child are apart in the message, which has left the caches if it is large: the processor foresees the
// rest of a document, not the next one's beginning.
void prefetch_beginning(DocView document) noexcept {
  constexpr std::size_t line_bytes = 64, bytes_max = 1024;
  const std::size_t end = std::min(document.size(), bytes_max);
  for (std::size_t at = 0; at < end; at += line_bytes) __builtin_prefetch(document.data() + at);
}

void append_document(Buffer& to, const ChildOp& op) {
  const Bytes bytes = op.document.bytes();
  if (op.new_id == nullptr) {
    to.append(bytes.data(), bytes.size());
    return;
  }
  std::uint8_t head[4 + 5];
  store_le(head, static_cast<std::uint32_t>(bytes.size() + id_element_bytes));
  head[4] = static_cast<std::uint8_t>(BsonType::object_id);
  std::memcpy(head + 5, "_id", 4);
  to.append(head, sizeof head);
  to.append(op.new_id->data(), op.new_id->size());
  to.append(bytes.data() + 4, bytes.size() - 4);
}

}  // namespace

std::size_t ChildMessage::bytes_of(const ChildOp& op) noexcept {
  return op.document.size() + (op.new_id != nullptr ? id_element_bytes : 0);
}

std::size_t ChildMessage::operations_bytes_max(const Request& request,
                                               const WriteCommand& command) noexcept {
  std::size_t body_bytes = request.body.size();
  if (!command.contiguous) body_bytes -= request.body[command.list_name].bytes.size();
  const std::size_t taken = envelope_bytes_max + body_bytes;
  return taken < limits::message_bytes_max ? limits::message_bytes_max - taken : 0;
}

Task<Result<ChildMessage>> ChildMessage::build(Context& context, const Request& request,
                                               const WriteCommand& command,
                                               std::span<const ChildOp> ops) {
  ChildMessage child;
  TimeSlice slice(context.pump);
  child.documents_ = neighbours(ops);
  if (child.documents_.empty()) {
    std::size_t bytes = 0;
    for (const ChildOp& op : ops) {
      bytes += bytes_of(op);
      if (slice.is_over_short(listed_op_bytes)) co_await slice.next();
    }
    SPILLWAY_CO_TRY(buffer, co_await take_buffer(context, request, context.shared.memory.writes, bytes, "a write"));
    child.copied_ = *std::move(buffer);
    slice.renew();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const ChildOp& op = ops[i];
      if (i + 1 < ops.size()) prefetch_beginning(ops[i + 1].document);
      append_document(child.copied_, op);
      if (slice.is_over_short(listed_op_bytes + op.document.size() / copied_bytes_per_step_byte)) {
        co_await slice.next();
      }
    }
    child.documents_ = child.copied_.bytes();
  }
  const BsonDoc body = co_await child_body(slice, request, command, ops);
  const std::string_view name = command.list_name;
  RecycledBytes& head = child.head_;
  head.reserve(1 + body.size() + 1 + 4 + name.size() + 1);
  head.push_back(body_kind);
  head.insert(head.end(), body.view().data(), body.view().data() + body.size());
  head.push_back(sequence_kind);
  std::uint8_t size[4];
  store_le(size, static_cast<std::uint32_t>(4 + name.size() + 1 + child.documents_.size()));
  head.insert(head.end(), size, size + sizeof size);
  head.insert(head.end(), name.begin(), name.end());
  head.push_back(0);
  co_return std::move(child);
}

shard::Command ChildMessage::command() const noexcept {
  shard::Command command;
  command.sections[0] = {const_cast<std::uint8_t*>(head_.data()), head_.size()};
  command.sections[1] = {const_cast<std::uint8_t*>(documents_.data()), documents_.size()};
  command.section_count = 2;
  return command;
}

}  // namespace spillway::exec
