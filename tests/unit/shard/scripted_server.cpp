#include "tests/unit/shard/scripted_server.h"

#include "proxy/wire/compression.h"
#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"

namespace spillway::test {

ScriptedServer::ScriptedServer(Loop& loop, SimNetwork& network, std::string host,
                               std::uint16_t port)
    : loop_(loop), network_(network), host_(std::move(host)), port_(port) {
  restart();
}

ScriptedServer::~ScriptedServer() {
  network_.kill(host_, port_);
  SPILLWAY_CHECK(run_until(
      loop_, [&] { return serving_ == 0; }, std::chrono::hours(1)));
}

void ScriptedServer::restart() {
  network_.listen(host_, port_, [this](std::unique_ptr<Transport> transport) {
    return serve(std::move(transport));
  });
}

BsonDoc ScriptedServer::hello_reply() const {
  BsonWriter writer;
  const bool primary = role == Role::standalone || role == Role::primary || role == Role::router;
  writer.append("ismaster", primary).append("isWritablePrimary", primary).append("helloOk", true);
  if (role == Role::router) writer.append("msg", "isdbgrid");
  if (role == Role::primary || role == Role::secondary || role == Role::arbiter) {
    writer.append("setName", set_name).append("secondary", role == Role::secondary);
    if (role == Role::arbiter) writer.append("arbiterOnly", true);
    writer.begin_array("hosts");
    for (const std::string& member : members) writer.append_item(std::string_view(member));
    writer.end();
    writer.append("me", text()).append("setVersion", 1);
    if (role == Role::primary) {
      std::uint8_t id[12] = {};
      id[11] = static_cast<std::uint8_t>(election);
      writer.append_object_id("electionId", id);
    }
  }
  writer.begin_array("compression");
  for (const std::string& name : compression) writer.append_item(std::string_view(name));
  writer.end();
  writer.append("minWireVersion", 0).append("maxWireVersion", max_wire_version).append("ok", 1.0);
  return std::move(writer).finish();
}

Task<void> ScriptedServer::serve(std::unique_ptr<Transport> transport) {
  ++connections;
  struct Serving {
    explicit Serving(int& of) : count(of) { ++count; }
    ~Serving() { --count; }
    int& count;
  } serving(serving_);
  for (;;) {
    std::vector<std::uint8_t> message(16);
    auto reading_header = read_exactly(*transport, message);
    if (!co_await reading_header) co_return;
    const auto header = wire::parse_header(message);
    if (header.has_error()) co_return;
    message.resize(static_cast<std::size_t>(header->message_length));
    auto reading_rest = read_exactly(*transport, MutableBytes(message).subspan(16));
    if (!co_await reading_rest) co_return;
    auto answering = answer_one(*transport, std::move(message));
    if (!co_await answering) co_return;
  }
}

Task<bool> ScriptedServer::answer_one(Transport& transport, std::vector<std::uint8_t> message) {
  wire::MessageHeader header = *wire::parse_header(message);
  std::optional<wire::Compressor> compressor;
  if (header.is(wire::OpCode::compressed)) {
    ++compressed_messages;
    const auto envelope = wire::parse_compressed(message);
    compressor = envelope->compressor;
    std::vector<std::uint8_t> plain(16 + envelope->uncompressed_size);
    if (wire::decompress_message(header, *envelope, plain).has_error()) co_return false;
    message = std::move(plain);
  }
  const auto request = wire::parse_op_msg(message);
  if (request.has_error()) co_return false;
  const std::string name(request->body.first().name);
  BsonDoc reply;
  const bool handshake = name == "isMaster" || name == "hello" || name == "buildInfo";
  if (name == "buildInfo") {
    reply =
        *BsonDoc::from_json(mongod ? R"({"version": "8.0.0", "storageEngines": ["wt"], "ok": 1})"
                                   : R"({"version": "7.0.42", "ferretdbVersion": "1", "ok": 1})");
  } else if (handshake) {
    ++hellos;
    if (name == "isMaster" && request->body["client"].exists())
      first_hellos.emplace_back(request->body);
    reply = hello_reply();
  } else {
    ++commands;
    last_command = message;
    if (delay > Duration::zero()) co_await loop_.sleep_for(delay);
    reply = answer ? answer(request->body) : *BsonDoc::from_json(R"({"ok": 1})");
  }
  std::vector<std::uint8_t> out;
  wire::begin_op_msg(out, 7, header.request_id, 0);
  wire::append_body(out, reply);
  wire::finish_op_msg(out);
  if (!handshake && mangle) mangle(out);
  if (!handshake && compressor) {
    std::vector<std::uint8_t> packed(wire::compressed_message_size_max(*compressor, out.size()));
    packed.resize(*wire::compress_message(*compressor, out, packed));
    out = std::move(packed);
  }
  const bool cut = !handshake && cut_after > 0 && cut_after < out.size();
  if (cut) out.resize(cut_after);
  iovec piece{out.data(), out.size()};
  auto writing = write_all(transport, {&piece, 1});
  const bool written = co_await writing;
  if (cut) {
    // The bytes arrive before the reset does.
    co_await loop_.sleep_for(std::chrono::milliseconds(1));
    transport.reset();
    co_return false;
  }
  co_return written;
}

}  // namespace spillway::test
