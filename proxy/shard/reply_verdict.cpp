#include "proxy/shard/reply_verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "cursor/bson_writer.h"
#include "proxy/base/memory_wait.h"
#include "proxy/shard/topology.h"
#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"

namespace spillway::shard {

namespace {

constexpr std::string_view ok_field = "ok";
constexpr std::string_view cursor_field = "cursor";
constexpr std::string_view write_concern_error_field = "writeConcernError";
constexpr std::string_view write_errors_field = "writeErrors";
constexpr std::string_view cluster_time_field = "$clusterTime";
constexpr std::string_view operation_time_field = "operationTime";

std::int32_t code_of(ValueView value) noexcept {
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(value.to_int64().value_or(0), 0, INT32_MAX));
}

// 0: the code is no state change.
std::int32_t state_change_of(ValueView error) noexcept {
  const std::int32_t code = error.is_document() ? code_of(error.as_document()["code"]) : 0;
  return is_state_change(code) ? code : 0;
}

std::int32_t first_state_change(ValueView write_errors) noexcept {
  if (!write_errors.is_array()) return 0;
  for (const Element& error : write_errors.as_document()) {
    if (const std::int32_t code = state_change_of(error); code != 0) return code;
  }
  return 0;
}

void append_relabelled(BsonWriter& writer, DocView error, std::string_view what) {
  for (const Element& field : error) {
    if (field.name == "code") {
      writer.append("code", static_cast<std::int32_t>(ErrorCode::host_unreachable));
    } else if (field.name == "codeName") {
      writer.append("codeName", error_code_name(static_cast<std::int32_t>(ErrorCode::host_unreachable)));
    } else if (field.name == "errmsg") {
      writer.append("errmsg", fmt::format("{} :: caused by :: {}", what, field.is_string() ? field.as_string() : ""));
    } else {
      writer.append_element(field);
    }
  }
}

// A refused statement was not executed; an interrupted one may have been, in part.
std::string_view told_of(std::int32_t code) noexcept {
  return is_refusal(code) ? "the shard changed its state"
                          : "the shard changed its state, and the statement may have been executed in part";
}

void append_relabelled_all(BsonWriter& writer, DocView write_errors) {
  writer.begin_array(write_errors_field);
  for (const Element& error : write_errors) {
    const std::int32_t code = state_change_of(error);
    if (code == 0) {
      writer.append_item(ValueView(error));
      continue;
    }
    writer.begin_document_item();
    append_relabelled(writer, error.as_document(), told_of(code));
    writer.end();
  }
  writer.end();
}

}  // namespace

ReplyVerdict judge_reply(DocView reply) noexcept {
  ReplyVerdict verdict;
  bool ok = false;
  std::int32_t code = 0;
  std::size_t oks = 0, cursors = 0, fields = 0;
  DocIterator it = reply.begin();
  for (; !it.done(); ++it, ++fields) {
    // By length first: most fields of most replies are none of these.
    switch (it->name.size()) {
      case ok_field.size():
        if (it->name != ok_field) break;
        ok = it->truthy();
        // Of two the first counts, as in every other lookup.
        if (oks++ == 0) verdict.says_ok = ok && (it->is_number() || it->type == BsonType::boolean);
        break;
      case cursor_field.size():
        if (it->name != cursor_field) break;
        verdict.cursor = cursors++ == 0 && it->is_document() ? it->bytes.data() : nullptr;
        break;
      case std::string_view("code").size():
        if (it->name == "code") code = code_of(*it);
        break;
      case write_errors_field.size():
        if (verdict.inner_state_change == 0 && it->name == write_errors_field) {
          verdict.inner_state_change = first_state_change(*it);
        }
        break;
      case cluster_time_field.size():
        if (it->is_document() && it->name == cluster_time_field) verdict.cluster_time = it->bytes.data();
        break;
      case operation_time_field.size():
        if (it->type == BsonType::timestamp && it->name == operation_time_field) {
          verdict.operation_time = it->bytes.data();
        }
        break;
      case write_concern_error_field.size():
        if (verdict.inner_state_change == 0 && it->name == write_concern_error_field) {
          verdict.inner_state_change = state_change_of(*it);
        }
        break;
      default:
        break;
    }
  }
  verdict.well_formed = !it.malformed();
  verdict.plain = oks + cursors == fields;
  if (!ok) verdict.code = code;
  return verdict;
}

ReplyVerdict judge_reply(Reply& reply) noexcept {
  const ReplyVerdict verdict = judge_reply(reply.body());
  const auto offset_of = [&](const std::uint8_t* value) {
    return value == nullptr ? 0 : static_cast<std::uint32_t>(value - reply.bytes.data());
  };
  reply.operation_time_at = offset_of(verdict.operation_time);
  reply.cluster_time_at = offset_of(verdict.cluster_time);
  reply.cursor_at = offset_of(verdict.cursor);
  reply.says_ok = verdict.says_ok && verdict.well_formed;
  reply.plain = verdict.plain && verdict.well_formed;
  return verdict;
}

Result<Buffer> relabel_state_changes(const Reply& reply, MemoryBudget& budget) {
  // A rewritten reply would hide that its list of errors is damaged.
  if (auto valid = reply.body().validate(); valid.has_error()) return valid.error();
  BsonWriter writer;
  for (const Element& element : reply.body()) {
    if (element.name == write_errors_field && element.is_array()) {
      append_relabelled_all(writer, element.as_document());
    } else if (element.name == write_concern_error_field && state_change_of(element) != 0) {
      writer.begin_document(write_concern_error_field);
      append_relabelled(writer, element.as_document(), "the shard changed its state");
      writer.end();
    } else if (element.name != "topologyVersion") {
      writer.append_element(element);
    }
  }
  const BsonDoc document = std::move(writer).finish();
  const std::size_t total = wire::op_msg_prefix_bytes + document.size();
  auto bytes = allocate_now(budget, total);
  if (!bytes) return memory_refused(budget, total, "a shard's reply");
  const auto header = wire::parse_reply_header(reply.bytes.bytes());
  const auto prefix = wire::op_msg_prefix(total, header.has_value() ? header->request_id : 0,
                                          header.has_value() ? header->response_to : 0, 0);
  bytes->append(prefix.data(), prefix.size());
  bytes->append(document.view().data(), document.size());
  return *std::move(bytes);
}

}  // namespace spillway::shard
