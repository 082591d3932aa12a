#include "proxy/server/credentials.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "proxy/base/clock.h"
#include "proxy/server/shard_login.h"
#include "proxy/server/tls_config.h"

namespace spillway::server {

namespace {

constexpr std::chrono::seconds warned_before = std::chrono::days(30);

void warn_of(const TlsContext::Ptr& context, std::vector<std::string>& warnings) {
  if (!context || !context->certificate()) return;
  const TlsCertificate& certificate = *context->certificate();
  const std::chrono::seconds left(certificate.not_after_s - wall_clock_ms() / 1000);
  if (left > warned_before) return;
  std::string text = fmt::format("the certificate in {} ({}) expires in {} hours, on {:%Y-%m-%d %H:%M:%S} UTC",
                                 certificate.file, certificate.subject,
                                 std::chrono::duration_cast<std::chrono::hours>(left).count(),
                                 fmt::gmtime(static_cast<std::time_t>(certificate.not_after_s)));
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end()) warnings.push_back(std::move(text));
}

}  // namespace

std::vector<std::string> Credentials::warnings() const {
  std::vector<std::string> warnings;
  warn_of(clients, warnings);
  for (const shard::ShardCredentials& shard : shards) warn_of(shard.tls, warnings);
  return warnings;
}

Result<Credentials::Ptr> read_credentials(const Config& config, const catalog::RoutingSnapshot& routing) {
  auto read = std::make_shared<Credentials>();
  auto clients = make_server_tls(config.net.tls);
  if (clients.has_error()) return Error(ErrorCode::invalid_ssl_configuration, "net.tls: " + clients.error().message);
  read->clients = *std::move(clients);
  read->plain_text = config.net.tls.mode == TlsMode::require ? PlainText::refused : PlainText::allowed;
  shard::GatewayOptions options = gateway_options(config, routing);
  auto login = make_shard_login(config.shard_login);
  if (login.has_error()) return Error(ErrorCode::bad_value, "security.shards: " + login.error().message);
  options.login = *std::move(login);
  auto shards = shard::read_credentials(options);
  if (shards.has_error()) return shards.error();
  read->shards = *std::move(shards);
  return Credentials::Ptr(std::move(read));
}

shard::GatewayOptions gateway_options(const Config& config, const catalog::RoutingSnapshot& routing) {
  shard::GatewayOptions options;
  for (const catalog::Shard& shard : routing.shards()) options.shards.push_back({shard.name, shard.uri});
  options.connect_timeout_ms = config.parameters.connect_timeout_ms;
  options.local_threshold_ms = config.local_threshold_ms;
  options.pool_min = static_cast<std::size_t>(config.parameters.pool_min);
  options.pool_max = static_cast<std::size_t>(config.parameters.pool_max);
  options.pool_connecting_max = static_cast<std::size_t>(config.parameters.pool_connecting_max);
  options.pool_idle_ms = config.parameters.pool_idle_ms;
  if (config.net.shard_compression != "disabled") options.compressors = config.net.shard_compression;
  return options;
}

}  // namespace spillway::server
