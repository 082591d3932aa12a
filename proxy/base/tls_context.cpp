#include "proxy/base/tls_context.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "proxy/base/tls_errors.h"

namespace spillway {

namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// Of TLS 1.2; all of 1.3's are fine.
constexpr const char* ciphers =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
// Elliptic curves only: finite-field keys cost the server too much.
constexpr const char* groups = "X25519:P-256:X448:P-384:P-521";
constexpr std::string_view session_id_context = "spillway";

Error invalid(std::string_view what, const std::string& file) {
  return Error(ErrorCode::invalid_ssl_configuration,
               fmt::format("{} {}: {}", what, file, tls_error_text()));
}

// Never asks at a terminal.
int give_password(char* into, int size, int, void* password) {
  const auto& text = *static_cast<const std::string*>(password);
  if (size < 0 || text.size() > static_cast<std::size_t>(size)) return 0;
  std::copy(text.begin(), text.end(), into);
  return static_cast<int>(text.size());
}

// What of a certificate and its key a PEM file holds, by its first lines.
struct PemContent {
  bool certificate = false;
  bool key = false;
  bool encrypted = false;  // the key is
};

PemContent content_of(const std::string& file) {
  PemContent content;
  std::ifstream in(file);
  std::string line;
  for (; std::getline(in, line); OPENSSL_cleanse(line.data(), line.size())) {
    const bool begins = line.starts_with("-----BEGIN ");
    content.certificate |= begins && line.find("CERTIFICATE-----") != std::string::npos;
    content.key |= begins && line.find("PRIVATE KEY-----") != std::string::npos;
    content.encrypted |= line.find("ENCRYPTED") != std::string::npos;
  }
  return content;
}

// The most frequent mistakes, of which OpenSSL's texts say little.
Error explain(const TlsFiles& files, bool has_certificate) {
  const std::string& file = files.certificate_key;
  const PemContent content = content_of(file);
  Error why = invalid(has_certificate ? "cannot use the private key in" : "cannot use the certificate in", file);
  if (has_certificate ? !content.key : !content.certificate && content.key) {
    why.message += fmt::format("; the file holds no {}: it must hold both, cat server.crt server.key >server.pem",
                               has_certificate ? "private key" : "certificate");
  } else if (has_certificate && content.encrypted) {
    why.message += fmt::format("; the key is encrypted, and its password {}: see net.tls.certificateKeyFilePassword "
                               "(of net.tls.clusterFile: clusterPassword; of a connection string: "
                               "tlsCertificateKeyFilePassword)",
                               files.key_password.empty() ? "is missing" : "is another");
  }
  return why;
}

Result<void> load_certificate(SSL_CTX* context, const TlsFiles& files) {
  const std::string& file = files.certificate_key;
  if (file.empty()) return {};
  std::string password = files.key_password;
  SSL_CTX_set_default_passwd_cb(context, give_password);
  SSL_CTX_set_default_passwd_cb_userdata(context, &password);
  const bool certificate = SSL_CTX_use_certificate_chain_file(context, file.c_str()) == 1;
  const bool key =
      certificate && SSL_CTX_use_PrivateKey_file(context, file.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  SSL_CTX_set_default_passwd_cb(context, nullptr);
  OPENSSL_cleanse(password.data(), password.size());
  if (!certificate || !key) return explain(files, certificate);
  if (SSL_CTX_check_private_key(context) != 1) return invalid("certificate and key differ in", file);
  return {};
}

Result<void> load_authorities(SSL_CTX* context, const TlsFiles& files) {
  if (!files.ca.empty() && SSL_CTX_load_verify_file(context, files.ca.c_str()) != 1) {
    return invalid("cannot use the CA file", files.ca);
  }
  if (files.crl.empty()) return {};
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  X509_LOOKUP* const lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
  if (lookup == nullptr || X509_load_crl_file(lookup, files.crl.c_str(), X509_FILETYPE_PEM) < 1) {
    return invalid("cannot use the CRL file", files.crl);
  }
  X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
  return {};
}

// nullopt: there is none. A certificate that peers will not accept is an error.
Result<std::optional<TlsCertificate>> own_certificate(SSL_CTX* context, const std::string& file) {
  X509* const certificate = SSL_CTX_get0_certificate(context);
  if (certificate == nullptr) return std::optional<TlsCertificate>();
  const auto refused = [&](std::string_view why) {
    return Error(ErrorCode::invalid_ssl_configuration, fmt::format("the certificate in {} {}", file, why));
  };
  std::tm ends{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &ends) != 1) return refused("has no end");
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return refused(fmt::format("has expired on {:%Y-%m-%d %H:%M:%S} UTC", ends));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) return refused("is not valid yet");
  return std::optional(TlsCertificate{file, tls_subject(certificate), std::int64_t{::timegm(&ends)}});
}

// Encryption is of use even with a peer that cannot prove its identity.
int accept_any(int, X509_STORE_CTX*) { return 1; }

int keep(SSL* ssl, SSL_SESSION* session) {
  auto* const context = static_cast<TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  context->keep_session(*static_cast<const std::string*>(SSL_get_app_data(ssl)), session);
  return 1;  // the reference was taken
}

int native_version(TlsVersion version) noexcept {
  return version == TlsVersion::tls_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION;
}

Result<ContextPtr> make(const SSL_METHOD* method, const TlsFiles& files) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(method), SSL_CTX_free);
  if (!context) return Error(ErrorCode::invalid_ssl_configuration, tls_error_text());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(context.get(), ciphers);
  SSL_CTX_set1_groups_list(context.get(), groups);
  // Peers often close without a close_notify; messages carry their own length.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_IGNORE_UNEXPECTED_EOF);
  // An idle connection keeps no buffer.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context.get(), 1);
  if (auto loaded = load_certificate(context.get(), files); loaded.has_error()) {
    return loaded.error();
  }
  if (auto loaded = load_authorities(context.get(), files); loaded.has_error()) {
    return loaded.error();
  }
  return context;
}

}  // namespace

// By peer; the bound of a few thousand hosts exceeds any cluster.
class TlsContext::Sessions {
 public:
  ~Sessions() {
    for (auto& [peer, session] : by_peer_) SSL_SESSION_free(session);
  }
  SSL_SESSION* take(const std::string& peer) {
    const std::lock_guard lock(mutex_);
    const auto found = by_peer_.find(peer);
    if (found == by_peer_.end()) return nullptr;
    SSL_SESSION_up_ref(found->second);
    return found->second;
  }
  void keep(const std::string& peer, SSL_SESSION* session) {
    const std::lock_guard lock(mutex_);
    if (by_peer_.size() >= peers_max && !by_peer_.contains(peer)) {
      SSL_SESSION_free(by_peer_.begin()->second);
      by_peer_.erase(by_peer_.begin());
    }
    SSL_SESSION*& slot = by_peer_[peer];
    SSL_SESSION_free(std::exchange(slot, session));
  }

 private:
  static constexpr std::size_t peers_max = 4096;
  std::mutex mutex_;
  std::unordered_map<std::string, SSL_SESSION*> by_peer_;
};

TlsContext::TlsContext(Role role, ssl_ctx_st* context, bool checks_hostnames)
    : role_(role),
      context_(context),
      checks_hostnames_(checks_hostnames),
      sessions_(std::make_unique<Sessions>()) {}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<TlsContext::Ptr> TlsContext::make_server(const TlsServerSettings& settings) {
  auto made = make(TLS_server_method(), settings.files);
  if (made.has_error()) return made.error();
  SSL_CTX* const context = made->get();
  SSL_CTX_set_min_proto_version(context, native_version(settings.version_min));
  SSL_CTX_set_max_proto_version(context, native_version(settings.version_max));
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 1);
  SSL_CTX_set_session_id_context(
      context, reinterpret_cast<const unsigned char*>(session_id_context.data()),
      static_cast<unsigned>(session_id_context.size()));
  if (!settings.files.ca.empty()) {
    STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(settings.files.ca.c_str());
    if (names != nullptr) SSL_CTX_set_client_CA_list(context, names);
    const int mode = SSL_VERIFY_PEER | (settings.clients_without_certificate
                                            ? 0
                                            : SSL_VERIFY_FAIL_IF_NO_PEER_CERT);
    SSL_CTX_set_verify(context, mode, settings.invalid_client_certificates ? accept_any : nullptr);
  }
  auto certificate = own_certificate(context, settings.files.certificate_key);
  if (certificate.has_error()) return certificate.error();
  Ptr result(new TlsContext(Role::server, made->release(), false));
  result->certificate_ = *std::move(certificate);
  result->has_authorities_ = !settings.files.ca.empty() && !settings.invalid_client_certificates;
  return result;
}

Result<TlsContext::Ptr> TlsContext::make_client(const TlsClientSettings& settings) {
  auto made = make(TLS_client_method(), settings.files);
  if (made.has_error()) return made.error();
  SSL_CTX* const context = made->get();
  if (settings.files.ca.empty() && SSL_CTX_set_default_verify_paths(context) != 1) {
    return Error(ErrorCode::invalid_ssl_configuration, tls_error_text());
  }
  SSL_CTX_set_verify(context, settings.invalid_certificates ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                     nullptr);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, keep);
  auto certificate = own_certificate(context, settings.files.certificate_key);
  if (certificate.has_error()) return certificate.error();
  const bool checks_hostnames = !settings.invalid_certificates && !settings.invalid_hostnames;
  Ptr result(new TlsContext(Role::client, made->release(), checks_hostnames));
  result->certificate_ = *std::move(certificate);
  SSL_CTX_set_app_data(context, result.get());
  return result;
}

ssl_session_st* TlsContext::take_session(const std::string& peer) { return sessions_->take(peer); }

void TlsContext::keep_session(const std::string& peer, ssl_session_st* session) {
  sessions_->keep(peer, session);
}

}  // namespace spillway
