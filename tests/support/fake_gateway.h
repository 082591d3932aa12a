// A worker over shards that are functions: no sockets, no threads.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proxy/base/memory_wait.h"
#include "proxy/exec/access/transactions.h"
#include "proxy/exec/core/client.h"
#include "proxy/exec/core/context.h"
#include "proxy/exec/core/request.h"
#include "proxy/exec/core/response.h"
#include "proxy/exec/core/shared.h"
#include "proxy/shard/connection.h"
#include "proxy/shard/reply_verdict.h"
#include "proxy/wire/message.h"
#include "proxy/wire/op_msg.h"
#include "tests/support/routing_text.h"
#include "tests/support/shard_command.h"

namespace spillway::test {

// A document from JSON with single quotes.
inline BsonDoc doc(std::string_view json) {
  std::string text(json);
  std::replace(text.begin(), text.end(), '\'', '"');
  INFO("document " << text);
  auto parsed = BsonDoc::from_json(text);
  REQUIRE(parsed.has_value());
  return *std::move(parsed);
}

// Every command is answered at once by `answer`; all that were sent are kept in `sent`.
class FakeGateway final : public shard::Gateway {
 public:
  using Answer = std::function<Result<BsonDoc>(std::uint16_t shard, DocView command)>;

  FakeGateway(const catalog::RoutingSnapshot& routing, Answer answer) : answer_(std::move(answer)) {
    for (const catalog::Shard& shard : routing.shards()) add(shard.name);
  }

  Task<Result<shard::Reply>> call(std::uint16_t shard, shard::Command command,
                                  shard::CallOptions options) override {
    const BsonDoc body = with_suffix(body_of(command), command.suffix);
    sent.emplace_back(shard, body);
    sent_as_router.push_back(options.as_router);
    sent_to_host.push_back(options.host ? options.host->text() : "");
    retries.push_back(options.retry);
    auto answered = answer_(shard, body.view());
    if (answered.has_error()) co_return answered.error();
    const std::size_t bytes = wire::op_msg_prefix_bytes + answered->size();
    auto buffer = Buffer::allocate(*options.budget, bytes);
    if (!buffer) co_return memory_refused(*options.budget, bytes, "a reply");
    const std::uint8_t prefix[wire::op_msg_prefix_bytes] = {};
    buffer->append(prefix, sizeof prefix);
    buffer->append(answered->view().data(), answered->size());
    wire::MessageHeader header;
    header.message_length = static_cast<std::int32_t>(bytes);
    header.op_code = static_cast<std::int32_t>(wire::OpCode::msg);
    wire::write_header(buffer->data(), header);
    shard::Reply reply;
    reply.bytes = *std::move(buffer);
    reply.message_bytes = bytes;
    reply.host = states_[shard].hosts.front().address;
    shard::judge_reply(reply);
    co_return reply;
  }
  const std::vector<shard::ShardState>& states() const override { return states_; }
  std::vector<shard::ShardState>& states() { return states_; }
  const shard::CallCounts* call_counts(std::size_t shard) const noexcept override { return &counts[shard]; }
  Result<std::uint16_t> add_shard(shard::ShardAddress address, shard::ShardCredentials) override {
    add(std::move(address.name));
    return static_cast<std::uint16_t>(states_.size() - 1);
  }
  Task<bool> wait_until_known(TimePoint) override { co_return true; }
  void tick(TimePoint) override {}
  Task<void> shut_down() override { co_return; }

  std::vector<std::pair<std::uint16_t, BsonDoc>> sent;
  std::deque<shard::CallCounts> counts;  // by shard
  std::vector<bool> sent_as_router;  // CallOptions::as_router of each
  std::vector<std::string> sent_to_host;  // likewise, CallOptions::host; empty: any
  std::vector<shard::RetryPolicy> retries;  // CallOptions::retry of each

 private:
  // A body in a piece of its own, or whole sections as they arrived.
  static DocView body_of(const shard::Command& command) {
    const iovec& first = command.sections.front();
    if (first.iov_len > 1) return DocView::trusted(static_cast<const std::uint8_t*>(first.iov_base) + 1);
    return DocView::trusted(command.sections[1].iov_base);
  }

  void add(std::string name) {
    shard::ShardState& state = states_.emplace_back();
    state.name = std::move(name);
    counts.emplace_back();
    state.max_wire_version = 21;
    shard::HostState& host = state.hosts.emplace_back();
    host.address = {"127.0.0.1", static_cast<std::uint16_t>(27017 + states_.size())};
    host.known = host.primary = true;
  }

  Answer answer_;
  std::vector<shard::ShardState> states_;
};

inline std::shared_ptr<const catalog::RoutingSnapshot> routing_of(const std::string& yaml) {
  auto loaded = test::load_routing(yaml, "test.yaml");
  if (loaded.has_error()) FAIL(loaded.error().message);
  return *loaded;
}

// One worker, its shared state and its shards.
struct FakeWorker {
  FakeWorker(std::shared_ptr<const catalog::RoutingSnapshot> routing, FakeGateway::Answer answer)
      : gateway(*routing, std::move(answer)) {
    shared.routing = std::move(routing);
    context.static_router.replace(shared.routing);
    shared.workers.push_back(&context);
    shared.facts.host_name = "router:27017";
    shared.facts.start_time = Clock::now();
  }

  // Runs a task to its end. It must not wait for anything but this loop.
  template <class T>
  T run(Task<T> task) {
    std::optional<T> result;
    loop.spawn(keep(std::move(task), &result));
    loop.poll_until_idle();
    REQUIRE(result.has_value());
    return *std::move(result);
  }

  Loop loop{Loop::Drive::manual};
  Pump pump{loop};
  exec::Shared shared{0};
  FakeGateway gateway;
  exec::Context context{loop, pump, gateway, shared, 0, {}};

 private:
  template <class T>
  static Task<void> keep(Task<T> task, std::optional<T>* result) {
    T value = co_await task;
    result->emplace(std::move(value));
  }
};

// A client's command: the document and the request that points into it.
struct FakeRequest {
  // `worker`: for handlers that run_command() does not call; outlives the request.
  explicit FakeRequest(std::string_view json, FakeWorker* worker = nullptr) : body(doc(json)), sections(1, 0) {
    sections.insert(sections.end(), body.view().data(), body.view().data() + body.size());
    wire::OpMsg message;
    message.body = body;
    auto parsed = exec::parse_request(message, sections, Clock::now());
    if (parsed.has_error()) FAIL(parsed.error().message);
    request = *std::move(parsed);
    if (worker != nullptr) request.routes = &routes.emplace(worker->context.static_router.table());
  }
  FakeRequest(const FakeRequest&) = delete;
  FakeRequest& operator=(const FakeRequest&) = delete;
  BsonDoc body;
  std::vector<std::uint8_t> sections;  // of its message: the kind of a body, and the body
  std::optional<exec::Routes> routes;
  exec::Request request;
};

// The whole reply document.
inline BsonDoc reply_of(const exec::Response& response) {
  RecycledBytes bytes;
  for (const iovec& piece : response.pieces()) {
    const auto* from = static_cast<const std::uint8_t*>(piece.iov_base);
    bytes.insert(bytes.end(), from, from + piece.iov_len);
  }
  REQUIRE(DocView::parse(bytes).has_value());
  return BsonDoc(std::move(bytes));
}

}  // namespace spillway::test
