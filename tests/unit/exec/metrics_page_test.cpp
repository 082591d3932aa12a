// /metrics: the text format, and that it says what serverStatus says.
#include <fmt/format.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "proxy/base/tls_context.h"
#include "proxy/exec/admin/figures.h"
#include "proxy/exec/commands/command_table.h"
#include "tests/support/certificates.h"
#include "tests/support/fake_gateway.h"

namespace spillway::exec {

Task<Result<Response>> server_status_command(Context& context, Client& client,
                                             const Request& request);

namespace {

constexpr const char* two_shards = R"(
routing:
  shards:
    - {name: s0, uri: "mongodb://127.0.0.1:27018/"}
    - {name: s1, uri: "mongodb://127.0.0.1:27019/"}
)";

Result<BsonDoc> no_shard_is_asked(std::uint16_t, DocView) {
  return Error(ErrorCode::internal_error, "no shard is asked");
}

std::string text_of(MetricsText& text) {
  std::string all;
  for (const Buffer& piece : text.take())
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return all;
}

std::string page_of(test::FakeWorker& worker) {
  MetricsText text(worker.shared.memory.admin);
  write_metrics(text, worker.shared,
                make_status_facts(worker.shared, {look_at_worker(worker.context)}));
  REQUIRE(text.complete());
  return text_of(text);
}

// "name{labels}" to its value, as text.
std::map<std::string, std::string> samples_of(const std::string& page) {
  std::map<std::string, std::string> samples;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t space = line.rfind(' ');
    INFO(line);
    REQUIRE(space != std::string::npos);
    CHECK(samples.emplace(line.substr(0, space), line.substr(space + 1)).second);
  }
  return samples;
}

BsonDoc status_of(test::FakeWorker& worker, std::string_view command = "{'serverStatus': 1, '$db': 'admin'}") {
  Client client;
  const test::FakeRequest request(command, &worker);
  auto reply = worker.run(server_status_command(worker.context, client, request.request));
  REQUIRE(reply.has_value());
  return test::reply_of(*reply);
}

// Each counter gets a value of its own, so that two that were exchanged are noticed.
void count_something_everywhere(Shared& shared) {
  Metrics& all = shared.metrics;
  std::uint64_t next = 11;
  for (Counter* counter : {&all.op_insert,
                           &all.op_query,
                           &all.op_update,
                           &all.op_delete,
                           &all.op_getmore,
                           &all.op_command,
                           &all.unknown_commands,
                           &all.bytes_in,
                           &all.bytes_out,
                           &all.requests,
                           &all.streamed_replies,
                           &all.streamed_bytes, &all.spliced_bytes,
                           &all.stream_failures,
                           &all.stream_refusals,
                           &all.streams_moved,
                           &all.stalled_clients_closed,
                           &all.uncompressed_replies,
                           &all.cursors_more_than_one_batch,
                           &all.cursors_killed,
                           &all.killed_due_to_client_disconnect,
                           &all.requests_refused,
                           &all.cursors_refused,
                           &all.cursors_beyond_share,
                           &all.read_ahead_started,
                           &all.read_ahead_hits,
                           &all.read_ahead_waits,
                           &all.read_ahead_wasted,
                           &all.senders_stopped,
                           &all.connections_rejected,
                           &all.clients_timed_out,
                           &all.tls_handshakes,
                           &all.tls_handshakes_failed,
                           &all.unauthenticated_commands,
                           &all.unauthorized_commands,
                           &all.hellos_with_backpressure,
                           &all.hellos_without_backpressure}) {
    counter->add(next++);
  }
  for (HostsTargeted* targeted :
       {&all.find, &all.insert, &all.update, &all.delete_, &all.aggregate}) {
    for (Counter* counter : {&targeted->all_shards, &targeted->many_shards, &targeted->one_shard,
                             &targeted->unsharded}) {
      counter->add(next++);
    }
  }
  for (Metrics::Mechanism& mechanism : all.mechanisms) {
    for (Counter* counter : {&mechanism.received, &mechanism.successful,
                             &mechanism.speculative_received, &mechanism.speculative_successful}) {
      counter->add(next++);
    }
  }
  for (const CommandSpec& spec : all_commands()) {
    all.commands[spec.index].total.add(next++);
    all.commands[spec.index].failed.add(next++);
  }
  for (const int code : {43, 13, 0, 51'024}) {
    for (std::uint64_t i = next++ % 7 + 1; i > 0; --i) all.errors.add(code);
  }
  shared.connections.current = 5;
  shared.connections.total = 77;
}

}  // namespace

TEST_CASE("the_text_is_as_prometheus_reads_it", "[metrics]") {
  MemoryBudget budget("page", 0);
  MetricsText text(budget);
  text.family("a_total", MetricType::counter, "Some.");
  text.value({}, std::uint64_t{18'446'744'073'709'551'615ULL});
  text.family("b", MetricType::gauge, "Others.");
  text.value({{"x", "a\"b\\c\nd"}, {"y", ""}}, std::int64_t{-3});
  text.value({}, 0.1);
  LatencyHistogram times;
  times.add(std::chrono::microseconds(100));
  times.add(std::chrono::microseconds(101));
  times.add(std::chrono::minutes(2));
  times.add(-std::chrono::minutes(2));
  text.family("c_seconds", MetricType::histogram, "Times.");
  text.histogram({{"x", "1"}}, times.read());
  const std::string all = text_of(text);
  CHECK(all.starts_with(
      "# HELP a_total Some.\n# TYPE a_total counter\na_total 18446744073709551615\n"
      "# HELP b Others.\n# TYPE b gauge\nb{x=\"a\\\"b\\\\c\\nd\",y=\"\"} -3\nb 0.1\n"
      "# HELP c_seconds Times.\n# TYPE c_seconds histogram\n"
      "c_seconds_bucket{x=\"1\",le=\"0.0001\"} 2\nc_seconds_bucket{x=\"1\",le=\"0.00025\"} 3\n"));
  CHECK(all.ends_with(
      "c_seconds_bucket{x=\"1\",le=\"60\"} 3\nc_seconds_bucket{x=\"1\",le=\"+Inf\"} 4\n"
      "c_seconds_sum{x=\"1\"} 120.000201\nc_seconds_count{x=\"1\"} 4\n"));
}

TEST_CASE("fine_times_are_shown_by_doublings", "[metrics]") {
  MemoryBudget budget("page", 0);
  MetricsText text(budget);
  FineHistogram times;
  times.add(std::chrono::microseconds(4));
  times.add(std::chrono::nanoseconds(4'001));
  times.add(std::chrono::microseconds(1'024));
  times.add(std::chrono::minutes(2));
  text.family("d_seconds", MetricType::histogram, "Times.");
  text.histogram({{"x", "1"}}, times.read());
  const auto samples = samples_of(text_of(text));
  CHECK(samples.size() == 25 + 3);
  CHECK(samples.at("d_seconds_bucket{x=\"1\",le=\"0.000004\"}") == "1");
  CHECK(samples.at("d_seconds_bucket{x=\"1\",le=\"0.000008\"}") == "2");
  CHECK(samples.at("d_seconds_bucket{x=\"1\",le=\"0.000512\"}") == "2");
  CHECK(samples.at("d_seconds_bucket{x=\"1\",le=\"0.001024\"}") == "3");
  CHECK(samples.at("d_seconds_bucket{x=\"1\",le=\"67.108864\"}") == "3");
  CHECK(samples.at("d_seconds_bucket{x=\"1\",le=\"+Inf\"}") == "4");
  CHECK(samples.at("d_seconds_count{x=\"1\"}") == "4");
  CHECK(samples.at("d_seconds_sum{x=\"1\"}") == "120.001032001");
}

TEST_CASE("the page tells when the certificate for clients ends", "[metrics]") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  const std::string name = "spillway_certificate_expiry_timestamp_seconds";
  CHECK(samples_of(page_of(worker)).count(name) == 0);
  const Certificates certificates;
  worker.context.tls = TlsContext::make_server({.files = {.certificate_key = certificates.server()}}).value();
  CHECK(samples_of(page_of(worker)).at(name) == std::to_string(worker.context.tls->certificate()->not_after_s));
}

TEST_CASE("the_page_tells_whether_clients_are_served", "[metrics]") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  const auto serving = [&](bool serves) {
    MetricsText text(worker.shared.memory.admin);
    StatusFacts facts = make_status_facts(worker.shared, {look_at_worker(worker.context)});
    facts.serves = serves;
    write_metrics(text, worker.shared, facts);
    return samples_of(text_of(text)).at("spillway_serving");
  };
  CHECK(serving(false) == "0");
  CHECK(serving(true) == "1");
  worker.shared.life.quiescing = true;
  CHECK(serving(true) == "0");
}

TEST_CASE("the_page_and_server_status_say_the_same_of_time_inside", "[metrics]") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  for (int i = 0; i < 99; ++i) worker.context.inside_times->add(OperationClass::point, std::chrono::microseconds(11));
  worker.context.inside_times->add(OperationClass::point, std::chrono::microseconds(700));
  worker.context.inside_times->add(OperationClass::bulk, std::chrono::milliseconds(3));
  const auto samples = samples_of(page_of(worker));
  CHECK(samples.at("spillway_inside_seconds_bucket{class=\"point\",le=\"0.000008\"}") == "0");
  CHECK(samples.at("spillway_inside_seconds_bucket{class=\"point\",le=\"0.000016\"}") == "99");
  CHECK(samples.at("spillway_inside_seconds_count{class=\"point\"}") == "100");
  CHECK(samples.at("spillway_inside_seconds_sum{class=\"bulk\"}") == "0.003");
  CHECK(samples.at("spillway_inside_seconds_count{class=\"other\"}") == "0");
  const auto number = [](const BsonDoc& status, std::string_view path) {
    INFO(path);
    REQUIRE(status.view().find_path(path).exists());
    return status.view().find_path(path).to_int64().value();
  };
  const BsonDoc status = status_of(worker);
  CHECK(number(status, "metrics.inside.point.count") == 100);
  CHECK(number(status, "metrics.inside.point.sumMicros") == 99 * 11 + 700);
  CHECK(number(status, "metrics.inside.point.p50Micros") == 11);
  CHECK(number(status, "metrics.inside.point.p99Micros") == 11);
  CHECK(number(status, "metrics.inside.point.p999Micros") == 704);
  CHECK(number(status, "metrics.inside.bulk.p99Micros") == 3'072);
  CHECK(number(status, "metrics.inside.other.p99Micros") == 0);
  CHECK_FALSE(status.view().find_path("metrics.inside.point.histogram").exists());
  const BsonDoc cells = status_of(worker, "{'serverStatus': 1, 'metrics': {'histograms': true}, '$db': 'admin'}");
  const ValueView histogram = cells.view().find_path("metrics.inside.point.histogram");
  REQUIRE(histogram.is_array());
  std::map<std::int64_t, std::int64_t> held;
  for (const Element& cell : histogram.as_document()) {
    const DocView each = cell.as_document();
    CHECK(held.emplace(each["upToMicros"].to_int64().value(), each["count"].to_int64().value()).second);
  }
  CHECK(held == std::map<std::int64_t, std::int64_t>{{11, 99}, {704, 1}});
}

TEST_CASE("a_page_for_which_there_is_no_memory_is_not_complete", "[metrics]") {
  MemoryBudget budget("page", 128 * 1024);
  {
    MetricsText text(budget);
    text.family("a", MetricType::gauge, "Some.");
    for (int i = 0; i < 100'000 && text.complete(); ++i) text.value({}, std::uint64_t{1});
    CHECK_FALSE(text.complete());
    CHECK(text.bytes() <= 128 * 1024);
  }
  CHECK(budget.usage().used_bytes == 0);
}

TEST_CASE("errors_are_counted_by_code_within_bounds", "[metrics]") {
  ErrorCounts errors;
  for (std::int32_t code = 0; code < 200; ++code) errors.add(code);
  errors.add(7);
  errors.add(199);
  const auto all = errors.by_code();
  CHECK(all.size() == ErrorCounts::codes_max);
  CHECK(all[7] == std::pair<std::int32_t, std::uint64_t>(7, 2));
  CHECK(errors.others() == 200 - ErrorCounts::codes_max + 1);
}

TEST_CASE("every_family_is_well_named_and_in_one_piece", "[metrics]") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  worker.context.command_times->by_command[command_named("find")->index].add(
      std::chrono::milliseconds(3));
  const std::regex name_form("(spillway|process)_[a-z0-9]+(_[a-z0-9]+)*");
  std::set<std::string> families;
  std::string family, type;
  std::istringstream lines(page_of(worker));
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first == "#" && second == "HELP") {
      family = third;
      CHECK(std::regex_match(family, name_form));
      CHECK(families.insert(family).second);
      CHECK(line.ends_with('.'));
    } else if (first == "#") {
      CHECK((second == "TYPE" && third == family));
      words >> type;
      CHECK((type == "counter") == family.ends_with("_total"));
    } else {
      std::string sample = first.substr(0, first.find('{'));
      if (type == "histogram") sample = sample.substr(0, sample.rfind('_'));
      CHECK(sample == family);
    }
  }
  CHECK(families.contains("spillway_command_duration_seconds"));
}

TEST_CASE("the_page_and_server_status_say_the_same", "[metrics]") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  count_something_everywhere(worker.shared);
  worker.gateway.states()[1].hosts.front().in_use = 4;
  worker.gateway.states()[1].hosts.front().known = false;
  auto held = worker.shared.memory.cursors.try_reserve(4'096);
  REQUIRE(held);
  const auto samples = samples_of(page_of(worker));
  const BsonDoc status = status_of(worker);
  const std::pair<std::string, std::string> same[] = {
      {"spillway_client_connections", "connections.current"},
      {"spillway_client_connections_available", "connections.available"},
      {"spillway_client_connections_active", "connections.active"},
      {"spillway_client_connections_opened_total", "connections.totalCreated"},
      {"spillway_client_connections_refused_total", "connections.rejected"},
      {"spillway_client_received_bytes_total", "network.bytesIn"},
      {"spillway_client_sent_bytes_total", "network.bytesOut"},
      {"spillway_client_requests_total", "network.numRequests"},
      {"spillway_client_greetings_total{backpressure=\"yes\"}", "memory.backpressureClients.yes"},
      {"spillway_client_greetings_total{backpressure=\"no\"}", "memory.backpressureClients.no"},
      {"spillway_client_senders_stopped_total", "memory.refused.sendersStopped"},
      {"spillway_client_stalled_closed_total", "metrics.streams.stalledClosed"},
      {"spillway_client_timed_out_total", "connections.timedOut"},
      {"spillway_client_disconnects_total", "metrics.operation.killedDueToClientDisconnect"},
      {"spillway_operations_total{type=\"insert\"}", "opcounters.insert"},
      {"spillway_operations_total{type=\"query\"}", "opcounters.query"},
      {"spillway_operations_total{type=\"update\"}", "opcounters.update"},
      {"spillway_operations_total{type=\"delete\"}", "opcounters.delete"},
      {"spillway_operations_total{type=\"getmore\"}", "opcounters.getmore"},
      {"spillway_operations_total{type=\"command\"}", "opcounters.command"},
      {"spillway_commands_targeted_total{command=\"find\",shards=\"all\"}",
       "shardingStatistics.numHostsTargeted.find.allShards"},
      {"spillway_commands_targeted_total{command=\"insert\",shards=\"many\"}",
       "shardingStatistics.numHostsTargeted.insert.manyShards"},
      {"spillway_commands_targeted_total{command=\"update\",shards=\"one\"}",
       "shardingStatistics.numHostsTargeted.update.oneShard"},
      {"spillway_commands_targeted_total{command=\"delete\",shards=\"unsharded\"}",
       "shardingStatistics.numHostsTargeted.delete.unsharded"},
      {"spillway_commands_targeted_total{command=\"aggregate\",shards=\"all\"}",
       "shardingStatistics.numHostsTargeted.aggregate.allShards"},
      {"spillway_commands_unknown_total", "metrics.commands.<UNKNOWN>"},
      {"spillway_errors_total{code=\"CursorNotFound\"}", "metrics.errors.CursorNotFound"},
      {"spillway_errors_total{code=\"Unauthorized\"}", "metrics.errors.Unauthorized"},
      {"spillway_errors_total{code=\"Unknown\"}", "metrics.errors.Unknown"},
      {"spillway_errors_total{code=\"Location51024\"}", "metrics.errors.Location51024"},
      {"spillway_cursors_beyond_one_batch_total", "metrics.cursor.moreThanOneBatch"},
      {"spillway_cursors_ended_total{reason=\"killed\"}", "metrics.cursor.killed"},
      {"spillway_cursors_evicted_beyond_share_total", "metrics.cursor.evictedBeyondShare"},
      {"spillway_read_ahead_started_total", "metrics.cursor.readAhead.started"},
      {"spillway_read_ahead_ended_total{outcome=\"hit\"}", "metrics.cursor.readAhead.hits"},
      {"spillway_read_ahead_ended_total{outcome=\"wait\"}", "metrics.cursor.readAhead.waits"},
      {"spillway_read_ahead_ended_total{outcome=\"wasted\"}", "metrics.cursor.readAhead.wasted"},
      {"spillway_streams_total", "metrics.streams.replies"},
      {"spillway_streamed_bytes_total", "metrics.streams.bytes"},
      {"spillway_spliced_bytes_total", "metrics.streams.splicedBytes"},
      {"spillway_streams_failed_total", "metrics.streams.failures"},
      {"spillway_streams_without_memory_total", "metrics.streams.withoutMemory"},
      {"spillway_streams_moved_total", "metrics.streams.moved"},
      {"spillway_replies_uncompressed_total", "metrics.streams.uncompressed"},
      {"spillway_memory_budget_used_bytes{budget=\"cursors\"}", "memory.budgets.cursors.usedBytes"},
      {"spillway_memory_budget_peak_bytes{budget=\"process\"}", "memory.budgets.process.peakBytes"},
      {"spillway_memory_refused_total{what=\"requests\"}", "memory.refused.requests"},
      {"spillway_memory_refused_total{what=\"cursors\"}", "memory.refused.cursors"},
      {"spillway_shard_connections{shard=\"s1\",state=\"in_use\"}",
       "sharding.shards.s1.connectionsInUse"},
      {"spillway_logins_total{mechanism=\"SCRAM-SHA-256\"}",
       "security.authentication.mechanisms.SCRAM-SHA-256.authenticate.received"},
      {"spillway_logins_successful_total{mechanism=\"SCRAM-SHA-1\"}",
       "security.authentication.mechanisms.SCRAM-SHA-1.authenticate.successful"},
      {"spillway_logins_speculative_total{mechanism=\"MONGODB-X509\"}",
       "security.authentication.mechanisms.MONGODB-X509.speculativeAuthenticate.received"},
      {"spillway_commands_denied_total{reason=\"unauthenticated\"}",
       "security.refusedCommands.unauthenticated"},
      {"spillway_commands_denied_total{reason=\"unauthorized\"}",
       "security.refusedCommands.unauthorized"},
      {"spillway_tls_handshakes_total", "security.tlsHandshakes.successful"},
      {"spillway_tls_handshakes_failed_total", "security.tlsHandshakes.failed"},
  };
  for (const auto& [sample, path] : same) {
    INFO(sample << " and " << path);
    REQUIRE(samples.contains(sample));
    REQUIRE(status.view().find_path(path).exists());
    CHECK(samples.at(sample) == std::to_string(status.view().find_path(path).to_int64().value()));
  }
  for (const CommandSpec& spec : all_commands()) {
    if (spec.is(Trait::cluster_only)) continue;
    const std::string path = fmt::format("metrics.commands.{}.failed", spec.name);
    CHECK(samples.at(fmt::format("spillway_commands_failed_total{{command=\"{}\"}}", spec.name)) ==
          std::to_string(status.view().find_path(path).to_int64().value()));
  }
  CHECK(samples.at("spillway_shard_reachable{shard=\"s0\"}") == "1");
  CHECK(samples.at("spillway_shard_reachable{shard=\"s1\"}") == "0");
  CHECK_FALSE(status.view().find_path("sharding.shards.s1.reachable").as_bool());
}

TEST_CASE("connections_of_a_worker_that_does_not_answer_stay_counted", "[metrics]") {
  const auto routing = test::routing_of(two_shards);
  test::FakeWorker worker(routing, no_shard_is_asked);
  test::FakeGateway gateway(*routing, no_shard_is_asked);
  Context silent{worker.loop, worker.pump, gateway, worker.shared, 1, {}};
  worker.shared.workers.push_back(&silent);
  worker.gateway.counts[1].opened.add(2);
  gateway.counts[1].opened.add(3);
  CHECK(samples_of(page_of(worker)).at("spillway_shard_connections_created_total{shard=\"s1\"}") == "5");
}

TEST_CASE("commands_that_ran_show_how_long_they_took", "[metrics]") {
  test::FakeWorker worker(test::routing_of(two_shards), no_shard_is_asked);
  Client client;
  test::FakeRequest ping("{'ping': 1, '$db': 'admin'}"),
      unknown("{'nothing': 1, '$db': 'admin'}");
  worker.run(run_command(worker.context, client, ping.request));
  worker.run(run_command(worker.context, client, ping.request));
  worker.run(run_command(worker.context, client, unknown.request));
  const auto samples = samples_of(page_of(worker));
  CHECK(samples.at("spillway_command_duration_seconds_count{command=\"ping\"}") == "2");
  CHECK(samples.at("spillway_command_duration_seconds_bucket{command=\"ping\",le=\"+Inf\"}") ==
        "2");
  CHECK_FALSE(samples.contains("spillway_command_duration_seconds_count{command=\"find\"}"));
  CHECK(samples.at("spillway_errors_total{code=\"CommandNotFound\"}") == "1");
  CHECK(status_of(worker).view().find_path("opLatencies.commands.ops").to_int64() == 2);
}

}  // namespace spillway::exec
