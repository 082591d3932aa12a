#include "proxy/server/system/credentials.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "proxy/base/clock.h"
#include "proxy/config/cluster.h"
#include "proxy/config/shard_login.h"
#include "proxy/config/tls.h"

namespace spillway::server {

namespace {

constexpr std::chrono::seconds warned_before = std::chrono::days(30);

// The proxy's own certificates, each once.
std::vector<TlsCertificate> certificates_of(const Credentials& credentials) {
  std::vector<TlsCertificate> all;
  const auto add = [&all](const TlsContext::Ptr& context) {
    if (!context || !context->certificate()) return;
    const TlsCertificate& certificate = *context->certificate();
    if (std::find(all.begin(), all.end(), certificate) == all.end()) all.push_back(certificate);
  };
  add(credentials.clients);
  for (const shard::ShardCredentials& shard : credentials.shards) add(shard.tls);
  return all;
}

std::string end_of(const TlsCertificate& certificate) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(static_cast<std::time_t>(certificate.not_after_s)));
}

}  // namespace

std::string Credentials::read_from_files() const {
  const auto has_tls = [](const shard::ShardCredentials& shard) { return shard.tls != nullptr; };
  const bool certificates = clients != nullptr || std::any_of(shards.begin(), shards.end(), has_tls);
  std::string text = certificates ? password_file ? "certificates and passwords" : "certificates"
                                  : password_file ? "passwords" : "";
  const auto own = certificates_of(*this);
  for (std::size_t i = 0; i < own.size(); ++i) {
    text += fmt::format("{}{}: {}, until {}", i == 0 ? " (" : "; ", own[i].file, own[i].subject, end_of(own[i]));
  }
  return own.empty() ? text : text + ")";
}

std::vector<std::string> Credentials::warnings() const {
  std::vector<std::string> warnings;
  for (const TlsCertificate& certificate : certificates_of(*this)) {
    const std::chrono::seconds left(certificate.not_after_s - wall_clock_ms() / 1000);
    if (left > warned_before) continue;
    warnings.push_back(fmt::format("the certificate in {} ({}) expires in {} hours, on {}", certificate.file,
                                   certificate.subject, std::chrono::duration_cast<std::chrono::hours>(left).count(),
                                   end_of(certificate)));
  }
  return warnings;
}

Result<Credentials::Ptr> read_credentials(const Config& config, const catalog::RoutingSnapshot& routing) {
  auto read = std::make_shared<Credentials>();
  auto clients = make_server_tls(config.net.tls);
  if (clients.has_error()) return Error(ErrorCode::invalid_ssl_configuration, "net.tls: " + clients.error().message);
  read->clients = *std::move(clients);
  read->plain_text = config.net.tls.mode == TlsMode::require ? PlainText::refused : PlainText::allowed;
  shard::GatewayOptions options = gateway_options(config, routing);
  const bool in_cluster = !config.cluster.config_db.empty();
  auto login = in_cluster ? make_cluster_login(config) : make_shard_login(config.shard_login);
  if (login.has_error()) {
    return Error(ErrorCode::bad_value,
                 fmt::format("{}: {}", in_cluster ? "security" : "security.shards", login.error().message));
  }
  options.login = *std::move(login);
  read->password_file = !config.shard_login.password_file.empty();
  auto shards = shard::read_credentials(options);
  if (shards.has_error()) return shards.error();
  read->shards = *std::move(shards);
  return Credentials::Ptr(std::move(read));
}

shard::GatewayOptions gateway_options(const Config& config, const catalog::RoutingSnapshot& routing) {
  shard::GatewayOptions options;
  for (const catalog::Shard& shard : routing.shards()) options.shards.push_back({shard.name, shard.uri});
  options.connect_timeout_ms = config.connect_timeout_ms;
  options.local_threshold_ms = config.local_threshold_ms;
  options.pool_max = static_cast<std::size_t>(config.pool_max);
  if (config.net.shard_compression != "disabled") options.compressors = config.net.shard_compression;
  return options;
}

}  // namespace spillway::server
