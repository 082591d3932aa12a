#include "proxy/config/tls.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "proxy/base/credentials_directory.h"
#include "proxy/config/text.h"

namespace spillway {

namespace {

constexpr std::array<std::string_view, 4> protocol_names = {"TLS1_0", "TLS1_1", "TLS1_2", "TLS1_3"};

struct Versions {
  bool tls_1_2 = true;
  bool tls_1_3 = true;
};

Result<Versions> versions_left(const std::string& disabled) {
  Versions versions;
  for (const std::string_view part : split(disabled, ",")) {
    const std::string_view word = trim(part);
    if (word.empty() || word == "none") continue;
    if (std::find(protocol_names.begin(), protocol_names.end(), word) == protocol_names.end()) {
      return Error(ErrorCode::invalid_ssl_configuration,
                   fmt::format("\"{}\" is none of TLS1_0, TLS1_1, TLS1_2, TLS1_3", word));
    }
    if (word == "TLS1_2") versions.tls_1_2 = false;
    if (word == "TLS1_3") versions.tls_1_3 = false;
  }
  if (!versions.tls_1_2 && !versions.tls_1_3) {
    return Error(ErrorCode::invalid_ssl_configuration, "no TLS version is left");
  }
  return versions;
}

}  // namespace

std::vector<TlsConfigError> check_tls(const TlsConfig& config) {
  std::vector<TlsConfigError> errors;
  if (config.mode == TlsMode::disabled) {
    if (!config.certificate_key_file.empty() || !config.ca_file.empty()) {
      errors.push_back({config.ca_file.empty() ? "net.tls.certificateKeyFile" : "net.tls.CAFile",
                        "net.tls has files, but net.tls.mode is disabled: clients would speak plain "
                        "text unknowingly; write requireTLS"});
    }
    return errors;
  }
  if (auto versions = versions_left(config.disabled_protocols); versions.has_error()) {
    errors.push_back({"net.tls.disabledProtocols",
                      "net.tls.disabledProtocols: " + versions.error().message});
  }
  if (config.certificate_key_file.empty()) {
    errors.push_back({"net.tls.mode", "net.tls.mode needs net.tls.certificateKeyFile"});
  }
  if (config.ca_file.empty() && !config.crl_file.empty()) {
    errors.push_back({"net.tls.CRLFile", "net.tls.CRLFile needs net.tls.CAFile"});
  }
  if (!errors.empty()) return errors;
  if (auto made = make_server_tls(config); made.has_error()) {
    errors.push_back({"net.tls.mode", "net.tls: " + made.error().message});
  }
  return errors;
}

Result<TlsContext::Ptr> make_server_tls(const TlsConfig& config) {
  if (config.mode == TlsMode::disabled) return TlsContext::Ptr();
  const auto versions = versions_left(config.disabled_protocols);
  if (versions.has_error()) return versions.error();
  TlsServerSettings settings;
  settings.files.key_password = config.certificate_key_password;
  for (const auto& [written, file] : {std::pair(&config.certificate_key_file, &settings.files.certificate_key),
                                      std::pair(config.cluster_ca_file.empty() ? &config.ca_file
                                                                               : &config.cluster_ca_file,
                                                &settings.files.ca),
                                      std::pair(&config.crl_file, &settings.files.crl)}) {
    auto path = expand_credentials(*written);
    if (path.has_error()) return Error(ErrorCode::invalid_ssl_configuration, path.error().message);
    *file = *std::move(path);
  }
  settings.clients_without_certificate = config.allow_connections_without_certificates;
  settings.invalid_client_certificates = config.allow_invalid_certificates;
  if (!versions->tls_1_2) settings.version_min = TlsVersion::tls_1_3;
  if (!versions->tls_1_3) settings.version_max = TlsVersion::tls_1_2;
  return TlsContext::make_server(settings);
}

Result<std::optional<TlsClientSettings>> cluster_tls(const TlsConfig& config) {
  if (config.mode == TlsMode::disabled || config.mode == TlsMode::allow) return std::optional<TlsClientSettings>();
  TlsClientSettings settings;
  const bool own = !config.cluster_file.empty();
  settings.files.key_password = own ? config.cluster_password : config.certificate_key_password;
  for (const auto& [written, file] :
       {std::pair(own ? &config.cluster_file : &config.certificate_key_file, &settings.files.certificate_key),
        std::pair(&config.ca_file, &settings.files.ca), std::pair(&config.crl_file, &settings.files.crl)}) {
    auto path = expand_credentials(*written);
    if (path.has_error()) return path.error();
    *file = *std::move(path);
  }
  settings.invalid_certificates = config.allow_invalid_certificates;
  settings.invalid_hostnames = config.allow_invalid_hostnames;
  return std::optional(std::move(settings));
}

}  // namespace spillway
