// Shards that answer from a script, and one worker in front of them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/limits.h"
#include "cursor/bson_writer.h"
#include "proxy/base/loop.h"
#include "proxy/base/pump.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/commands/command_table.h"
#include "proxy/exec/commands/command_trace.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/shared.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/gateway.h"
#include "proxy/shard/interrupt.h"
#include "proxy/shard/reply_verdict.h"
#include "proxy/wire/op_msg.h"
#include "tests/support/clock_manual.h"
#include "tests/support/shard_command.h"
#include "tests/unit/exec/write_support.h"

namespace spillway::exec::test {

// What a shard was sent, as one document: its body with the sequence as an array.
struct Sent {
  catalog::ShardIndex shard = 0;
  BsonDoc command;
  std::vector<std::uint8_t> sections;  // as they stood in the message
  std::string name() const { return std::string(command.view().first().name); }
};

// Shards that answer what `answer` says: a JSON reply, or nothing for a broken connection.
class ScriptedShards final : public shard::Gateway {
 public:
  using Answer = std::function<std::optional<std::string>(const Sent& sent)>;

  ScriptedShards(std::size_t shards, bool replica_sets, MemoryBudget& budget) : budget_(budget) {
    for (std::size_t i = 0; i < shards; ++i) {
      shard::ShardState& state = states_.emplace_back();
      state.name = "s" + std::to_string(i);
      state.replica_set = replica_sets;
      state.max_wire_version = 17;
      state.hosts.emplace_back().known = true;
      if (replica_sets) state.set_name = "rs" + std::to_string(i);
    }
  }

  Answer answer;
  // Set: the next call ends so, before it is sent or after that.
  std::optional<Error> fails_unsent, fails_sent;
  std::function<void(std::vector<std::uint8_t>& message)> spoils;  // answers
  std::vector<Sent> sent;
  void set_wire_version(std::int32_t version) {
    for (shard::ShardState& state : states_) state.max_wire_version = version;
  }

  void offer_sort_key() {
    for (shard::ShardState& state : states_) state.offers_sort_key = true;
  }

  Task<Result<shard::Reply>> call(std::uint16_t shard, shard::Command command,
                                  shard::CallOptions options) override {
    if (fails_unsent) co_return *std::exchange(fails_unsent, std::nullopt);
    if (const Error* why = shard::requested_of(options.interrupt)) co_return *why;
    if (options.time != nullptr) options.time->note_call(options.use != shard::Use::point);
    sent.push_back({shard, parse(command), sections_of(command)});
    if (options.time != nullptr && options.time->trace() != nullptr) {
      options.time->trace()->add({.shard = states_[shard].name,
                                  .command = command.name(shard::CallTrace::name_bytes_max),
                                  .host = {"h", 1},
                                  .began = Clock::now(),
                                  .ended = Clock::now()});
    }
    if (fails_sent) co_return *std::exchange(fails_sent, std::nullopt);
    const auto said = answer(sent.back());
    if (!said) co_return Error(ErrorCode::host_unreachable, "connection reset");
    std::vector<std::uint8_t> bytes;
    wire::begin_op_msg(bytes, 1, 1, 0);
    const BsonDoc body = doc(*said);
    wire::append_body(bytes, body);
    wire::finish_op_msg(bytes);
    if (spoils) spoils(bytes);
    shard::Reply reply;
    auto buffer = Buffer::allocate(budget_, bytes.size());
    buffer->append(bytes.data(), bytes.size());
    reply.bytes = std::move(*buffer);
    reply.message_bytes = bytes.size();
    shard::judge_reply(reply);
    co_return reply;
  }
  const std::vector<shard::ShardState>& states() const override { return states_; }
  Task<bool> wait_until_known(TimePoint) override { co_return true; }
  void tick(TimePoint) override {}
  Task<void> shut_down() override { co_return; }

 private:
  static std::vector<std::uint8_t> sections_of(const shard::Command& command) {
    std::vector<std::uint8_t> bytes;
    for (std::size_t i = 0; i < command.section_count; ++i) {
      const auto* from = static_cast<const std::uint8_t*>(command.sections[i].iov_base);
      bytes.insert(bytes.end(), from, from + command.sections[i].iov_len);
    }
    return bytes;
  }
  static BsonDoc parse(const shard::Command& command) {
    std::vector<std::uint8_t> bytes = sections_of(command);
    bytes.insert(bytes.begin(), 20, 0);
    CHECK(bytes.size() + command.suffix.size() <= limits::message_bytes_max);
    store_le(bytes.data(), static_cast<std::int32_t>(bytes.size()));
    store_le(bytes.data() + 12, std::int32_t{2013});
    auto message = wire::parse_op_msg(bytes);
    if (message.has_error()) FAIL("a shard was sent a broken message: " << message.error().message);
    BsonWriter out;
    out.append_elements(spillway::test::with_suffix(message->body, command.suffix));
    for (const wire::DocSequence& sequence : message->sequences) {
      out.begin_array(sequence.name);
      for (const DocView document : sequence) out.append_item(document);
      out.end();
    }
    return std::move(out).finish();
  }

  MemoryBudget& budget_;
  std::vector<shard::ShardState> states_;
};

// One worker over scripted shards, with one sharded collection.
class Router {
 public:
  explicit Router(catalog::CollectionRouting collection, bool replica_sets = true)
      : shards(collection.all_shards().size(), replica_sets, shared_.memory.replies) {
    catalog::RoutingParts parts;
    for (std::size_t i = 0; i < shards.states().size(); ++i) {
      parts.shards.push_back({"s" + std::to_string(i), "", static_cast<catalog::ShardIndex>(i)});
    }
    parts.collections.push_back(std::move(collection));
    shared_.routing = std::make_shared<const catalog::RoutingSnapshot>(std::move(parts));
    // Not movable: built in place.
    context_.reset(new Context{.loop = loop_,
                               .pump = pump_,
                               .gateway = shards,
                               .shared = shared_,
                               .worker = 0,
                               .clients = {}});
  }

  // Runs a command whose body is this JSON; $db is added, and a document sequence if it has a name.
  // Returns the reply as JSON; "closed": the connection ends without one.
  std::string run(std::string_view json, std::string_view list = {},
                  const std::vector<DocView>& documents = {}) {
    BsonWriter whole;
    const BsonDoc given = doc(json);
    whole.append_elements(given);
    const CommandSpec* const spec = command_named(given.view().first().name);
    if (!given.view()["$db"].exists())
      whole.append("$db", spec != nullptr && spec->is(Trait::admin_only) ? "admin" : "db");
    const BsonDoc body = std::move(whole).finish();
    std::vector<std::uint8_t> bytes;
    wire::begin_op_msg(bytes, 1, 0, 0);
    wire::append_body(bytes, body);
    if (!list.empty()) {
      bytes.push_back(1);
      const std::size_t start = bytes.size();
      bytes.resize(start + 4);
      bytes.insert(bytes.end(), list.begin(), list.end());
      bytes.push_back(0);
      for (const DocView one : documents)
        bytes.insert(bytes.end(), one.data(), one.data() + one.size());
      store_le(bytes.data() + start, static_cast<std::int32_t>(bytes.size() - start));
    }
    wire::finish_op_msg(bytes);
    REQUIRE(bytes.size() <= limits::message_bytes_max);
    auto message = wire::parse_op_msg(bytes);
    REQUIRE(message.has_value());
    auto request = parse_request(*message, Bytes(bytes).subspan(20), Clock::now());
    if (request.has_error()) return text_of(error_document(request.error()));
    client_sections.assign(bytes.begin() + 20, bytes.end());
    shard::ShardTime time;
    request->shard_time = &time;
    request->interrupt = &interrupt;
    std::optional<std::string> reply;
    loop_.spawn(run_one(this, &*request, &reply));
    while (!reply) {
      if (loop_.poll_until_idle() > 0) continue;
      if (const auto next = loop_.next_timer()) spillway::test::set_time(std::max(*next, Clock::now()));
    }
    return *reply;
  }

  // What was sent, one line per command: "s0 {…}", without $db and lsid.
  std::vector<std::string> sent() const {
    std::vector<std::string> lines;
    for (const Sent& one : shards.sent) {
      BsonWriter out;
      for (const Element& field : one.command.view()) {
        if (field.name != "$db" && field.name != "lsid") out.append_element(field);
      }
      const BsonDoc shown = std::move(out).finish();
      lines.push_back("s" + std::to_string(one.shard) + " " + text_of(shown));
    }
    return lines;
  }
  Shared& shared() { return shared_; }
  Context& context() { return *context_; }
  Client& client() { return client_; }

 private:
  static Task<void> run_one(Router* self, Request* request, std::optional<std::string>* out) {
    const TimePoint first_tried = request->arrived + self->taken;
    CommandTrace trace(self->shared_.tracer.get(), *request, self->client_, *request->shard_time, request->arrived,
                       first_tried);
    auto running = run_command(*self->context_, self->client_, *request);
    const Response reply = co_await running;
    trace.answered(reply);
    if (reply.closes) {
      *out = "closed";
      co_return;
    }
    std::vector<std::uint8_t> bytes;
    for (const iovec& piece : reply.pieces()) {
      const auto* from = static_cast<const std::uint8_t*>(piece.iov_base);
      bytes.insert(bytes.end(), from, from + piece.iov_len);
    }
    *out = text_of(DocView::trusted(bytes.data()));
  }

  Shared shared_{0};
  Loop loop_{Loop::Drive::manual};
  Pump pump_{loop_};

 public:
  ScriptedShards shards;
  std::vector<std::uint8_t> client_sections;  // of the last command
  Duration taken{};  // by each command, until the first byte of its reply
  shard::Interrupt interrupt;  // of all commands

 private:
  std::unique_ptr<Context> context_;
  Client client_;
};

inline constexpr const char* session_fields =
    "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAA==', 'subType': '04'}}}";

}  // namespace spillway::exec::test
