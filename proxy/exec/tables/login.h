// The user of a client's connection, and the conversation that proves it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proxy/auth/scram.h"
#include "proxy/auth/users.h"
#include "proxy/base/transport.h"
#include "proxy/exec/tables/session_owners.h"

namespace spillway::exec {

// SCRAM under way, between saslStart and the last saslContinue.
struct Conversation {
  auth::ScramServer server;
  auth::Hash hash;
  std::string db;
  std::string user;
  bool skip_empty_exchange = false;  // the server's last message ends it
  bool speculative = false;          // it began inside a hello
  bool proven = false;               // the client knows the password; an empty exchange is missing
};

// Belongs to its connection's worker.
struct Login {
  std::shared_ptr<const auth::User> user;  // null: not logged in
  // Logged in, while users of a shard cannot be read: it is `user` again when they are. Null if `user` is not.
  std::shared_ptr<const auth::User> suspended;
  std::uint64_t generation = 0;            // of the directory that `user` is from
  PeerCertificate certificate;             // verified
  bool from_loopback = false;
  std::unique_ptr<Conversation> conversation;
  // The session that was last confirmed as the user's, and when.
  SessionId session{};
  TimePoint session_claimed{};
};

}  // namespace spillway::exec
