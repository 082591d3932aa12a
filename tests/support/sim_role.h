// What a scripted mongod is within a cluster, beside a server with documents: a config server, or a shard that
// enforces versions. SimShard asks its role before and after each command.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/base/loop.h"

namespace spillway::test {

// A command that is being served.
struct SimRequest {
  DocView body;
  std::string_view name;
  std::string ns;           // db and the first field's text
  bool primary = true;      // a primary answers it
  bool filtered = false;    // set by the role: what the role does not see is left out
  bool waited = false;      // set by the role: for a critical section, so it is stale
  std::uint64_t at_time = 0;  // set by the role: of the state that is read; 0: the present one
};

// Why a command, or one statement of a write, was not executed.
struct SimRefusal {
  std::int32_t code = 0;
  std::string name;
  std::string message;
  BsonDoc extra;           // further fields, beside the code
  bool nested_63 = false;  // as a write error it has code 63, and `extra` in errInfo

  BsonDoc reply() const;
  void append_write_error(BsonWriter& errors, std::size_t index) const;
};

class SimRole {
 public:
  virtual ~SimRole() = default;
  // Waits for what the command must wait for. Set: the whole reply, the command is not executed. `request` stays
  // where it is until the reply is made.
  virtual Task<std::optional<BsonDoc>> admit(Loop& loop, SimRequest& request) = 0;
  virtual std::optional<SimRefusal> refuse_statement(SimRequest& request, std::size_t index) = 0;
  // Before each document of a write but its first: those before are written.
  virtual std::optional<SimRefusal> refuse_document(SimRequest&) { return std::nullopt; }
  // The documents of the request's collection, if they are not the server's own.
  virtual const std::vector<BsonDoc>* documents(const SimRequest& request) = 0;
  virtual bool sees(const SimRequest& request, DocView document) = 0;
  virtual void wrote(const SimRequest& request) = 0;
  virtual BsonDoc finish(const SimRequest& request, BsonDoc reply) = 0;
  virtual void add_to_hello(BsonWriter& hello) = 0;
};

}  // namespace spillway::test
