// Opens a connection to a host of a shard, with TLS where its connection string asks for it.
#pragma once

#include <memory>
#include <string_view>

#include "proxy/shard/connection.h"
#include "proxy/shard/pool.h"

namespace spillway::shard {

inline constexpr std::string_view tls_failure = "TLS handshake with ";  // the message begins so

// May a server whose handshake has failed so speak no TLS at all? Not where a certificate is the reason: that is no
// reason to leave TLS out.
inline bool may_lack_tls(const Error& failed) noexcept {
  return failed.message.starts_with(tls_failure) && failed.message.find("certificate") == std::string::npos;
}

// HostNotFound(7), HostUnreachable(6), NetworkTimeout(89); a failed TLS handshake is HostUnreachable, too, and names
// the failure. `settings` outlives the task. `reached_by`: when the host must have been found and reached, TLS aside.
Task<Result<std::unique_ptr<Connection>>> connect(const PoolSettings& settings, HostAddress address,
                                                  TimePoint deadline, TimePoint reached_by = time_point_never);

// Does the host answer a first hello over a connection with these settings? An error is an answer, too.
Task<bool> answers(const PoolSettings& settings, HostAddress address, TimePoint deadline);

}  // namespace spillway::shard
