#include "proxy/server/tools/doctor_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "proxy/auth/service_login.h"
#include "proxy/base/clock.h"
#include "proxy/server/reload/ask_shard.h"
#include "proxy/shard/connect.h"
#include "proxy/shard/handshake.h"
#include "proxy/shard/log_in.h"
#include "proxy/wire/cursor_reply.h"

namespace spillway::server {

namespace {

using shard::HostAddress;
using shard::ServerType;
using Kind = DoctorPlace::Kind;

constexpr std::int64_t skew_ms_max = 2'000;
constexpr std::size_t hosts_max = 64;  // of a place: a replica set has 50 members at most

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// --- asking

BsonDoc command(std::string_view name, std::string_view flag = {}) {
  BsonWriter out;
  out.append(name, std::int32_t{1});
  if (!flag.empty()) out.append(flag, true);
  out.append("$db", "admin");
  return std::move(out).finish();
}

// The host's connection, as far as it came.
struct Visit {
  shard::PoolSettings settings;
  const DoctorPlace& place;
  Duration patience;
  HostReport& report;
  TimePoint deadline() const { return Clock::now() + patience; }
};

void fail(HostReport& report, DoctorStep step, Error why) {
  report.failed_at = step;
  report.error = std::move(why);
}

// The other way to speak, in a try of its own: what a wrong `tls=` looks like depends on both sides. No certificate is
// checked.
Task<void> try_other_way(Visit visit) {
  const bool tls = visit.settings.tls != nullptr;
  if (tls) {
    visit.settings.tls = nullptr;
  } else {
    TlsClientSettings any;
    any.invalid_certificates = true;
    auto made = TlsContext::make_client(any);
    if (made.has_error()) co_return;
    visit.settings.tls = *std::move(made);
  }
  const bool answered = co_await shard::answers(visit.settings, visit.report.address, visit.deadline());
  (tls ? visit.report.speaks_plain : visit.report.speaks_tls) = answered;
}

// A command's reply; {}: none, or an error, which is put into `refused`.
Task<BsonDoc> ask_host(const Visit& visit, shard::Connection& connection, BsonDoc body,
                       std::optional<Error>* refused = nullptr) {
  const auto answered = co_await shard::exchange(connection, body.view(), visit.settings.budgets(), visit.deadline());
  if (answered.has_error()) {
    if (refused != nullptr) *refused = answered.error();
    co_return BsonDoc();
  }
  if (answered->body().validate().has_error()) co_return BsonDoc();
  if (wire::reply_is_ok(answered->body())) co_return BsonDoc(answered->body());
  if (refused != nullptr) *refused = wire::error_from_reply(answered->body());
  co_return BsonDoc();
}

Task<void> ask_facts(const Visit& visit, shard::Connection& connection) {
  HostReport& report = visit.report;
  const TimePoint asked = Clock::now();
  const std::int64_t before_ms = wall_clock_ms();
  auto greeting = ask_host(visit, connection, shard::later_hello(report.server.hello_ok));
  const BsonDoc hello = co_await greeting;
  report.round_trip = Clock::now() - asked;
  if (const ValueView time = hello.view()["localTime"]; time.type == BsonType::date) {
    const std::int64_t after_ms = wall_clock_ms();
    const std::int64_t theirs = time.as_int64();
    report.clock_ahead_ms = theirs < before_ms ? theirs - before_ms : std::max<std::int64_t>(theirs - after_ms, 0);
  }
  report.config_server = hello.view()["configsvr"].exists();
  auto building = ask_host(visit, connection, shard::build_info_command());
  const BsonDoc build = co_await building;
  if (const ValueView version = build.view()["version"]; version.is_string()) report.version = version.as_string();
  auto asking = ask_host(visit, connection, command("getParameter", "featureCompatibilityVersion"));
  const BsonDoc parameter = co_await asking;
  const ValueView level = parameter.view().find_path("featureCompatibilityVersion.version");
  if (level.is_string()) report.compatibility = level.as_string();
  auto looking = ask_host(visit, connection, command("connectionStatus", "showPrivileges"));
  report.login = co_await looking;
  if (report.server.type != ServerType::standalone && report.server.type != ServerType::rs_primary) co_return;
  auto finding =
      ask_host(visit, connection, find_by_id("system.version", "admin", "shardIdentity"), &report.read_refused);
  const BsonDoc found = co_await finding;
  const auto cursor = wire::parse_cursor_reply(found.view());
  report.owned = !cursor.has_error() && cursor->batch.first().is_document();
  if (!report.owned) co_return;
  const ValueView servers = cursor->batch.first().as_document()["configsvrConnectionString"];
  if (servers.is_string()) report.its_config_servers = servers.as_string();
}

Task<void> examine_connected(const Visit& visit, shard::Connection& connection) {
  HostReport& report = visit.report;
  auto introduced =
      co_await shard::introduce(connection, visit.settings.introduction, visit.settings.budgets(), visit.deadline());
  if (introduced.has_error()) {
    fail(report, DoctorStep::hello, introduced.error());
    co_return;
  }
  report.server = *std::move(introduced);
  if (report.server.type == ServerType::rs_arbiter) co_return;  // it knows no users
  if (visit.settings.login) {
    auto logging_in = shard::log_in(connection, *visit.settings.login, visit.settings.budgets(), visit.deadline());
    const auto logged_in = co_await logging_in;
    if (logged_in.has_error()) {
      fail(report, DoctorStep::log_in, logged_in.error());
      co_return;
    }
  }
  co_await ask_facts(visit, connection);
}

Task<void> examine_host(Visit visit) {
  HostReport& report = visit.report;
  auto connected = co_await shard::connect(visit.settings, report.address, visit.deadline());
  if (connected.has_error()) {
    const bool shaking = connected.error().message.starts_with(shard::tls_failure);
    fail(report, shaking ? DoctorStep::tls : DoctorStep::connect, connected.error());
  } else {
    const std::unique_ptr<shard::Connection> connection = *std::move(connected);
    co_await examine_connected(visit, *connection);
    connection->transport().close();
  }
  // Not after an answer, whatever it said.
  if (!report.error) co_return;
  const bool silent = (report.failed_at == DoctorStep::tls && shard::may_lack_tls(*report.error)) ||
                      (report.failed_at == DoctorStep::hello && report.error->is(ErrorCode::host_unreachable));
  if (!silent) co_return;
  co_await try_other_way(visit);
}

// --- judging

std::string remedy_of_connect(const HostReport& host) {
  const std::string& name = host.address.host.str();
  const auto port = host.address.port;
  const std::string& why = host.error->message;
  if (host.error->is(ErrorCode::host_not_found)) {
    return fmt::format("getent hosts {}: correct the name, or /etc/hosts", name);
  }
  if (host.error->is(ErrorCode::network_timeout)) {
    return contains(why, "looking up")
               ? "resolvectl status: the name server does not answer"
               : fmt::format("nc -vz {} {}: the machine is down, or a firewall drops what we send", name, port);
  }
  if (contains(why, "refused")) {
    return fmt::format("on {}: ss -ltn 'sport = :{}': the server is not running, or its net.bindIp leaves out this "
                       "address",
                       name, port);
  }
  return fmt::format("ip route get {}", name);
}

std::string remedy_of_tls(const HostReport& host) {
  const std::string& why = host.error->message;
  const std::string show =
      fmt::format("openssl s_client -connect {} </dev/null | openssl x509 -noout", host.address.text());
  if (host.speaks_plain) return "it speaks plain text: leave tls=true out (in a cluster: net.tls.mode)";
  if (contains(why, "ostname mismatch") || contains(why, "address mismatch")) {
    return show + " -ext subjectAltName: name the host as its certificate does";
  }
  if (contains(why, "expired") || contains(why, "not yet valid")) return show + " -dates: renew it; compare the clocks";
  if (contains(why, "issuer") || contains(why, "self-signed") || contains(why, "self signed")) {
    return show + " -issuer: tlsCAFile= (in a cluster: net.tls.CAFile) must hold this authority";
  }
  return show + " -text";
}

std::string remedy_of(const DoctorPlace& place, const HostReport& host) {
  switch (host.failed_at) {
    case DoctorStep::connect:
      return remedy_of_connect(host);
    case DoctorStep::tls:
      return remedy_of_tls(host);
    case DoctorStep::hello:
      if (host.speaks_tls) return "it speaks TLS: add tls=true and tlsCAFile= (in a cluster: net.tls)";
      if (place.credentials.tls && host.error->is(ErrorCode::host_unreachable)) {
        return "it may want a certificate of ours: tlsCertificateKeyFile= (in a cluster: net.tls.certificateKeyFile)";
      }
      if (contains(host.error->message, "router")) {
        if (place.kind == Kind::table_shard) return "name the shards, or use sharding.configDB";
        return "name the config servers: db.adminCommand({getCmdLineOpts: 1}) there has its sharding.configDB";
      }
      return fmt::format("on {}: see the server's log", host.address.host.str());
    case DoctorStep::log_in:
      if (place.credentials.login->internal() && place.credentials.login->passwords() == 0) {
        return "openssl x509 -noout -subject -in net.tls.clusterFile (or certificateKeyFile), here and on the "
               "server: O, OU and DC must be the same";
      }
      if (place.credentials.login->internal()) {
        return "sha256sum of security.keyFile, here and on the server: they must be the same";
      }
      if (place.credentials.login->mechanism() == auth::ServiceMechanism::x509) {
        return "on the shard: db.getSiblingDB(\"$external\").createUser({user: SUBJECT, roles: […]})";
      }
      return fmt::format("on the shard: db.getSiblingDB(\"{0}\").getUser(\"{1}\"); db.getSiblingDB(\"{0}\")"
                         ".changeUserPassword(\"{1}\", passwordPrompt())",
                         place.credentials.login->db(), place.credentials.login->user());
    case DoctorStep::ask:
      break;
  }
  return {};
}

std::string with_hint(const HostReport& host) {
  std::string text = host.error->message;
  if (host.speaks_plain) text += "; it answers in plain text";
  if (host.speaks_tls) text += "; it answers over TLS";
  return text;
}

Finding good_host(const std::string& subject, const HostReport& host) {
  std::string text(server_type_name(host.server.type));
  if (!host.server.set_name.empty()) text += " of " + host.server.set_name;
  if (!host.version.empty()) text += ", version " + host.version;
  text += fmt::format(", wire version {}", host.server.max_wire_version);
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(host.round_trip).count();
  if (us > 0) text += fmt::format(", {:.1f} ms away", static_cast<double>(us) / 1'000);
  return {Severity::ok, subject, std::move(text), {}};
}

// As servers judge (auth::Privileges::on): no collection means all but system.*, no database all but config and local.
bool covers(DocView resource, std::string_view db, std::string_view collection) {
  const ValueView of = resource["db"], named = resource["collection"];
  if (!of.is_string() || !named.is_string()) return false;
  if (!of.as_string().empty() && of.as_string() != db) return false;
  if (!named.as_string().empty()) return named.as_string() == collection;
  if (collection.starts_with("system.")) return false;
  return !of.as_string().empty() || (db != "config" && db != "local");
}

// Whether one of the privileges of a connectionStatus allows `action` on this collection.
bool allows(DocView status, std::string_view db, std::string_view collection, std::string_view action) {
  const ValueView list = status.find_path("authInfo.authenticatedUserPrivileges");
  if (!list.is_array()) return true;  // the server does not say
  for (const Element& privilege : list.as_document()) {
    if (!privilege.is_document()) continue;
    const ValueView resource = privilege.as_document()["resource"];
    const ValueView actions = privilege.as_document()["actions"];
    if (!resource.is_document() || !actions.is_array()) continue;
    const DocView on = resource.as_document();
    if (!on["anyResource"].truthy() && !covers(on, db, collection)) continue;
    for (const Element& each : actions.as_document()) {
      if (each.is_string() && (each.as_string() == action || each.as_string() == "anyAction")) return true;
    }
  }
  return false;
}

struct Need {
  const char* db;
  const char* collection;
  const char* action;
  const char* what;
  const char* roles;  // with their databases: a name alone is a role of the user's own
};
// What clients do with the user's rights depends on them; these are the router's own.
constexpr Need table_needs[] = {
    {"spillway", "routing", "find", "the routing that a shard keeps cannot be compared",
     R"({role: "readWriteAnyDatabase", db: "admin"})"},
    {"spillway", "routing", "update", "the routing cannot be kept on a shard",
     R"({role: "readWriteAnyDatabase", db: "admin"})"},
};
constexpr Need config_needs[] = {
    {"config", "collections", "find", "the cluster's table cannot be read",
     R"({role: "clusterMonitor", db: "admin"}, {role: "read", db: "config"})"},
    {"admin", "system.users", "find", "the cluster's users cannot log in here",
     R"({role: "userAdminAnyDatabase", db: "admin"})"},
};

Findings judge_rights(const DoctorPlace& place, const std::string& subject, const HostReport& host) {
  Findings found;
  const auto& login = place.credentials.login;
  if (host.read_refused && host.read_refused->is(ErrorCode::unauthorized) && !login) {
    found.push_back({Severity::error, subject, "it wants a login: " + host.read_refused->message,
                     place.kind == Kind::table_shard ? "write security.shards: {user: …, passwordFile: …}"
                                                     : "write security.keyFile"});
    return found;
  }
  if (!login || login->internal()) return found;
  const auto grant = [&](std::string_view roles) {
    return fmt::format("on {}: db.getSiblingDB(\"{}\").grantRolesToUser(\"{}\", [{}])",
                       place.kind == Kind::config_servers ? "the config servers' primary" : "the shard", login->db(),
                       login->user(), roles);
  };
  std::vector<Need> needs;
  if (place.kind == Kind::table_shard) needs.assign(std::begin(table_needs), std::end(table_needs));
  if (place.kind == Kind::config_servers) needs.assign(std::begin(config_needs), std::end(config_needs));
  for (const Need& need : needs) {
    if (allows(host.login.view(), need.db, need.collection, need.action)) continue;
    found.push_back({Severity::warning, subject,
                     fmt::format("{} may not {} {}.{}: {}", login->user(), need.action, need.db, need.collection,
                                 need.what),
                     grant(need.roles)});
  }
  if (place.kind == Kind::table_shard && host.read_refused && host.read_refused->is(ErrorCode::unauthorized)) {
    found.push_back({Severity::warning, subject, "whether it belongs to a cluster cannot be read: " +
                     host.read_refused->message, grant(R"({role: "clusterMonitor", db: "admin"})")});
  }
  return found;
}

// Of a host that is a member of another set than the place's.
std::string remedy_of_set(const DoctorPlace& place, const HostReport& host) {
  const std::string& set = host.server.set_name;
  if (set.empty()) {
    return place.kind == Kind::table_shard ? "leave replicaSet= out, or run rs.initiate() there"
                                           : "run rs.initiate() there";
  }
  if (place.kind == Kind::table_shard) return "write replicaSet=" + set;
  if (place.kind == Kind::cluster_shard) return "through a mongos: db.getSiblingDB(\"config\").shards.find()";
  std::string hosts;
  for (const HostAddress& each : place.uri.hosts) hosts += (hosts.empty() ? "" : ",") + each.text();
  return fmt::format("write sharding.configDB: {}/{}", set, hosts);
}

Findings judge_host(const DoctorPlace& place, const std::string& subject, const HostReport& host) {
  Findings found;
  const std::string& wanted = place.uri.set_name;
  if (!wanted.empty() && host.server.set_name != wanted) {
    found.push_back({Severity::error, subject,
                     host.server.set_name.empty()
                         ? fmt::format("it is no member of a replica set, {} is wanted", wanted)
                         : fmt::format("it is a member of {}, not of {}", host.server.set_name, wanted),
                     remedy_of_set(place, host)});
  }
  // A config server may be a shard, too.
  if (place.kind == Kind::config_servers && host.owned && !host.config_server) {
    found.push_back({Severity::error, subject, "it is a shard of a cluster, and no config server",
                     host.its_config_servers.empty() ? "name the config servers: through a mongos: sh.status()"
                                                     : "write sharding.configDB: " + host.its_config_servers});
  }
  if (host.server.type == ServerType::rs_other) {
    found.push_back({Severity::warning, subject, "it is hidden, starting, recovering or not initiated: not read from",
                     "on it: rs.status()"});
  }
  if (place.kind == Kind::table_shard && host.owned) {
    found.push_back({Severity::error, subject,
                     "it belongs to a sharded cluster, whose balancer moves documents unseen: a static table is "
                     "refused",
                     "write sharding.configDB in place of routing"});
  }
  if (place.kind == Kind::cluster_shard && !host.owned && !host.read_refused && !host.server.set_name.empty() &&
      (host.server.type == ServerType::rs_primary)) {
    found.push_back({Severity::error, subject, "it is no shard of a cluster: it has no shardIdentity",
                     "on it: start it with sharding.clusterRole: shardsvr; through a mongos: sh.addShard()"});
  }
  if (host.clock_ahead_ms && std::abs(*host.clock_ahead_ms) > skew_ms_max) {
    const bool ahead = *host.clock_ahead_ms > 0;
    found.push_back({Severity::warning, subject,
                     fmt::format("its clock is {:.1f} s {} ours: sessions, cluster times and certificates depend on it",
                                 static_cast<double>(std::abs(*host.clock_ahead_ms)) / 1'000,
                                 ahead ? "ahead of" : "behind"),
                     "on both: timedatectl set-ntp true; chronyc tracking"});
  }
  add_all(found, judge_rights(place, subject, host));
  return found;
}

}  // namespace

Findings judge_place(const DoctorPlace& place, const std::vector<HostReport>& hosts) {
  Findings found;
  const auto writable = [](const HostReport& host) {
    return host.server.type == ServerType::rs_primary || host.server.type == ServerType::standalone;
  };
  const auto answered = [](const HostReport& host) { return host.server.known(); };
  const bool has_writable = std::any_of(hosts.begin(), hosts.end(), writable);
  for (const HostReport& host : hosts) {
    const std::string subject = fmt::format("{} {}", place.name, host.address.text());
    if (host.error) {
      // A member that is down is what replica sets are for.
      const bool down = host.failed_at == DoctorStep::connect && has_writable;
      found.push_back({down ? Severity::warning : Severity::error, subject, with_hint(host), remedy_of(place, host)});
    } else {
      found.push_back(good_host(subject, host));
    }
    if (answered(host)) add_all(found, judge_host(place, subject, host));
  }
  if (!has_writable && std::any_of(hosts.begin(), hosts.end(), answered)) {
    found.push_back({Severity::error, place.name, "none of its hosts is a primary: it takes no writes",
                     "on a member: rs.status()"});
  }
  return found;
}

Findings judge_versions(const std::vector<HostReport>& hosts) {
  Findings found;
  const auto series = [](const std::string& version) {  // "4.2" of "4.2.25"
    const std::size_t dot = version.find('.');
    return dot == std::string::npos ? version : version.substr(0, version.find('.', dot + 1));
  };
  const HostReport* first = nullptr;
  for (const HostReport& host : hosts) {
    if (host.version.empty()) continue;
    if (first == nullptr) first = &host;
    if (series(host.version) != series(first->version)) {
      found.push_back({Severity::warning, "versions",
                       fmt::format("{} has {}, {} has {}: clients get what the oldest can do", first->address.text(),
                                   first->version, host.address.text(), host.version),
                       "finish the upgrade"});
      break;
    }
  }
  for (const HostReport& host : hosts) {
    if (host.compatibility.empty() || host.version.empty() || series(host.version) == host.compatibility) continue;
    found.push_back({Severity::warning, host.address.text(),
                     fmt::format("its feature compatibility version is {}, its version {}: an upgrade is unfinished",
                                 host.compatibility, host.version),
                     fmt::format("when all have the new version: db.adminCommand({{setFeatureCompatibilityVersion: "
                                 "\"{}\"}})",
                                 series(host.version))});
    break;
  }
  return found;
}

Task<std::vector<HostReport>> examine_place(const shard::PoolSettings& settings, const DoctorPlace& place,
                                            Duration patience) {
  std::vector<HostReport> reports;
  reports.reserve(hosts_max);  // visits keep references
  std::vector<HostAddress> next = place.uri.hosts;
  while (!next.empty()) {
    TaskGroup visits;
    for (const HostAddress& address : next) {
      if (reports.size() == hosts_max) break;
      HostReport& report = reports.emplace_back();
      report.address = address;
      shard::PoolSettings with = settings;
      with.tls = place.credentials.tls;
      with.login = place.credentials.login;
      visits.start(examine_host(Visit{with, place, patience, report}));
    }
    co_await visits.wait();
    next.clear();
    if (place.uri.direct) break;
    // The members that the connection string does not name.
    for (const HostReport& report : reports) {
      for (const HostAddress& member : report.server.hosts) {
        const auto is = [&](const HostReport& other) { return other.address == member; };
        const bool known = std::any_of(reports.begin(), reports.end(), is);
        if (!known && std::find(next.begin(), next.end(), member) == next.end()) next.push_back(member);
      }
    }
    if (reports.size() >= hosts_max) break;
  }
  co_return reports;
}

}  // namespace spillway::server
