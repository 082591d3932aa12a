#include "proxy/shard/handshake.h"

#include <sys/utsname.h>

#include <algorithm>

#include "allocator/limits.h"

namespace spillway::shard {

namespace {

void append_metadata(BsonWriter& writer, const Introduction& introduction) {
  utsname system{};
  const bool known = ::uname(&system) == 0;
  writer.begin_document("client");
  if (!introduction.application_name.empty()) {
    const std::string_view name = introduction.application_name;
    writer.begin_document("application");
    writer.append("name", name.substr(0, limits::application_name_bytes_max));
    writer.end();
  }
  writer.begin_document("driver");
  writer.append("name", "spillway");
  writer.append("version", SPILLWAY_VERSION);
  writer.end();
  writer.begin_document("os");
  writer.append("type", known ? std::string_view(system.sysname) : std::string_view("unknown"));
  if (known) writer.append("architecture", std::string_view(system.machine));
  writer.end();
  writer.end();
}

// The first of our compressors that the server lists.
std::optional<wire::Compressor> agreed(const std::vector<wire::Compressor>& ours, DocView reply) {
  const ValueView list = reply["compression"];
  if (!list.is_array()) return std::nullopt;
  for (const wire::Compressor compressor : ours) {
    for (const Element& name : list.as_document()) {
      if (name.is_string() && name.as_string() == wire::compressor_name(compressor))
        return compressor;
    }
  }
  return std::nullopt;
}

}  // namespace

BsonDoc first_hello(const Introduction& introduction) {
  BsonWriter writer;
  writer.append("isMaster", 1).append("helloOk", true);
  append_metadata(writer, introduction);
  writer.begin_array("compression");
  for (const wire::Compressor compressor : introduction.compressors) {
    writer.append_item(wire::compressor_name(compressor));
  }
  writer.end();
  if (introduction.as_router) {
    // A server closes connections of routers that are older than itself when its featureCompatibilityVersion changes.
    constexpr std::int32_t newer_than_any = 1000;
    writer.begin_document("internalClient").append("minWireVersion", std::int32_t{0});
    writer.append("maxWireVersion", newer_than_any).end();
  }
  writer.append("$db", "admin");
  return std::move(writer).finish();
}

BsonDoc later_hello(bool hello_ok) {
  BsonWriter writer;
  writer.append(hello_ok ? "hello" : "isMaster", 1).append("$db", "admin");
  return std::move(writer).finish();
}

BsonDoc build_info_command() {
  BsonWriter writer;
  writer.append("buildInfo", 1).append("$db", "admin");
  return std::move(writer).finish();
}

Task<Result<Reply>> exchange(Connection& connection, DocView command, LinkBudgets budgets,
                             TimePoint deadline) {
  const Command outgoing = Command::of_body(command);
  const bool sent = co_await connection.send(outgoing, deadline);
  std::optional<Error> failed;
  if (sent) {
    ReplyRoom room;
    auto own = budgets.own.try_reserve(Buffer::charged_bytes(limits::handshake_reply_bytes));
    if (own) room.paid = *std::move(own);
    auto received = co_await connection.receive(budgets.common, false, deadline, &room);
    if (received.has_value()) co_return *std::move(received);
    failed = received.error();
  } else {
    failed = connection.failure();
  }
  if (failed->is(ErrorCode::max_time_ms_expired)) {
    co_return Error(ErrorCode::network_timeout, "it did not answer in time");
  }
  co_return *std::move(failed);
}

Task<Result<ServerDescription>> introduce(Connection& connection, const Introduction& introduction,
                                          LinkBudgets budgets, TimePoint deadline) {
  const BsonDoc hello = first_hello(introduction);
  auto answered = co_await exchange(connection, hello.view(), budgets, deadline);
  if (answered.has_error()) co_return answered.error();
  const DocView reply = answered->body();
  if (const auto compressor = agreed(introduction.compressors, reply)) {
    connection.use_compression(*compressor, budgets.common);
  }
  co_return describe_server(reply, Clock::now());
}

}  // namespace spillway::shard
