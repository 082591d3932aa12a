#include "tests/support/run_query.h"
#include "tests/support/sim_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "proxy/wire/message.h"

namespace spillway::test {

namespace {

BsonDoc error_reply(std::int32_t code, std::string_view name, std::string_view message) {
  BsonWriter out;
  out.append("ok", 0.0).append("errmsg", message).append("code", code).append("codeName", name);
  return std::move(out).finish();
}

BsonDoc error_reply(const Error& error) {
  return error_reply(error.code, error_code_name(error.code), error.message);
}

BsonDoc ok_reply() {
  BsonWriter out;
  out.append("ok", 1.0);
  return std::move(out).finish();
}

std::string collection_of(DocView body) {
  const Element first = body.first();
  return first.is_string() ? std::string(first.as_string()) : std::string();
}

std::int64_t number(ValueView value, std::int64_t otherwise) {
  return value.to_int64().value_or(otherwise);
}

std::string database_of(DocView body) {
  const ValueView db = body["$db"];
  return db.is_string() ? std::string(db.as_string()) : "test";
}

std::string namespace_of(DocView body) { return database_of(body) + "." + collection_of(body); }

DocView document_or_empty(ValueView value) {
  return value.is_document() ? value.as_document() : DocView();
}

double coordinate(ValueView pair, std::string_view index) {
  return pair.is_array() ? pair.as_document()[index].to_double().value_or(0) : 0;
}

// The session's and the number's bytes.
std::string transaction_of(DocView body) {
  const Bytes session = body["lsid"].bytes;
  return std::string(session.begin(), session.end()) + std::to_string(number(body["txnNumber"], 0));
}

bool ends_transaction(std::string_view name) {
  return name == "commitTransaction" || name == "abortTransaction" || name == "coordinateCommitTransaction";
}

BsonDoc no_such_transaction() {
  return *BsonDoc::from_json(R"({"ok": 0, "code": 251, "codeName": "NoSuchTransaction", "errmsg": "it has been aborted",
      "errorLabels": ["TransientTransactionError"]})");
}

// Takes documents for one batch.
BsonDoc batch_reply(std::string_view name, const std::string& ns, std::deque<BsonDoc>& rest,
                    std::int64_t documents_max, std::size_t bytes_max,
                    const std::function<std::int64_t()>& id) {
  BsonWriter out;
  out.begin_document("cursor").begin_array(name);
  std::size_t bytes = 0;
  for (std::int64_t taken = 0; taken < documents_max && !rest.empty(); ++taken) {
    if (taken > 0 && bytes + rest.front().size() > bytes_max) break;
    bytes += rest.front().size();
    out.append_item(rest.front());
    rest.pop_front();
  }
  out.end().append("id", id()).append("ns", ns).end().append("ok", 1.0);
  return std::move(out).finish();
}

}  // namespace

// {<path>: {$near: [x, y]}} at the top of a filter, which the evaluator of queries does not know.
struct Near {
  std::string path;
  double x = 0;
  double y = 0;
  BsonDoc rest;  // the filter without it

  static std::optional<Near> of(DocView filter) {
    std::optional<Near> near;
    BsonWriter rest;
    for (const Element& field : filter) {
      const ValueView to = document_or_empty(field)["$near"];
      if (to.exists()) {
        near = {std::string(field.name), coordinate(to, "0"), coordinate(to, "1"), BsonDoc()};
      } else {
        rest.append_element(field);
      }
    }
    if (near) near->rest = std::move(rest).finish();
    return near;
  }
  double distance(DocView document) const {
    const ValueView at = document[path];
    return std::hypot(coordinate(at, "0") - x, coordinate(at, "1") - y);
  }
  // The nearest first, within the window.
  void order(std::vector<BsonDoc>& documents, std::int64_t skip, std::int64_t limit) const {
    std::stable_sort(
        documents.begin(), documents.end(),
        [this](const BsonDoc& a, const BsonDoc& b) { return distance(a) < distance(b); });
    const auto skipped = std::min(documents.size(), static_cast<std::size_t>(skip));
    documents.erase(documents.begin(), documents.begin() + static_cast<std::ptrdiff_t>(skipped));
    if (limit > 0 && documents.size() > static_cast<std::size_t>(limit)) {
      documents.resize(static_cast<std::size_t>(limit));
    }
  }
};

SimShard::SimShard(SimShardOptions options, SimLog& log, SimShard* first)
    : options_(std::move(options)),
      log_(log),
      durable_(first != nullptr ? first->durable_ : std::make_shared<Durable>()),
      stored_(durable_->stored),
      retryable_(durable_->retryable),
      remembered_(durable_->remembered) {}

SimShard::~SimShard() { SPILLWAY_CHECK(serving_ == 0); }

void SimShard::attach(SimNetwork& network) {
  networks_.push_back(&network);
  network.tell_losses(options_.host, options_.port, [this] { excuse_cursors(); });
  network.listen(options_.host, options_.port, [this](std::unique_ptr<Transport> transport) {
    return serve(std::move(transport));
  });
}

void SimShard::die() {
  log_.add(options_.host + " dies");
  alive_ = false;
  transactions_.clear();
  cursor_counts_.lost += cursors_.size();
  cursors_.clear();
  for (SimNetwork* network : networks_) network->kill(options_.host, options_.port);
}

void SimShard::restart() {
  log_.add(options_.host + " restarts");
  alive_ = true;
  for (SimNetwork* network : std::exchange(networks_, {})) attach(*network);
}

void SimShard::freeze() {
  log_.add(options_.host + " freezes");
  for (SimNetwork* network : networks_) network->freeze(options_.host, options_.port);
}

void SimShard::thaw() {
  log_.add(options_.host + " thaws");
  for (SimNetwork* network : networks_) network->thaw(options_.host, options_.port);
}

void SimShard::misbehave(Fault fault, std::string command, int times) {
  orders_.push_back({fault, std::move(command), times});
}

void SimShard::step_down(std::size_t yields, std::int32_t code, Duration pause) {
  SPILLWAY_CHECK(!options_.set_name.empty());
  step_down_ = StepDown{yields, code, pause};
}

void SimShard::step_down_now(Duration pause) {
  SPILLWAY_CHECK(!options_.set_name.empty());
  log_.add(options_.host + " steps down");
  ++step_downs_;
  if (set_ != nullptr) ++set_->elections;
  elected_at_ = Clock::now() + pause;
  transactions_.clear();
}

std::int32_t SimShard::yield() {
  if (!primary()) return 10107;  // the rest of an unordered batch
  if (!step_down_ || step_down_->yields-- > 0) return 0;
  const StepDown now = *std::exchange(step_down_, std::nullopt);
  step_down_now(now.pause);
  return now.code;
}

void SimShard::forget_cursors() {
  log_.add(options_.host + " forgets its cursors");
  cursor_counts_.lost += cursors_.size();
  cursors_.clear();
}

void SimShard::excuse_cursors() {
  for (auto& [id, cursor] : cursors_) cursor.excused = true;
}

std::vector<std::string> SimShard::stored_names() const {
  std::vector<std::string> names;
  for (const auto& [ns, documents] : stored_) names.push_back(ns);
  return names;
}

void SimShard::take_history(const SimShard& donor) {
  for (const auto& [transaction, statements] : donor.retryable_) {
    retryable_[transaction].insert(statements.begin(), statements.end());
  }
  remembered_.insert(donor.remembered_.begin(), donor.remembered_.end());
}

std::span<const BsonDoc> SimShard::visible(const std::string& ns, std::vector<BsonDoc>& kept) {
  const std::vector<BsonDoc>& all = stored_[ns];
  if (role_ == nullptr) return all;
  if (const std::vector<BsonDoc>* const other = role_->documents(*request_)) return *other;
  if (!request_->filtered) return all;
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept),
               [&](const BsonDoc& each) { return role_->sees(*request_, each); });
  return kept;
}

SimShard::CursorCounts SimShard::cursors() const {
  CursorCounts counts = cursor_counts_;
  for (const auto& [id, cursor] : cursors_) counts.excused += cursor.excused ? 1 : 0;
  return counts;
}

std::uint64_t SimShard::seen(const std::string& command) const {
  const auto at = seen_.find(command);
  return at == seen_.end() ? 0 : at->second;
}

// --- connections

Task<void> SimShard::serve(std::unique_ptr<Transport> transport) {
  struct Serving {
    explicit Serving(int& of) : count(of) { ++count; }
    ~Serving() { --count; }
    int& count;
  } serving(serving_);
  for (;;) {
    std::vector<std::uint8_t> message(limits::message_header_bytes);
    auto reading_header = read_exactly(*transport, message);
    const bool has_header = co_await reading_header;
    if (!has_header) co_return;
    const auto header = wire::parse_header(message);
    if (header.has_error()) co_return;
    message.resize(static_cast<std::size_t>(header->message_length));
    auto reading =
        read_exactly(*transport, MutableBytes(message).subspan(limits::message_header_bytes));
    const bool complete = co_await reading;
    if (!complete) co_return;
    auto answering = answer(*transport, message);
    const bool go_on = co_await answering;
    if (!go_on) co_return;
  }
}

std::optional<SimShard::Fault> SimShard::next_fault(std::string_view command) {
  for (auto at = orders_.begin(); at != orders_.end(); ++at) {
    if (!at->command.empty() && at->command != command) continue;
    const Fault fault = at->fault;
    if (--at->times == 0) orders_.erase(at);
    return fault;
  }
  return std::nullopt;
}

Task<bool> SimShard::answer(Transport& transport, Bytes message) {
  const wire::MessageHeader header = *wire::parse_header(message);
  std::optional<wire::Compressor> compressor;
  std::vector<std::uint8_t> plain;
  if (header.is(wire::OpCode::compressed)) {
    const auto envelope = wire::parse_compressed(message);
    if (envelope.has_error()) co_return false;
    compressor = envelope->compressor;
    plain.resize(limits::message_header_bytes + envelope->uncompressed_size);
    if (wire::decompress_message(header, *envelope, plain).has_error()) co_return false;
    message = plain;
  }
  const auto request = wire::parse_op_msg(message);
  if (request.has_error()) co_return false;
  const std::string name(request->body.first().name);
  const bool handshake = name == "isMaster" || name == "hello" || name == "buildInfo";
  std::optional<Fault> fault;
  if (!handshake) {
    ++seen_[name];
    if (observe) observe(request->body);
    fault = next_fault(name);
    if (delay > Duration::zero()) co_await transport.loop().sleep_for(delay);
  }
  BsonDoc reply;
  SimRequest in_cluster{request->body, name, namespace_of(request->body), primary()};
  std::optional<BsonDoc> answered;
  if (role_ != nullptr && !handshake) {
    auto admitting = role_->admit(transport.loop(), in_cluster);
    answered = co_await admitting;
    request_ = &in_cluster;
  }
  if (fault == Fault::not_primary) {
    reply = error_reply(10107, "NotWritablePrimary", "not primary");
  } else if (answered) {
    reply = *std::move(answered);
  } else {
    if (fault == Fault::cursor_not_found && request->body.first().type == BsonType::int64) {
      cursor_counts_.lost += cursors_.erase(request->body.first().as_int64());
    }
    const bool of_transaction = role_ != nullptr && request->body["autocommit"].exists() && !ends_transaction(name);
    reply = of_transaction ? execute_in_transaction(*request, name) : execute(*request, name);
  }
  request_ = nullptr;
  if (role_ != nullptr) reply = role_->finish(in_cluster, std::move(reply));
  if (revise && !handshake) reply = revise(name, std::move(reply));
  if (fault && *fault != Fault::cursor_not_found) excuse_cursors();
  if (!handshake)
    log_.add(fmt::format("{} {} {}", options_.host, name, reply.view()["ok"].truthy()));
  std::vector<std::uint8_t> out;
  wire::begin_op_msg(out, 7, header.request_id, 0);
  wire::append_body(out, reply);
  wire::finish_op_msg(out);
  if (compressor) {
    std::vector<std::uint8_t> packed(wire::compressed_message_size_max(*compressor, out.size()));
    packed.resize(wire::compress_message(*compressor, out, packed).value());
    out = std::move(packed);
  }
  if (fault && *fault != Fault::not_primary && *fault != Fault::cursor_not_found) {
    auto failing = answer_badly(transport, *fault, std::move(out));
    co_return co_await failing;
  }
  auto writing = write_reply(transport, std::move(out));
  co_return co_await writing;
}

Task<bool> SimShard::write_reply(Transport& transport, std::vector<std::uint8_t> reply) {
  std::size_t written_bytes = 0;
  while (written_bytes < reply.size()) {
    const std::size_t end = std::min(reply.size(), std::max(pause_at_bytes, written_bytes));
    if (end == written_bytes) {
      if (!alive_) co_return false;
      co_await transport.loop().sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    iovec piece{reply.data() + written_bytes, end - written_bytes};
    auto writing = write_all(transport, {&piece, 1});
    const bool written = co_await writing;
    if (!written) co_return false;
    written_bytes = end;
  }
  co_return true;
}

Task<bool> SimShard::answer_badly(Transport& transport, Fault fault,
                                  std::vector<std::uint8_t> reply) {
  if (fault == Fault::die) {
    die();
    co_return false;
  }
  if (fault == Fault::cut_after) {
    transport.reset();
    co_return false;
  }
  wire::MessageHeader header = *wire::parse_header(reply);
  if (fault == Fault::wrong_response_to) ++header.response_to;
  if (fault == Fault::garbage_length) header.message_length = -1;
  wire::write_header(reply.data(), header);
  if (fault == Fault::cut_within) reply.resize(std::min(reply.size() - 1, cut_at_bytes));
  iovec piece{reply.data(), reply.size()};
  auto writing = write_all(transport, {&piece, 1});
  const bool written = co_await writing;
  if (fault != Fault::cut_within) co_return written;
  // The bytes arrive before the reset does.
  co_await transport.loop().sleep_for(std::chrono::milliseconds(50));
  transport.reset();
  co_return false;
}

// --- commands

BsonDoc SimShard::execute(const wire::OpMsg& request, std::string_view name) {
  const DocView body = request.body;
  const std::string db = database_of(body);
  const std::string ns = namespace_of(body);
  if (name == "isMaster" || name == "hello") return hello(body);
  if (name == "buildInfo") {
    return *BsonDoc::from_json(
        options_.sort_keys == SimShardOptions::SortKeys::none
            ? R"({"version": "7.0.0", "ok": 1})"
            : R"({"version": "8.0.0", "storageEngines": ["memory"], "ok": 1})");
  }
  if (body["txnNumber"].exists() && options_.set_name.empty()) {
    return error_reply(20, "IllegalOperation",
                       "Transaction numbers are only allowed on a replica set member or mongos");
  }
  if (auto refused = refusal(body, name)) return *std::move(refused);
  if (name == "find") return find(body, ns);
  if (name == "aggregate") return aggregate(body, ns);
  if (name == "count") return count(body, ns);
  if (name == "distinct") return distinct(body, ns);
  if (name == "getMore") return get_more(body, db);
  if (name == "killCursors") return kill_cursors(body);
  if (name == "insert" || name == "update" || name == "delete") return write(request, name, ns);
  if (name == "findAndModify") return find_and_modify(body, ns);
  if (name == "create" && body["autocommit"].exists()) {  // its role has made it
    transactions_[transaction_of(body)].emplace_back([] {});
    return ok_reply();
  }
  if (name == "commitTransaction" || name == "abortTransaction") {
    return end_transaction(body, name == "commitTransaction");
  }
  if (name == "coordinateCommitTransaction") return coordinate_commit(body);
  if (name == "ping" || name == "endSessions" || name == "killSessions") return ok_reply();
  return error_reply(59, "CommandNotFound", fmt::format("no such command: '{}'", name));
}

// The error of a host that is no primary, before it begins.
std::optional<BsonDoc> SimShard::refusal(DocView body, std::string_view name) const {
  if (primary()) return std::nullopt;
  if (name == "getMore" || name == "killCursors" || name == "ping" || name == "endSessions" || name == "killSessions") {
    return std::nullopt;
  }
  const bool reads = name == "find" || name == "aggregate" || name == "count" || name == "distinct";
  if (!reads) return error_reply(10107, "NotWritablePrimary", "not primary");
  const ValueView mode = document_or_empty(body["$readPreference"])["mode"];
  if (mode.is_string() && mode.as_string() != "primary") return std::nullopt;
  return error_reply(13435, "NotPrimaryNoSecondaryOk", "not primary and secondaryOk=false");
}

BsonDoc SimShard::hello(DocView request) const {
  BsonWriter out;
  out.append("ismaster", primary()).append("isWritablePrimary", primary()).append("helloOk", true);
  if (!options_.set_name.empty()) {
    out.append("setName", options_.set_name).append("secondary", !primary());
    out.begin_array("hosts");
    if (set_ == nullptr) out.append_item(std::string_view(address()));
    for (const SimShard* each : set_ != nullptr ? set_->members : std::vector<SimShard*>()) {
      out.append_item(std::string_view(each->address()));
    }
    out.end().append("me", address()).append("setVersion", 1);
    if (set_ != nullptr) out.append("primary", set_->primary->address());
    const std::size_t elections = set_ != nullptr ? static_cast<std::size_t>(set_->elections) : step_downs_ + 1;
    std::uint8_t election[12] = {};
    election[11] = static_cast<std::uint8_t>(elections);
    election[10] = static_cast<std::uint8_t>(elections >> 8);
    if (primary()) out.append_object_id("electionId", election);
    out.append("logicalSessionTimeoutMinutes", 30);
  }
  out.append("maxBsonObjectSize", 16'777'216).append("maxMessageSizeBytes", 48'000'000);
  out.append("maxWriteBatchSize", 100'000).append("minWireVersion", 0);
  out.append("maxWireVersion", options_.max_wire_version);
  if (role_ != nullptr) role_->add_to_hello(out);
  if (request["compression"].is_array()) {
    out.begin_array("compression");
    for (const wire::Compressor each : wire::negotiate(options_.compressors, request["compression"].as_document())) {
      out.append_item(wire::compressor_name(each));
    }
    out.end();
  }
  out.append("ok", 1.0);
  return std::move(out).finish();
}

BsonDoc SimShard::projected(const BsonDoc& document, DocView projection) {
  if (projection.empty()) return document;
  pipeline::FindQuery query;
  query.projection = projection;
  auto one = pipeline::run_find({&document, 1}, query, budget_);
  SPILLWAY_CHECK(one.has_value());
  return std::move(one->front());
}

BsonDoc SimShard::with_sort_key(const BsonDoc& document, DocView sort, const Near* near,
                                DocView projection) {
  BsonWriter out;
  out.append_elements(projected(document, projection));
  if (near != nullptr) {
    out.append("$sortKey", near->distance(document));
    return std::move(out).finish();
  }
  const bool as_array = options_.sort_keys == SimShardOptions::SortKeys::array;
  as_array ? out.begin_array("$sortKey") : out.begin_document("$sortKey");
  int index = 0;
  for (const Element& key : sort) {
    const std::string name = as_array ? std::to_string(index++) : std::string();
    const ValueView value = document.view().find_path(key.name);
    value.exists() ? out.append(name, value) : out.append_null(name);
  }
  out.end();
  return std::move(out).finish();
}

BsonDoc SimShard::find(DocView body, const std::string& ns) {
  pipeline::FindQuery query;
  query.filter = document_or_empty(body["filter"]);
  query.sort = document_or_empty(body["sort"]);
  query.skip = number(body["skip"], 0);
  query.limit = number(body["limit"], 0);
  const DocView projection = document_or_empty(body["projection"]);
  BsonWriter plain;
  std::string_view sort_key;
  for (const Element& field : projection) {
    if (field.name == "$sortKey") {
      sort_key = field.as_document()["$meta"].as_string();
    } else {
      plain.append_element(field);
    }
  }
  const BsonDoc plain_projection = std::move(plain).finish();
  std::optional<Near> near = Near::of(query.filter);
  if (near) query.filter = near->rest;
  const Near* const order = near && query.sort.empty() ? &*near : nullptr;
  const std::int64_t skip = order != nullptr ? std::exchange(query.skip, 0) : 0;
  const std::int64_t limit = order != nullptr ? std::exchange(query.limit, 0) : 0;
  const bool asked = !sort_key.empty();
  if (!asked && order == nullptr) query.projection = plain_projection;
  std::vector<BsonDoc> kept;
  auto found = pipeline::run_find(visible(ns, kept), query, budget_);
  if (found.has_error()) return error_reply(found.error());
  if (order != nullptr) order->order(*found, skip, limit);
  if (asked && (options_.sort_keys == SimShardOptions::SortKeys::none ||
                sort_key != (order != nullptr ? "geoNearDistance" : "sortKey"))) {
    return error_reply(2, "BadValue", fmt::format("$meta {} is not known here", sort_key));
  }
  for (BsonDoc& document : *found) {
    if (asked) {
      document = with_sort_key(document, query.sort, order, plain_projection);
    } else if (order != nullptr) {
      document = projected(document, plain_projection);
    }
  }
  return first_batch(ns, *std::move(found), body["batchSize"], body["singleBatch"].truthy());
}

BsonDoc SimShard::aggregate(DocView body, const std::string& ns) {
  const ValueView pipeline = body["pipeline"];
  if (!pipeline.is_array()) return error_reply(9, "FailedToParse", "'pipeline' must be an array");
  for (const Element& stage : pipeline.as_document()) {
    if (!refused_stage.empty() && stage.is_document() &&
        stage.as_document().first().name == refused_stage) {
      return error_reply(40324, "Location40324", "unknown stage");
    }
  }
  const Element first = pipeline.as_document().first();
  if (first.is_document() && first.as_document().first().name == "$mergeCursors") return merge(body, ns);
  std::vector<BsonDoc> kept;
  auto found = pipeline::run_pipeline(visible(ns, kept), pipeline.as_document(), budget_);
  if (found.has_error()) return error_reply(found.error());
  return first_batch(ns, *std::move(found), document_or_empty(body["cursor"])["batchSize"], false);
}

// The documents of other shards' cursors, whatever their order. Partial groups are ordinary ones here.
BsonDoc SimShard::merge(DocView body, const std::string& ns) {
  const DocView pipeline = body["pipeline"].as_document();
  std::vector<BsonDoc> documents;
  for (const Element& remote : pipeline.first().as_document().first().as_document()["remotes"].as_document()) {
    SimShard& from = *find_shard(remote.as_document()["shardId"].as_string());
    const DocView opened = remote.as_document()["cursorResponse"].as_document()["cursor"].as_document();
    const auto at = from.cursors_.find(number(opened["id"], 0));
    if (at == from.cursors_.end()) return error_reply(43, "CursorNotFound", "a shard's cursor is gone");
    std::move(at->second.rest.begin(), at->second.rest.end(), std::back_inserter(documents));
    from.cursors_.erase(at);
    ++from.cursor_counts_.exhausted;
  }
  BsonWriter stages;
  for (const Element& stage : pipeline) {
    const Element named = stage.as_document().first();
    if (named.name == "$mergeCursors") continue;
    stages.begin_document(stage.name).begin_document(named.name);
    for (const Element& field : named.as_document()) {
      if (field.name != "$doingMerge") stages.append_element(field);
    }
    stages.end().end();
  }
  auto found = pipeline::run_pipeline(documents, std::move(stages).finish(), budget_);
  if (found.has_error()) return error_reply(found.error());
  return first_batch(ns, *std::move(found), document_or_empty(body["cursor"])["batchSize"], false);
}

BsonDoc SimShard::count(DocView body, const std::string& ns) {
  pipeline::FindQuery query;
  query.filter = document_or_empty(body["query"]);
  query.skip = number(body["skip"], 0);
  query.limit = number(body["limit"], 0);
  std::vector<BsonDoc> kept;
  auto found = pipeline::run_find(visible(ns, kept), query, budget_);
  if (found.has_error()) return error_reply(found.error());
  BsonWriter out;
  out.append("n", static_cast<std::int32_t>(found->size())).append("ok", 1.0);
  return std::move(out).finish();
}

BsonDoc SimShard::distinct(DocView body, const std::string& ns) {
  pipeline::FindQuery query;
  query.filter = document_or_empty(body["query"]);
  std::vector<BsonDoc> kept;
  const auto found = pipeline::run_find(visible(ns, kept), query, budget_);
  if (found.has_error()) return error_reply(found.error());
  std::vector<ValueView> values;
  for (const BsonDoc& each : *found) {
    const ValueView value = each.view().find_path(body["key"].as_string());
    if (value.exists() && std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  BsonWriter out;
  out.begin_array("values");
  for (const ValueView& value : values) out.append_item(value);
  out.end().append("ok", 1.0);
  return std::move(out).finish();
}

BsonDoc SimShard::first_batch(const std::string& ns, std::vector<BsonDoc> documents,
                              ValueView batch_size, bool single_batch) {
  std::deque<BsonDoc> rest(std::make_move_iterator(documents.begin()),
                           std::make_move_iterator(documents.end()));
  const std::int64_t most = number(batch_size, limits::first_batch_documents_default);
  return batch_reply("firstBatch", ns, rest, most, options_.batch_bytes_max, [&]() -> std::int64_t {
    // Half of the time it does not know yet that a full batch was the last.
    const std::int64_t drawn = next_cursor_++;
    const bool knows_the_end = drawn % 2 == 0 && most > 0 && !options_.ends_with_empty_batch;
    const bool none_left = rest.empty() && !(options_.ends_with_empty_batch && !documents.empty());
    if (single_batch ||
        (none_left && (knows_the_end || most > static_cast<std::int64_t>(documents.size())))) {
      return 0;
    }
    const std::int64_t id = (std::int64_t{options_.port} << 40) + drawn;
    ++cursor_counts_.opened;
    cursors_[id] = {ns, std::move(rest), false};
    return id;
  });
}

BsonDoc SimShard::get_more(DocView body, std::string_view db) {
  const std::int64_t id = number(body.first(), 0);
  const ValueView collection = body["collection"];
  const auto at = cursors_.find(id);
  if (at == cursors_.end())
    return error_reply(43, "CursorNotFound", fmt::format("cursor id {} not found", id));
  const std::string ns =
      fmt::format("{}.{}", db, collection.is_string() ? collection.as_string() : "");
  if (at->second.ns != ns)
    return error_reply(13, "Unauthorized", "the cursor is another namespace's");
  std::deque<BsonDoc> rest = std::move(at->second.rest);
  const bool any = !rest.empty();
  const std::int64_t most = number(body["batchSize"], std::int64_t{1} << 40);
  return batch_reply("nextBatch", ns, rest, most == 0 ? std::int64_t{1} << 40 : most,
                     options_.batch_bytes_max, [&]() -> std::int64_t {
                       if (rest.empty() && !(options_.ends_with_empty_batch && any)) {
                         cursors_.erase(id);
                         ++cursor_counts_.exhausted;
                         return 0;
                       }
                       at->second.rest = std::move(rest);
                       return id;
                     });
}

BsonDoc SimShard::kill_cursors(DocView body) {
  BsonWriter out;
  out.begin_array("cursorsKilled");
  BsonWriter missing;
  missing.begin_array("cursorsNotFound");
  for (const Element& id :
       document_or_empty(ValueView{BsonType::document, body["cursors"].bytes})) {
    const bool found = cursors_.erase(id.as_int64()) > 0;
    if (found) ++cursor_counts_.killed;
    (found ? out : missing).append_item(id.as_int64());
  }
  out.end();
  missing.end();
  const BsonDoc not_found = std::move(missing).finish();
  out.append_elements(not_found).append("ok", 1.0);
  return std::move(out).finish();
}

// --- writes

BsonDoc SimShard::write(const wire::OpMsg& request, std::string_view name, const std::string& ns) {
  const std::string_view list = name == "insert"   ? "documents"
                                : name == "update" ? "updates"
                                                   : "deletes";
  std::vector<DocView> statements;
  if (const wire::DocSequence* sequence = request.sequence(list)) {
    statements.assign(sequence->begin(), sequence->end());
  } else if (request.body[list].is_array()) {
    for (const Element& each : request.body[list].as_document())
      statements.push_back(each.as_document());
  }
  std::vector<std::int32_t> ids;
  const std::int64_t first = number(request.body["stmtId"], 0);
  for (std::size_t i = 0; i < statements.size(); ++i) {
    ids.push_back(static_cast<std::int32_t>(first + static_cast<std::int64_t>(i)));
  }
  if (request.body["stmtIds"].is_array()) {
    ids.clear();
    for (const Element& id : request.body["stmtIds"].as_document()) ids.push_back(id.as_int32());
    if (ids.size() != statements.size())
      return error_reply(72, "InvalidOptions", "stmtIds has another length");
  }
  return apply(request, name, ns, statements, ids);
}

// Null: the write cannot be retried.
std::set<std::int32_t>* SimShard::executed_by(DocView body) {
  if (!body["txnNumber"].exists()) return nullptr;
  return &retryable_[transaction_of(body)];
}

BsonDoc SimShard::apply(const wire::OpMsg& request, std::string_view name, const std::string& ns,
                        std::span<const DocView> statements, const std::vector<std::int32_t>& ids) {
  std::set<std::int32_t>* const executed = executed_by(request.body);
  const ValueView order = request.body["ordered"];
  const bool ordered = !order.exists() || order.truthy();
  const bool in_transaction = request.body["autocommit"].exists();
  if (in_transaction && role_ != nullptr) {
    for (std::size_t i = 0; i < statements.size(); ++i) {
      if (const auto refused = role_->refuse_statement(*request_, i)) return refused->reply();
    }
    return apply_at_commit(request.body, name, ns, statements);
  }
  std::int64_t n = 0;
  BsonWriter errors;
  errors.begin_array("writeErrors");
  bool failed = false;
  std::optional<SimRefusal> refused;  // the statement, and all after it
  std::vector<std::int32_t> retried;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    if (executed != nullptr && executed->contains(ids[i])) {
      retried.push_back(ids[i]);
      ++n;
      continue;
    }
    if (role_ != nullptr && !refused) refused = role_->refuse_statement(*request_, i);
    if (refused) {
      if (in_transaction) return refused->reply();
      failed = true;
      refused->append_write_error(errors, i);
      if (ordered) break;
      continue;
    }
    const DocView statement = statements[i];
    if (auto moves = would_move(request.body, name, ns, statement)) return *std::move(moves);
    Done done;
    if (name == "insert") done = insert_one(ns, statement);
    if (name == "update") {
      done = update_some(ns, document_or_empty(statement["q"]), document_or_empty(statement["u"]),
                         statement["multi"].truthy());
    }
    if (name == "delete") {
      done = delete_some(ns, document_or_empty(statement["q"]), number(statement["limit"], 0));
    }
    if (done.refused) {
      failed = true;
      refused = std::move(done.refused);
      refused->append_write_error(errors, i);
      if (ordered) break;
      continue;
    }
    if (done.code == 0) {
      if (executed != nullptr && done.n > 0) executed->insert(ids[i]);
      n += done.n;
      continue;
    }
    const bool of_statement = done.code == 11000 || done.code == 189 || done.code == 10107;
    if (!of_statement || in_transaction) return error_reply(Error(done.code, "the write was interrupted"));
    failed = true;
    errors.begin_document_item();
    errors.append("index", static_cast<std::int32_t>(i)).append("code", done.code);
    errors.append("errmsg", done.code == 11000 ? "E11000 duplicate key error" : "Demoted from primary").end();
    if (ordered) break;
  }
  errors.end();
  BsonWriter out;
  out.append("n", static_cast<std::int32_t>(n));
  if (name == "update") out.append("nModified", static_cast<std::int32_t>(n));
  if (role_ != nullptr && n > 0) role_->wrote(*request_);
  const BsonDoc all_errors = std::move(errors).finish();
  if (failed) out.append_elements(all_errors);
  if (!retried.empty()) {
    out.begin_array("retriedStmtIds");
    for (const std::int32_t id : retried) out.append_item(id);
    out.end();
  }
  out.append("ok", 1.0);
  return std::move(out).finish();
}

// 283, if the update of one document gives it a key that is another shard's.
std::optional<BsonDoc> SimShard::would_move(DocView body, std::string_view name, const std::string& ns,
                                            DocView statement) {
  if (role_ == nullptr || name != "update" || statement["multi"].truthy() || !body["txnNumber"].exists()) return {};
  pipeline::FindQuery query;
  query.filter = document_or_empty(statement["q"]);
  query.limit = 1;
  std::vector<BsonDoc> kept;
  const auto found = pipeline::run_find(visible(ns, kept), query, budget_);
  if (found.has_error() || found->empty()) return {};
  BsonDoc after = found->front();
  increment(after, document_or_empty(statement["u"]));
  if (role_->sees(*request_, after)) return {};
  BsonWriter out;
  out.append("ok", 0.0).append("code", 283).append("codeName", "WouldChangeOwningShard").append("errmsg", "moves");
  out.append("preImage", found->front()).append("postImage", after).append("shouldUpsert", false);
  return std::move(out).finish();
}

BsonDoc SimShard::apply_at_commit(DocView body, std::string_view name, const std::string& ns,
                                  std::span<const DocView> statements) {
  const std::string transaction = transaction_of(body);
  if (body["startTransaction"].truthy()) transactions_[transaction].clear();
  const auto open = transactions_.find(transaction);
  if (open == transactions_.end()) return no_such_transaction();
  std::int64_t n = 0;
  for (const DocView statement : statements) {
    if (name == "insert") {
      if (find_id(ns, statement["_id"]) != stored_[ns].size()) return error_reply(11000, "DuplicateKey", "E11000");
      open->second.push_back([this, ns, document = BsonDoc(statement)] { stored_[ns].push_back(document); });
      ++n;
      continue;
    }
    if (auto moves = would_move(body, name, ns, statement)) return *std::move(moves);
    pipeline::FindQuery query;
    query.filter = document_or_empty(statement["q"]);
    std::vector<BsonDoc> kept;
    const auto found = pipeline::run_find(visible(ns, kept), query, budget_);
    for (std::size_t i = 0; i < (found.has_error() ? 0 : found->size()); ++i, ++n) {
      if (name == "delete") {
        open->second.push_back([this, ns, document = (*found)[i]] {
          const std::size_t at = find_id(ns, document.view()["_id"]);
          if (at != stored_[ns].size()) stored_[ns].erase(stored_[ns].begin() + static_cast<std::ptrdiff_t>(at));
        });
        continue;
      }
      open->second.push_back([this, ns, document = (*found)[i], update = BsonDoc(document_or_empty(statement["u"]))] {
        const std::size_t at = find_id(ns, document.view()["_id"]);
        if (at != stored_[ns].size()) increment(stored_[ns][at], update);
      });
    }
  }
  BsonWriter out;
  out.append("n", static_cast<std::int32_t>(n)).append("ok", 1.0);
  return std::move(out).finish();
}

BsonDoc SimShard::end_transaction(DocView body, bool commits) {
  const std::string transaction = transaction_of(body);
  if (commits && durable_->committed.contains(transaction)) return ok_reply();
  const auto open = transactions_.find(transaction);
  if (open == transactions_.end()) return no_such_transaction();
  if (commits) {
    commit_open(transaction);
    if (role_ != nullptr) role_->wrote(*request_);
  } else {
    transactions_.erase(open);
  }
  return ok_reply();
}

void SimShard::commit_open(const std::string& transaction) {
  for (const auto& change : transactions_.at(transaction)) change();
  durable_->committed.insert(transaction);
  transactions_.erase(transaction);
}

BsonDoc SimShard::execute_in_transaction(const wire::OpMsg& request, std::string_view name) {
  const std::string transaction = transaction_of(request.body);
  const bool open = transactions_.contains(transaction);
  if (request.body["startTransaction"].truthy()) {
    if (open) return error_reply(50911, "Location50911", "the transaction has begun, and was not aborted");
    transactions_[transaction];
  } else if (!open) {
    return no_such_transaction();
  }
  const BsonDoc reply = execute(request, name);
  const bool goes_on = reply.view()["ok"].truthy() || reply.view()["code"].to_int64() == 283;
  if (!goes_on || reply.view()["writeErrors"].exists()) {
    transactions_.erase(transaction);
    return reply;
  }
  if (!reply.view()["ok"].truthy()) return reply;
  BsonWriter out;
  out.append_elements(reply);
  out.append("readOnly", transactions_[transaction].empty());
  return std::move(out).finish();
}

// In one step: all of them, or none.
BsonDoc SimShard::coordinate_commit(DocView body) {
  const std::string transaction = transaction_of(body);
  if (durable_->committed.contains(transaction)) return ok_reply();
  std::vector<SimShard*> all;
  for (const Element& each : body["participants"].as_document()) {
    all.push_back(find_shard(each.as_document()["shardId"].as_string()));
  }
  const bool ready = !all.empty() && std::all_of(all.begin(), all.end(), [&](const SimShard* each) {
    return each != nullptr && each->transactions_.contains(transaction);
  });
  if (all.empty()) all.push_back(this);
  for (SimShard* each : all) {
    if (ready) each->commit_open(transaction);
    if (each != nullptr) each->transactions_.erase(transaction);
  }
  return ready ? ok_reply() : no_such_transaction();
}

// {query, update: {$inc: …}} or {query, remove: true}; returns the document as it was.
BsonDoc SimShard::find_and_modify(DocView body, const std::string& ns) {
  std::set<std::int32_t>* const executed = executed_by(body);
  BsonDoc* const remembered = executed != nullptr ? &remembered_[transaction_of(body)] : nullptr;
  if (executed != nullptr && executed->contains(0)) return *remembered;
  pipeline::FindQuery query;
  query.filter = document_or_empty(body["query"]);
  query.limit = 1;
  std::vector<BsonDoc> kept;
  const auto found = pipeline::run_find(visible(ns, kept), query, budget_);
  if (found.has_error()) return error_reply(found.error());
  const bool removes = body["remove"].truthy();
  const Done done = removes ? delete_some(ns, query.filter, 1)
                            : update_some(ns, query.filter, document_or_empty(body["update"]), false);
  if (done.code != 0) return error_reply(Error(done.code, "the write was interrupted"));
  if (role_ != nullptr) role_->wrote(*request_);
  BsonWriter out;
  out.begin_document("lastErrorObject").append("n", static_cast<std::int32_t>(done.n));
  if (!removes) out.append("updatedExisting", done.n > 0);
  out.end();
  found->empty() ? out.append_null("value") : out.append("value", found->front().view());
  out.append("ok", 1.0);
  BsonDoc reply = std::move(out).finish();
  if (executed == nullptr || done.n == 0) return reply;
  executed->insert(0);
  *remembered = reply;
  return reply;
}

std::size_t SimShard::find_id(const std::string& ns, ValueView id) {
  const std::vector<BsonDoc>& all = stored_[ns];
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const BsonDoc& each) { return each.view()["_id"] == id; });
  return static_cast<std::size_t>(at - all.begin());
}

SimShard::Done SimShard::insert_one(const std::string& ns, DocView document) {
  if (const std::int32_t code = yield(); code != 0) return {0, code};
  if (find_id(ns, document["_id"]) != stored_[ns].size()) return {0, 11000};
  ++applied_;
  stored_[ns].emplace_back(document);
  return {1, 0};
}

// {$inc: {field: 1}}: enough to count executions.
void SimShard::increment(BsonDoc& document, DocView update) {
  const Element inc = document_or_empty(update["$inc"]).first();
  BsonWriter out;
  bool found = false;
  for (const Element& field : document.view()) {
    if (field.name != inc.name) {
      out.append_element(field);
      continue;
    }
    found = true;
    out.append(field.name, number(field, 0) + number(inc, 0));
  }
  if (!found && inc.exists()) out.append(inc.name, number(inc, 0));
  document = std::move(out).finish();
}

bool SimShard::goes_on(Done& done) {
  done.code = yield();
  if (done.code == 0 && done.n > 0 && role_ != nullptr) done.refused = role_->refuse_document(*request_);
  return done.code == 0 && !done.refused;
}

SimShard::Done SimShard::update_some(const std::string& ns, DocView filter, DocView update, bool multi) {
  pipeline::FindQuery query;
  query.filter = filter;
  if (!multi) query.limit = 1;
  std::vector<BsonDoc> kept;
  const auto found = pipeline::run_find(visible(ns, kept), query, budget_);
  Done done;
  if (found.has_error()) return done;
  for (const BsonDoc& document : *found) {
    if (!goes_on(done)) return done;
    increment(stored_[ns][find_id(ns, document.view()["_id"])], update);
    ++applied_;
    ++done.n;
  }
  return done;
}

SimShard::Done SimShard::delete_some(const std::string& ns, DocView filter, std::int64_t limit) {
  pipeline::FindQuery query;
  query.filter = filter;
  query.limit = limit;
  std::vector<BsonDoc> kept;
  const auto found = pipeline::run_find(visible(ns, kept), query, budget_);
  Done done;
  if (found.has_error()) return done;
  for (const BsonDoc& document : *found) {
    if (!goes_on(done)) return done;
    stored_[ns].erase(stored_[ns].begin() +
                      static_cast<std::ptrdiff_t>(find_id(ns, document.view()["_id"])));
    ++applied_;
    ++done.n;
  }
  return done;
}

}  // namespace spillway::test
