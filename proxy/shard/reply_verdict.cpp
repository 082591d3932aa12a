#include "proxy/shard/reply_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cursor/bson_writer.h"
#include "proxy/base/memory_wait.h"
#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"

namespace spillway::shard {

namespace {

constexpr std::string_view write_concern_error_field = "writeConcernError";

std::int32_t code_of(ValueView value) noexcept {
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(value.to_int64().value_or(0), 0, INT32_MAX));
}

void append_relabelled(BsonWriter& writer, DocView error) {
  const ValueView message = error["errmsg"];
  writer.begin_document(write_concern_error_field);
  writer.append("code", static_cast<std::int32_t>(ErrorCode::host_unreachable));
  writer.append("codeName",
                error_code_name(static_cast<std::int32_t>(ErrorCode::host_unreachable)));
  writer.append("errmsg", fmt::format("the shard changed its state :: caused by :: {}",
                                      message.is_string() ? message.as_string() : ""));
  writer.end();
}

}  // namespace

ReplyVerdict judge_reply(DocView reply) noexcept {
  ReplyVerdict verdict;
  bool ok = false;
  std::int32_t code = 0;
  DocIterator it = reply.begin();
  for (; !it.done(); ++it) {
    if (it->name == "ok") {
      ok = it->truthy();
    } else if (it->name == "code") {
      code = code_of(*it);
    } else if (it->name == write_concern_error_field && it->is_document()) {
      verdict.write_concern_code = code_of(it->as_document()["code"]);
    }
  }
  verdict.well_formed = !it.malformed();
  if (!ok) verdict.code = code;
  return verdict;
}

Result<Buffer> relabel_write_concern_error(const Reply& reply, MemoryBudget& budget) {
  BsonWriter writer;
  for (const Element& element : reply.body()) {
    if (element.name == write_concern_error_field) {
      append_relabelled(writer, element.as_document());
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
