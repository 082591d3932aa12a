// Logging in: saslStart, saslContinue, authenticate, logout, and the login fields of hello. Source: the drivers'
// Authentication specification.
//
// Every failure is AuthenticationFailed(18) with the same text: a client cannot learn which users exist. The log has
// the reason.
#pragma once

#include "proxy/exec/access/user_feed.h"
#include "proxy/exec/core/context.h"
#include "proxy/wire/hello.h"

namespace spillway::exec {

// saslSupportedMechs and speculativeAuthenticate of a hello's reply, if the client asked for them. A failed first
// step is left out.
void append_authentication(BsonWriter& reply, Context& context, Client& client,
                           const wire::HelloRequest& hello);

// A user whom a hello or a saslStart names, and who is not known, may have been made elsewhere a moment ago. In a
// cluster the config servers are asked, some times a second at most.
std::optional<UserToLearn> user_to_learn(Context& context, const Client& client, const wire::HelloRequest& hello);

// The client of another process has logged in there as this user: it is logged in here, too. False: there is no such
// user.
bool restore_login(Context& context, Client& client, std::string_view db, std::string_view name);

// Looks a client's user up again if users have changed; a removed user loses access, also if there is another one of
// its name now. So does one whose shard cannot be read, until it is.
void refresh_login(const auth::UserDirectory& users, Client& client);

// Commands with secret fields: not logged, not shown.
bool is_sensitive(std::string_view command) noexcept;
// The same, or one of Queryable Encryption, which has search tokens.
bool is_sensitive(DocView command) noexcept;

}  // namespace spillway::exec
