// A server in the simulated network that answers OP_MSG as a test tells it to.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cursor/bson_writer.h"
#include "proxy/base/transport.h"
#include "tests/support/sim_transport.h"

namespace spillway::test {

enum class Role { standalone, primary, secondary, arbiter, router };

class ScriptedServer {
 public:
  // Starts to listen.
  ScriptedServer(Loop& loop, SimNetwork& network, std::string host, std::uint16_t port);
  // Waits (virtual time) until its connections have ended.
  ~ScriptedServer();

  // --- what its hello says
  Role role = Role::standalone;
  std::string set_name = "rs0";
  std::vector<std::string> members;
  std::int32_t election = 1;
  std::int32_t max_wire_version = 21;
  std::vector<std::string> compression;  // what it knows
  bool mongod = true;                    // its buildInfo lists storage engines

  // --- what it does
  // The reply to a command that is neither hello nor buildInfo. The default: {ok: 1}.
  std::function<BsonDoc(DocView command)> answer;
  Duration delay{};                                                // before such a reply
  std::function<void(std::vector<std::uint8_t>& message)> mangle;  // such a reply, encoded
  std::size_t cut_after = 0;  // > 0: the connection is reset after these bytes of such a reply

  void kill() { network_.kill(host_, port_); }
  void restart();
  void freeze() { network_.freeze(host_, port_); }
  void thaw() { network_.thaw(host_, port_); }
  std::string text() const { return host_ + ":" + std::to_string(port_); }
  const std::string& host() const { return host_; }
  std::uint16_t port() const { return port_; }

  // --- what it saw
  int hellos = 0;
  int commands = 0;
  int connections = 0;
  int compressed_messages = 0;
  std::vector<BsonDoc> first_hellos;
  std::vector<std::uint8_t> last_command;  // the message, decompressed

 private:
  Task<void> serve(std::unique_ptr<Transport> transport);
  Task<bool> answer_one(Transport& transport, std::vector<std::uint8_t> message);
  BsonDoc hello_reply() const;

  Loop& loop_;
  SimNetwork& network_;
  std::string host_;
  std::uint16_t port_;
  int serving_ = 0;
};

}  // namespace spillway::test
