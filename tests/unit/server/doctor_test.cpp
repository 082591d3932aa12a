// What `spillway doctor` makes of a machine and of what servers said: each check fires where it should, and only there.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "proxy/server/connections/listener.h"
#include "proxy/server/tools/command_line.h"
#include "proxy/server/tools/doctor_machine.h"
#include "proxy/server/tools/doctor_servers.h"

namespace spillway::server {
namespace {

using shard::ServerType;
using Kind = DoctorPlace::Kind;

// The findings of a severity, each "subject: text -> remedy".
std::string told(const Findings& findings, Severity severity) {
  std::string text;
  for (const Finding& finding : findings) {
    if (finding.severity == severity) text += finding.subject + ": " + finding.text + " -> " + finding.remedy + "\n";
  }
  return text;
}
bool says(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

constexpr std::uint64_t gib = 1'024 * limits::mib;

MachineFacts good_machine() {
  MachineFacts facts;
  facts.limits.cpus = 2;
  facts.limits.memory_bytes = 8 * gib;
  facts.files_max = 1'000'000;
  facts.memory_available_bytes = 4 * gib;
  facts.connections_queued_max = 4'096;
  facts.ports_first = 32'768;
  facts.ports_last = 60'999;
  return facts;
}

TEST_CASE("a good machine has no findings but good ones", "[doctor]") {
  const Findings found = check_machine(Config(), good_machine());
  CHECK(count(found, Severity::ok) == found.size());
  CHECK(found.size() == 3);
}

TEST_CASE("each shortage of a machine is told, with its remedy", "[doctor]") {
  struct Case {
    const char* what;
    void (*change)(Config&, MachineFacts&);
    Severity severity;
    const char* says;
    const char* remedy;
  };
  const Case cases[] = {
      {"no limit", [](Config& c, MachineFacts&) { c.memory_limit.kind = MemoryLimit::Kind::unlimited; },
       Severity::warning, "there is none", "memory: {limit"},
      {"above the cgroup's",
       [](Config& c, MachineFacts& m) {
         c.memory_limit = MemoryLimit{.kind = MemoryLimit::Kind::bytes, .value = gib};
         m.limits.cgroup_memory_bytes = gib / 2;
       },
       Severity::error, "the cgroup allows (512 MiB)", "MemoryHigh= and MemoryMax="},
      {"above what is available",
       [](Config& c, MachineFacts& m) {
         c.memory_limit = MemoryLimit{.kind = MemoryLimit::Kind::bytes, .value = gib};
         m.memory_available_bytes = gib - 1;
       },
       Severity::warning, "available now (1023 MiB)", "memory.limit lower"},
      {"few files",
       [](Config& c, MachineFacts& m) {
         c.net.max_incoming_connections = 5'000;
         m.files_max = 1'024;
       },
       Severity::warning, "820 clients are let in, not 5000", "LimitNOFILE=6250"},
      {"somaxconn", [](Config&, MachineFacts& m) { m.connections_queued_max = 128; }, Severity::warning, "it is 128",
       "sysctl -w net.core.somaxconn=4096"},
      {"ports",
       [](Config& c, MachineFacts& m) {
         c.pool_max = 1'000;
         m.ports_last = m.ports_first + 1'498;
       },
       Severity::warning, "1499 ports, and up to 2000 connections", "ip_local_port_range"},
      {"overcommit", [](Config&, MachineFacts& m) { m.overcommit = 2; }, Severity::warning, "it is 2",
       "vm.overcommit_memory=0"},
      {"huge pages", [](Config&, MachineFacts& m) { m.huge_pages_always = true; }, Severity::warning, "always used",
       "echo madvise"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    Config config;
    MachineFacts facts = good_machine();
    c.change(config, facts);
    const Findings found = check_machine(config, facts);
    CHECK(count(found, Severity::warning) + count(found, Severity::error) == 1);
    const std::string text = told(found, c.severity);
    CAPTURE(text);
    CHECK(says(text, c.says));
    CHECK(says(text, c.remedy));
  }
}

TEST_CASE("the files that it asks for suffice, and one less does not", "[doctor]") {
  for (const std::int64_t clients : {1, 63, 256, 257, 1'000, 65'536}) {
    INFO(clients);
    CHECK(clients_of_files(files_for_clients(clients)) >= clients);
    CHECK(clients_of_files(files_for_clients(clients) - 1) <= clients);
  }
}

// A folder that goes with it.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "doctor-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path / file).parent_path());
    std::ofstream(path / file) << text;
  }
  std::filesystem::path path;
};

TEST_CASE("the machine's facts are read from its files", "[doctor]") {
  const Folder root;
  root.write("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 100 kB\nMemAvailable:  2048 kB\n");
  root.write("proc/sys/net/core/somaxconn", "128\n");
  root.write("proc/sys/vm/overcommit_memory", "2\n");
  root.write("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  const MachineFacts facts = read_machine(root.path.string(), {}, 7);
  CHECK(facts.memory_available_bytes == 2'048 * 1'024);
  CHECK(facts.connections_queued_max == 128);
  CHECK(facts.overcommit == 2);
  CHECK(facts.ports_first == 32'768);
  CHECK(facts.ports_last == 60'999);
  CHECK(facts.huge_pages_always);
  CHECK(facts.files_max == 7);
  const Folder empty;
  const MachineFacts unknown = read_machine(empty.path.string(), {}, 0);
  Config config;
  config.memory_limit = MemoryLimit{.kind = MemoryLimit::Kind::bytes, .value = gib};
  CHECK(count(check_machine(config, unknown), Severity::ok) == 3);  // what is not known is no shortage
}

TEST_CASE("files that the service cannot write are told", "[doctor]") {
  const Folder folder;
  Config config;
  config.system_log.destination = LogDestination::file;
  config.system_log.path = (folder.path / "log").string();
  config.audit.destination = AuditDestination::file;
  config.audit.path = (folder.path / "none" / "audit").string();
  const Findings found = check_places(config);
  CHECK(says(told(found, Severity::ok), "systemLog.path"));
  const std::string text = told(found, Severity::error);
  CHECK(says(text, "auditLog.path"));
  CHECK(says(text, "there is no folder"));
  CHECK(says(text, "install -d"));
}

// --- what servers said

HostReport host(const char* name, ServerType type = ServerType::rs_primary) {
  HostReport report;
  report.address = {name, 27'017};
  report.server.type = type;
  report.server.set_name = type == ServerType::standalone ? "" : "rs0";
  report.server.max_wire_version = 21;
  report.version = "7.0.5";
  return report;
}
HostReport failed(const char* name, DoctorStep step, Error why) {
  HostReport report;
  report.address = {name, 27'017};
  report.failed_at = step;
  report.error = std::move(why);
  return report;
}
DoctorPlace place(Kind kind = Kind::table_shard) {
  DoctorPlace all;
  all.kind = kind;
  all.name = "s0";
  return all;
}
auth::ServiceLogin::Ptr login() {
  return auth::ServiceLogin::make(auth::ServiceMechanism::scram_sha_256, "router", "admin",
                                  auth::Secret::make("secret"))
      .value();
}

TEST_CASE("each failed step of a host has its remedy", "[doctor]") {
  struct Case {
    DoctorStep step;
    Error error;
    const char* remedy;
  };
  const auto error = [](ErrorCode code, const char* text) { return Error(code, text); };
  const Case cases[] = {
      {DoctorStep::connect, error(ErrorCode::host_not_found, "Name or service not known"), "getent hosts a"},
      {DoctorStep::connect, error(ErrorCode::network_timeout, "Timed out connecting"), "nc -vz a 27017"},
      {DoctorStep::connect, error(ErrorCode::network_timeout, "Timed out looking up a"), "resolvectl"},
      {DoctorStep::connect, error(ErrorCode::host_unreachable, "Connection refused"), "ss -ltn"},
      {DoctorStep::connect, error(ErrorCode::host_unreachable, "No route to host"), "ip route get a"},
      {DoctorStep::tls, error(ErrorCode::host_unreachable, "validation failed: hostname mismatch"), "subjectAltName"},
      {DoctorStep::tls, error(ErrorCode::host_unreachable, "certificate has expired"), "-dates"},
      {DoctorStep::tls, error(ErrorCode::host_unreachable, "unable to get local issuer certificate"), "tlsCAFile="},
      {DoctorStep::hello, error(ErrorCode::illegal_operation, "it is a router (mongos)"), "sharding.configDB"},
      {DoctorStep::hello, error(ErrorCode::host_unreachable, "it hung up"), "log"},
      {DoctorStep::log_in, error(ErrorCode::host_unreachable, "it does not let us log in"), "changeUserPassword"},
  };
  for (const Case& c : cases) {
    INFO(c.error.message);
    DoctorPlace at = place();
    at.credentials.login = login();
    const std::string text = told(judge_place(at, {failed("a", c.step, c.error)}), Severity::error);
    CAPTURE(text);
    CHECK(says(text, c.error.message.c_str()));
    CHECK(says(text, c.remedy));
  }
}

TEST_CASE("a key file's remedy is another than a password's", "[doctor]") {
  DoctorPlace at = place(Kind::config_servers);
  at.credentials.login = auth::ServiceLogin::make_internal({auth::Secret::make("key of a cluster")}).value();
  const auto refused = failed("a", DoctorStep::log_in, Error(ErrorCode::host_unreachable, "Authentication failed"));
  CHECK(says(told(judge_place(at, {refused}), Severity::error), "sha256sum of security.keyFile"));
  at.credentials.login = auth::ServiceLogin::make_internal({}).value();
  CHECK(says(told(judge_place(at, {refused}), Severity::error), "openssl x509"));
}

TEST_CASE("a server with TLS is told from one with plain text", "[doctor]") {
  HostReport plain = failed("a", DoctorStep::tls, Error(ErrorCode::host_unreachable, "wrong version number"));
  plain.speaks_plain = true;
  CHECK(says(told(judge_place(place(), {plain}), Severity::error), "leave tls=true out"));
  HostReport tls = failed("a", DoctorStep::hello, Error(ErrorCode::host_unreachable, "it hung up"));
  tls.speaks_tls = true;
  CHECK(says(told(judge_place(place(), {tls}), Severity::error), "add tls=true"));
}

TEST_CASE("a member that is down is a warning while there is a primary", "[doctor]") {
  const auto down = failed("b", DoctorStep::connect, Error(ErrorCode::host_unreachable, "Connection refused"));
  const Findings with = judge_place(place(), {host("a"), down});
  CHECK(count(with, Severity::warning) == 1);
  CHECK(count(with, Severity::error) == 0);
  const Findings without = judge_place(place(), {host("a", ServerType::rs_secondary), down});
  const std::string text = told(without, Severity::error);
  CHECK(says(text, "Connection refused"));
  CHECK(says(text, "none of its hosts is a primary"));
}

TEST_CASE("what a host says of itself is compared with the configuration", "[doctor]") {
  DoctorPlace at = place();
  at.uri.set_name = "rs1";
  const auto errors = [&](const HostReport& report) { return told(judge_place(at, {report}), Severity::error); };
  CHECK(says(errors(host("a")), "a member of rs0, not of rs1 -> write replicaSet=rs0"));
  CHECK(says(errors(host("a", ServerType::standalone)), "no member of a replica set"));
  at.uri.set_name = "rs0";
  CHECK(count(judge_place(at, {host("a")}), Severity::ok) == 1);
  HostReport owned = host("a");
  owned.owned = true;
  CHECK(says(told(judge_place(at, {owned}), Severity::error), "write sharding.configDB"));
  at.kind = Kind::cluster_shard;
  CHECK(count(judge_place(at, {owned}), Severity::error) == 0);
  CHECK(says(told(judge_place(at, {host("a")}), Severity::error), "no shardIdentity"));
}

TEST_CASE("a wrong sharding.configDB has its right form as its remedy", "[doctor]") {
  DoctorPlace at = place(Kind::config_servers);
  at.uri.set_name = "cfg";
  at.uri.hosts = {{"a", 27019}, {"b", 27019}};
  const auto errors = [&](const HostReport& report) { return told(judge_place(at, {report}), Severity::error); };
  CHECK(says(errors(host("a")), "a member of rs0, not of cfg -> write sharding.configDB: rs0/a:27019,b:27019"));
  CHECK(says(errors(failed("a", DoctorStep::hello, Error(ErrorCode::illegal_operation, "it is a router (mongos)"))),
             "name the config servers: db.adminCommand({getCmdLineOpts: 1})"));
  at.uri.set_name = "rs0";
  HostReport shard = host("a");
  shard.owned = true;
  shard.its_config_servers = "cfg/c:27019";
  CHECK(says(errors(shard), "a shard of a cluster, and no config server -> write sharding.configDB: cfg/c:27019"));
  shard.config_server = true;  // it is both
  CHECK(errors(shard).empty());
  at.kind = Kind::cluster_shard;
  at.uri.set_name = "rs1";
  CHECK(says(errors(host("a")), "not of rs1 -> through a mongos: db.getSiblingDB(\"config\").shards.find()"));
}

TEST_CASE("a clock that is off is told beyond two seconds", "[doctor]") {
  HostReport off = host("a");
  off.clock_ahead_ms = 2'000;
  CHECK(count(judge_place(place(), {off}), Severity::warning) == 0);
  off.clock_ahead_ms = -2'500;
  const std::string behind = told(judge_place(place(), {off}), Severity::warning);
  CHECK(says(behind, "2.5 s behind ours"));
  CHECK(says(behind, "chronyc"));
  off.clock_ahead_ms = 90'000;
  CHECK(says(told(judge_place(place(), {off}), Severity::warning), "90.0 s ahead of ours"));
}

TEST_CASE("a shard that wants a login, and rights that lack, are told", "[doctor]") {
  HostReport closed = host("a");
  closed.read_refused = Error(ErrorCode::unauthorized, "command find requires authentication");
  CHECK(says(told(judge_place(place(), {closed}), Severity::error), "security.shards"));
  DoctorPlace at = place();
  at.credentials.login = login();
  const auto with_rights = [&](const char* privileges) {
    HostReport report = host("a");
    report.login = BsonDoc::from_json(std::string("{\"authInfo\": {\"authenticatedUserPrivileges\": ") + privileges +
                                      "}}")
                       .value();
    return told(judge_place(at, {report}), Severity::warning);
  };
  const std::string lacking =
      with_rights(R"([{"resource": {"db": "app", "collection": ""}, "actions": ["find", "update"]}])");
  CAPTURE(lacking);
  CHECK(says(lacking, "router may not find spillway.routing"));
  CHECK(says(lacking, "grantRolesToUser(\"router\", [{role: \"readWriteAnyDatabase\", db: \"admin\"}])"));
  CHECK(with_rights(R"([{"resource": {"db": "", "collection": ""}, "actions": ["find", "update"]}])").empty());
  CHECK(with_rights(R"([{"resource": {"anyResource": true}, "actions": ["anyAction"]}])").empty());
  at.kind = Kind::config_servers;
  CHECK(says(with_rights(R"([{"resource": {"db": "config", "collection": ""}, "actions": ["find"]}])"),
             "find admin.system.users"));
  // As on a server, no database leaves out config, and no collection leaves out system.*.
  const std::string any = with_rights(R"([{"resource": {"db": "", "collection": ""}, "actions": ["find"]}])");
  CHECK(says(any, "find config.collections"));
  CHECK(says(any, "find admin.system.users"));
  CHECK(says(with_rights(R"([{"resource": {"db": "admin", "collection": ""}, "actions": ["find"]}])"),
             "find admin.system.users"));
  CHECK(with_rights(R"([{"resource": {"db": "config", "collection": ""}, "actions": ["find"]},
                        {"resource": {"db": "admin", "collection": "system.users"}, "actions": ["find"]}])")
            .empty());
  const std::string none = with_rights("[]");
  CHECK(says(none, "on the config servers' primary: "));
  CHECK(says(none, "[{role: \"clusterMonitor\", db: \"admin\"}, {role: \"read\", db: \"config\"}])"));
}

TEST_CASE("no remedy changes a folder that is there", "[doctor]") {
  const Folder folder;
  folder.write("shared/others.log", "");
  folder.write("mine/log", "");
  std::filesystem::permissions(folder.path / "shared", std::filesystem::perms(0555));
  std::filesystem::permissions(folder.path / "mine/log", std::filesystem::perms(0444));
  Config config;
  config.system_log.destination = LogDestination::file;
  config.system_log.path = (folder.path / "mine/log").string();
  config.pid_file_path = (folder.path / "shared/pid").string();
  const bool root = ::geteuid() == 0;  // may write everything
  std::filesystem::permissions(folder.path, std::filesystem::perms(0755));
  if (root) REQUIRE(::seteuid(65'534) == 0);
  const std::string text = told(check_places(config), Severity::error);
  if (root) REQUIRE(::seteuid(0) == 0);
  std::filesystem::permissions(folder.path / "shared", std::filesystem::perms(0755));
  CAPTURE(text);
  CHECK(says(text, ("chown spillway: " + config.system_log.path + "\n").c_str()));
  CHECK(says(text, ("-m 0750 " + (folder.path / "shared/spillway").string() + ";").c_str()));
  CHECK_FALSE(says(text, "/*"));
}

TEST_CASE("a folder that systemd makes when the service starts is no error before", "[doctor]") {
  Config config;
  config.pid_file_path = "/run/no-such-folder-of-spillway/pid";
  CHECK(count(check_places(config), Severity::error) == 0);
  CHECK(says(told(check_places(config), Severity::warning), "systemd makes it"));
  config.pid_file_path = "/no/such/folder/pid";
  CHECK(says(told(check_places(config), Severity::error), "-m 0750 /no/such/folder\n"));
}

TEST_CASE("places that the unit makes read-only are told, unless a drop-in opens them", "[doctor]") {
  Config config;
  config.system_log.path = "/srv/unused.log";  // the log goes to the console
  config.audit.destination = AuditDestination::file;
  config.audit.path = "/var/log/spillway/audit.json";
  config.pid_file_path = "/run/spillway/pid";
  config.spill.path = "/var/lib/spillway";
  CHECK(check_sandbox(config, "").empty());
  config.audit.path = "/var/log/spillway-audit.json";
  config.pid_file_path = "/run/spillway.pid";
  config.spill.path = "/srv/spill";
  const std::string text = told(check_sandbox(config, ""), Severity::warning);
  CAPTURE(text);
  CHECK(says(text, "auditLog.path: /var/log/spillway-audit.json: under systemd"));
  CHECK(says(text, "ReadWritePaths=/run; or a path below /run/spillway"));
  CHECK(says(text, "ReadWritePaths=/srv/spill; or a path below /var/lib/spillway"));
  CHECK(check_sandbox(config, "[Service]\nReadWritePaths=/srv/ -/run\nReadWritePaths=/var/log\n").empty());
  CHECK(check_sandbox(config, "#ReadWritePaths=/srv /run /var/log").size() == 3);
}

TEST_CASE("changes of the unit are read where systemd runs", "[doctor]") {
  const Folder folder;
  CHECK_FALSE(read_units(folder.path.string()));
  folder.write("run/systemd/system/unused", "");
  CHECK(read_units(folder.path.string()));
  folder.write("etc/systemd/system/spillway.service.d/override.conf", "[Service]\nReadWritePaths=/srv\n");
  CHECK(says(*read_units(folder.path.string()), "\nReadWritePaths=/srv"));
}

TEST_CASE("a port that only root may take has another remedy than one in use", "[doctor]") {
  NetConfig net;
  net.port = 443;
  const std::string denied = remedy_for_port(net, "cannot listen on 127.0.0.1:443: Permission denied");
  CHECK(says(denied, "PrivateUsers=no"));
  CHECK(says(denied, "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"));
  CHECK(says(denied, "ListenStream=443"));
  const std::string used = remedy_for_port(net, "cannot listen on 127.0.0.1:443: Address already in use");
  CHECK(used == "ss -ltnp 'sport = :443' shows its owner");
  net.port = 27'017;
  CHECK(says(remedy_for_port(net, "cannot listen on 127.0.0.1:27017: Permission denied"), "ss -ltnp"));
}

TEST_CASE("different versions and unfinished upgrades are told once", "[doctor]") {
  HostReport a = host("a"), b = host("b"), c = host("c");
  a.compatibility = b.compatibility = c.compatibility = "7.0";
  CHECK(judge_versions({a, b, c}).empty());
  b.version = "7.0.9";  // a patch is no other version
  CHECK(judge_versions({a, b, c}).empty());
  c.version = c.compatibility = "6.0.1";
  c.compatibility = "6.0";
  const std::string mixed = told(judge_versions({a, b, c}), Severity::warning);
  CHECK(says(mixed, "c:27017 has 6.0.1"));
  for (HostReport* each : {&a, &b, &c}) {
    each->version = "7.0.5";
    each->compatibility = "6.0";
  }
  const std::string unfinished = told(judge_versions({a, b, c}), Severity::warning);
  CHECK(says(unfinished, "setFeatureCompatibilityVersion: \"7.0\""));
  CHECK(count(judge_versions({a, b, c}), Severity::warning) == 1);
}

TEST_CASE("findings are printed for people and for scripts", "[doctor]") {
  const Findings found{{Severity::ok, "a", "fine", ""}, {Severity::error, "b", "say \"no\"", "mend it"}};
  CHECK(print_findings(found) ==
        "ok       a: fine\nerror    b: say \"no\"\n         -> mend it\n1 error, no warnings\n");
  const BsonDoc json = BsonDoc::from_json(findings_json(found)).value();
  CHECK(json.view()["errors"].to_int64() == 1);
  CHECK(json.view()["warnings"].to_int64() == 0);
  CHECK(json.view()["findings"].as_document()["1"].as_document()["text"].as_string() == "say \"no\"");
  CHECK(BsonDoc::from_json(findings_json({})).has_value());
}

TEST_CASE("doctor is a word of the command line, with the options of the service", "[doctor]") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"doctor", "--config", "a", "--set", "net.port=1", "--json"},
        {"--config", "a", "--set", "net.port=1", "doctor", "--json"}}) {
    const CommandLine line = parse_command_line(arguments);
    CHECK(line.action == CommandLine::Action::doctor);
    CHECK(line.config_path == "a");
    CHECK(line.overrides == std::vector<std::string>{"net.port=1"});
    CHECK(line.json);
  }
  CHECK_FALSE(parse_command_line({"doctor"}).json);
  CHECK(parse_command_line({"doctor", "--canned", "1"}).action == CommandLine::Action::usage_error);
  CHECK(parse_command_line({"--json"}).action == CommandLine::Action::usage_error);
}

}  // namespace
}  // namespace spillway::server
