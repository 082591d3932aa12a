#include "proxy/server/traces/otlp.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <vector>

#include "cursor/bson_writer.h"
#include "cursor/hex.h"

namespace spillway::server {

namespace {

// Of the protocol.
enum class SpanKind : std::int32_t { server = 2, client = 3 };
constexpr std::int32_t status_error = 2;
constexpr std::int32_t flag_sampled = 0x1, flag_says_remote = 0x100, flag_remote = 0x200;

std::string span_id_text(std::uint64_t id) { return fmt::format("{:016x}", id); }

// The attributes of what is open: {key, value: {…}}.
class Attributes {
 public:
  explicit Attributes(BsonWriter& out) : out_(out) { out_.begin_array("attributes"); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() { out_.end(); }
  void text(std::string_view key, std::string_view value) { put(key, "stringValue", value); }
  // The encoding has 64-bit numbers as text.
  void number(std::string_view key, std::int64_t value) { put(key, "intValue", fmt::format("{}", value)); }
  template <class Names>
  void texts(std::string_view key, const Names& names) {
    out_.begin_document_item().append("key", key).begin_document("value").begin_document("arrayValue");
    out_.begin_array("values");
    for (const std::string_view name : names) out_.begin_document_item().append("stringValue", name).end();
    out_.end().end().end().end();
  }

 private:
  void put(std::string_view key, std::string_view type, std::string_view value) {
    out_.begin_document_item().append("key", key).begin_document("value").append(type, value).end().end();
  }
  BsonWriter& out_;
};

void put_server(Attributes& attributes, std::string_view host, std::int64_t port) {
  attributes.text("server.address", host);
  attributes.number("server.port", port);
}

// "127.0.0.1:27017".
void put_server(Attributes& attributes, const std::string& address) {
  std::int64_t port = 0;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return;
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  std::string_view host = std::string_view(address).substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  put_server(attributes, host, port);
}

// The code says everything: a message may hold values of documents.
void put_error(Attributes& attributes, std::int32_t code) {
  if (code == 0) return;
  const std::string text = fmt::format("{}", code);
  attributes.text("db.response.status_code", text);
  attributes.text("error.type", text);
}

void put_status(BsonWriter& out, std::int32_t code) {
  if (code == 0) return;
  out.begin_document("status").append("code", status_error).append("message", error_code_name(code)).end();
}

void put_operation(Attributes& attributes, const exec::TracedCommand& command, std::string_view operation) {
  attributes.text("db.system.name", "mongodb");
  attributes.text("db.operation.name", operation);
  if (!command.db.empty()) attributes.text("db.namespace", command.db);
  if (!command.collection.empty()) attributes.text("db.collection.name", command.collection);
}

class SpanWriter {
 public:
  SpanWriter(BsonWriter& out, const exec::TracedCommand& command, SpanIds& ids)
      : out_(out), command_(command), ids_(ids), trace_id_(hex(command.parent.trace_id)) {}

  void write() {
    const std::string own_id = begin(target(command_.name), SpanKind::server, hex(command_.parent.span_id),
                                     command_.began, command_.ended, flag_remote);
    {
      Attributes attributes(out_);
      put_operation(attributes, command_, command_.name);
      put_server(attributes, command_.server);
      put_error(attributes, command_.error);
      attributes.texts("spillway.shards", shards());
      if (command_.inside) {
        attributes.number("spillway.inside_us",
                          std::chrono::duration_cast<std::chrono::microseconds>(*command_.inside).count());
      }
      attributes.number("spillway.reply_bytes", static_cast<std::int64_t>(command_.reply_bytes));
    }
    put_status(out_, command_.error);
    out_.end();
    for (const shard::TracedCall& call : command_.calls.calls()) write(call, own_id);
  }

 private:
  void write(const shard::TracedCall& call, const std::string& parent_id) {
    begin(target(call.command), SpanKind::client, parent_id, call.began, call.ended, 0);
    {
      Attributes attributes(out_);
      put_operation(attributes, command_, call.command);
      if (call.host.port != 0) put_server(attributes, call.host.host.str(), call.host.port);
      put_error(attributes, call.error);
      attributes.text("spillway.shard", call.shard);
      attributes.number("spillway.attempt", call.attempt);
    }
    put_status(out_, call.error);
    out_.end();
  }

  // Returns the new span's id.
  std::string begin(const std::string& name, SpanKind kind, const std::string& parent_id, TimePoint began,
                    TimePoint ended, std::int32_t flags) {
    std::string id = span_id_text(ids_.next());
    out_.begin_document_item().append("traceId", trace_id_).append("spanId", id).append("parentSpanId", parent_id);
    out_.append("flags", flag_sampled | flag_says_remote | flags);
    out_.append("name", name).append("kind", static_cast<std::int32_t>(kind));
    out_.append("startTimeUnixNano", wall(began)).append("endTimeUnixNano", wall(ended));
    return id;
  }

  std::string wall(TimePoint at) const {
    return fmt::format("{}", command_.began_wall_ns + (at - command_.began).count());
  }
  std::string target(std::string_view operation) const {
    return command_.collection.empty() ? fmt::format("{} {}", operation, command_.db)
                                       : fmt::format("{} {}.{}", operation, command_.db, command_.collection);
  }
  std::vector<std::string_view> shards() const {
    std::vector<std::string_view> names;
    for (const shard::TracedCall& call : command_.calls.calls()) {
      if (std::find(names.begin(), names.end(), call.shard) == names.end()) names.push_back(call.shard);
    }
    return names;
  }

  BsonWriter& out_;
  const exec::TracedCommand& command_;
  SpanIds& ids_;
  const std::string trace_id_;
};

}  // namespace

std::uint64_t SpanIds::next() noexcept {
  std::uint64_t mixed = 0;
  do {
    state_ += 0x9e3779b97f4a7c15;
    mixed = state_;
    mixed = (mixed ^ mixed >> 30U) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27U) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31U;
  } while (mixed == 0);
  return mixed;
}

std::string otlp_request(const TraceSource& source, std::span<const std::unique_ptr<exec::TracedCommand>> commands,
                         SpanIds& ids) {
  BsonWriter out;
  std::size_t spans = 1;
  out.begin_array("resourceSpans").begin_document_item();
  out.begin_document("resource");
  {
    Attributes attributes(out);
    attributes.text("service.name", "spillway");
    attributes.text("service.version", source.version);
    attributes.text("service.instance.id", source.instance);
  }
  out.end();
  out.begin_array("scopeSpans").begin_document_item();
  out.begin_document("scope").append("name", "spillway").append("version", source.version).end();
  out.begin_array("spans");
  for (const auto& command : commands) {
    SpanWriter(out, *command, ids).write();
    spans += command->spans();
  }
  out.end().end().end().end().end();
  return to_json(std::move(out).finish(), spans * otlp_span_bytes_max);
}

std::uint64_t rejected_spans(std::string_view answer) noexcept {
  constexpr std::string_view field = "\"rejectedSpans\"";
  const std::size_t name = answer.find(field);
  if (name == std::string_view::npos) return 0;
  const std::size_t begin = answer.find_first_not_of(" \t\r\n:\"", name + field.size());
  std::uint64_t count = 0;
  if (begin != std::string_view::npos) std::from_chars(answer.data() + begin, answer.data() + answer.size(), count);
  return count;
}

}  // namespace spillway::server
