// TlsContext: certificates, keys and rules of one kind of TLS connection; made once, shared by all
// connections of that kind. Source: mongod's net.tls options, and the tls* options of connection
// strings (URI options specification).
//
// TLS 1.2 at least, forward secrecy and authenticated encryption only, no renegotiation, no
// compression. Clients resume sessions by tickets: the server keeps nothing for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cursor/error.h"

struct ssl_ctx_st;      // OpenSSL's SSL_CTX
struct ssl_session_st;  // and SSL_SESSION

namespace spillway {

// PEM files; an empty name: none.
struct TlsFiles {
  std::string certificate_key = {};  // the certificate, its chain, and its private key
  std::string key_password = {};
  std::string ca = {};
  std::string crl = {};

  bool operator==(const TlsFiles&) const = default;
};

// A certificate's data for an operator.
struct TlsCertificate {
  std::string file;
  std::string subject;  // RFC 2253
  std::int64_t not_after_s = 0;  // since the Unix epoch

  bool operator==(const TlsCertificate&) const = default;
};

enum class TlsVersion : std::uint8_t { tls_1_2, tls_1_3 };

struct TlsServerSettings {
  TlsFiles files = {};  // certificate_key is needed
  // With a CA file clients need a certificate of that CA, unless:
  bool clients_without_certificate = false;
  bool invalid_client_certificates = false;
  TlsVersion version_min = TlsVersion::tls_1_2;
  TlsVersion version_max = TlsVersion::tls_1_3;
};

struct TlsClientSettings {
  TlsFiles files = {};  // without a CA file: the system's
  bool invalid_certificates = false;
  bool invalid_hostnames = false;

  bool operator==(const TlsClientSettings&) const = default;
};

// Thread-safe once made.
class TlsContext {
 public:
  enum class Role : std::uint8_t { server, client };
  using Ptr = std::shared_ptr<TlsContext>;

  // InvalidSSLConfiguration(140), naming the file and what is wrong with it: a certificate that has expired, too. Reads
  // files: for start-up and reloads.
  static Result<Ptr> make_server(const TlsServerSettings& settings);
  static Result<Ptr> make_client(const TlsClientSettings& settings);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

  Role role() const noexcept { return role_; }
  ssl_ctx_st* native() const noexcept { return context_; }
  bool checks_hostnames() const noexcept { return checks_hostnames_; }
  // On a server: a client's certificate was checked against our CA file.
  bool has_authorities() const noexcept { return has_authorities_; }
  // The certificate that peers see.
  const std::optional<TlsCertificate>& certificate() const noexcept { return certificate_; }

  // A client's last session with a peer ("host:port"), to be resumed; null: none. The caller's
  // reference.
  ssl_session_st* take_session(const std::string& peer);
  // Takes the reference. OpenSSL calls it, for a connection whose app data is the peer (std::string).
  void keep_session(const std::string& peer, ssl_session_st* session);

 private:
  class Sessions;
  TlsContext(Role role, ssl_ctx_st* context, bool checks_hostnames);

  Role role_;
  ssl_ctx_st* context_;
  bool checks_hostnames_;
  bool has_authorities_ = false;
  std::optional<TlsCertificate> certificate_;
  std::unique_ptr<Sessions> sessions_;
};

}  // namespace spillway
