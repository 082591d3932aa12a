// AuditLog: logins, refusals and administrative commands: one JSON document per line, in the schema that MongoDB
// calls "mongo" (atype, ts, uuid, local, remote, users, roles, param, result).
//
// It never contains a secret or a client's document: of commands it has only the names listed here. Any thread; a
// call builds a line and passes it to `sink`, which does not wait for a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cursor/bson_writer.h"
#include "cursor/error.h"
#include "proxy/exec/counters/metrics.h"

namespace spillway::exec {

struct Client;
struct CommandSpec;
struct Request;
class Response;
struct ProcessFacts;

// The line that tells how many are missing before it.
std::string events_lost_line(std::uint64_t missing);

class AuditLog {
 public:
  // False: there was no room for the line, which is lost. The sink tells of it where it is missing (events_lost_line).
  using Sink = std::function<bool(std::string line)>;

  // `reopen`: goes on in a new file; `failed`: how many lines were accepted and could not be written.
  struct Options {
    Sink sink;
    std::function<void()> reopen{};
    std::function<std::uint64_t()> failed{};
  };
  explicit AuditLog(Options options);

  // --- of connections
  void client_metadata(const Client& client);
  void authenticated(const Client& client, std::string_view mechanism, std::string_view db, std::string_view user,
                     std::int32_t result);
  void logged_out(const Client& client);

  // --- of commands
  void refused(const Client& client, const CommandSpec& spec, const Request& request);
  // REQUIRES Trait::audited.
  void done(const Client& client, const CommandSpec& spec, const Request& request, std::int32_t result);
  // An allowed command with an audited effect: an authCheck with the result.
  void administrative(const Client& client, const Request& request, std::int32_t result);

  // --- of the process
  void started(const ProcessFacts& facts);
  void shut_down();
  void reloaded(std::string_view outcome, bool applied);
  // The log was rotated: rotates this one, too.
  void rotate();

  std::uint64_t written() const;
  std::uint64_t lost() const { return lost_.value() + (options_.failed ? options_.failed() : 0); }

 private:
  void write(std::string_view atype, const Client* client, BsonDoc param, std::int32_t result);
  void dropped_index(const Client& client, const Request& request, ValueView index, std::int32_t result);
  void hand_over(std::string line);

  Options options_;
  Counter accepted_, lost_;
  std::uint64_t seed_ = 0;  // of connections' uuids
};

}  // namespace spillway::exec
