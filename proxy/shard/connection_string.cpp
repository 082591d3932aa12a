#include "proxy/shard/connection_string.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <mongoc/mongoc.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>
#include <utility>

#include "proxy/base/credentials_directory.h"
#include "proxy/base/log.h"
#include "proxy/base/number.h"

namespace spillway::shard {

namespace {

struct UriDeleter {
  void operator()(mongoc_uri_t* uri) const noexcept { mongoc_uri_destroy(uri); }
};
using Uri = std::unique_ptr<mongoc_uri_t, UriDeleter>;

// libmongoc reports unknown options and unusable values only as log messages: collected while a string is parsed,
// which happens while starting.
thread_local std::vector<std::string>* complaints = nullptr;

void collect_complaint(mongoc_log_level_t level, const char*, const char* message, void*) {
  if (level > MONGOC_LOG_LEVEL_WARNING) return;
  if (complaints != nullptr) {
    complaints->emplace_back(message);
  } else {
    log::warning("libmongoc: {}", message);
  }
}

class Complaints {
 public:
  Complaints() {
    mongoc_log_set_handler(collect_complaint, nullptr);
    complaints = &messages_;
  }
  Complaints(const Complaints&) = delete;
  Complaints& operator=(const Complaints&) = delete;
  ~Complaints() { complaints = nullptr; }

  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

// libmongoc's options that have no effect here: clients choose the read preference.
std::vector<std::string> ignored_options(const mongoc_uri_t* uri) {
  constexpr std::array<std::string_view, 13> used = {
      "replicaset", "directconnection", "connecttimeoutms", "tls", "ssl", "tlscafile", "tlscertificatekeyfile",
      "tlscertificatekeyfilepassword", "tlsinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames",
      "authsource", "authmechanism"};
  std::vector<std::string> names;
  bson_iter_t option;
  if (!bson_iter_init(&option, mongoc_uri_get_options(uri))) return names;
  while (bson_iter_next(&option)) {
    const std::string name = absl::AsciiStrToLower(bson_iter_key(&option));
    if (std::find(used.begin(), used.end(), name) == used.end()) names.push_back(name);
  }
  return names;
}

// libmongoc does not know tlsCRLFile: cuts it out of the connection string. Its value.
std::string cut_crl_file(std::string& uri) {
  constexpr std::string_view name = "tlsCRLFile=";
  for (std::size_t at = uri.find('?'); at != std::string::npos; at = uri.find('&', at + 1)) {
    const std::size_t start = at + 1;
    if (::strncasecmp(uri.c_str() + start, name.data(), name.size()) != 0) continue;
    const std::size_t end = std::min(uri.find('&', start), uri.size());
    char* const value = mongoc_uri_unescape(uri.substr(start + name.size(), end - start - name.size()).c_str());
    std::string text = value == nullptr ? "" : value;
    bson_free(value);
    end == uri.size() ? uri.erase(at) : uri.erase(start, end + 1 - start);
    return text;
  }
  return {};
}

Error unsupported(std::string_view what) {
  return Error(ErrorCode::command_not_supported,
               fmt::format("{} in a shard's connection string is not supported yet", what));
}

std::string text_option(const mongoc_uri_t* uri, const char* name) {
  return mongoc_uri_get_option_as_utf8(uri, name, "");
}

Result<std::optional<TlsClientSettings>> tls_of(const mongoc_uri_t* uri, const std::string& crl_file) {
  if (!mongoc_uri_get_tls(uri)) return std::optional<TlsClientSettings>();
  const auto flag = [&](const char* name) { return mongoc_uri_get_option_as_bool(uri, name, false); };
  TlsClientSettings settings;
  for (const auto& [option, written, file] :
       {std::tuple(MONGOC_URI_TLSCERTIFICATEKEYFILE, text_option(uri, MONGOC_URI_TLSCERTIFICATEKEYFILE),
                   &settings.files.certificate_key),
        std::tuple(MONGOC_URI_TLSCAFILE, text_option(uri, MONGOC_URI_TLSCAFILE), &settings.files.ca),
        std::tuple("tlscrlfile", crl_file, &settings.files.crl)}) {
    auto path = expand_credentials(written);
    if (path.has_error()) {
      return Error(ErrorCode::failed_to_parse,
                   fmt::format("Invalid connection string: {}: {}", option, path.error().message));
    }
    *file = *std::move(path);
  }
  settings.files.key_password = text_option(uri, MONGOC_URI_TLSCERTIFICATEKEYFILEPASSWORD);
  const bool insecure = flag(MONGOC_URI_TLSINSECURE);
  settings.invalid_certificates = insecure || flag(MONGOC_URI_TLSALLOWINVALIDCERTIFICATES);
  settings.invalid_hostnames = insecure || flag(MONGOC_URI_TLSALLOWINVALIDHOSTNAMES);
  return std::optional(std::move(settings));
}

std::optional<auth::ServiceMechanism> mechanism_of(const mongoc_uri_t* uri) {
  const char* const name = mongoc_uri_get_auth_mechanism(uri);
  if (name == nullptr) return auth::ServiceMechanism::negotiated;
  const std::string_view text = name;
  if (text == "SCRAM-SHA-256") return auth::ServiceMechanism::scram_sha_256;
  if (text == "SCRAM-SHA-1") return auth::ServiceMechanism::scram_sha_1;
  if (text == "MONGODB-X509") return auth::ServiceMechanism::x509;
  return std::nullopt;
}

// Null: it names no user.
Result<auth::ServiceLogin::Ptr> login_of(const mongoc_uri_t* uri) {
  const char* const user = mongoc_uri_get_username(uri);
  const auto mechanism = mechanism_of(uri);
  if (!mechanism) return unsupported(fmt::format("The mechanism {}", mongoc_uri_get_auth_mechanism(uri)));
  const bool x509 = *mechanism == auth::ServiceMechanism::x509;
  if (user == nullptr && !x509) {
    if (*mechanism == auth::ServiceMechanism::negotiated) return auth::ServiceLogin::Ptr();
    return Error(ErrorCode::failed_to_parse, "Invalid connection string: authMechanism needs a user");
  }
  if (x509 && !mongoc_uri_get_tls(uri)) {
    return Error(ErrorCode::failed_to_parse,
                 "Invalid connection string: authMechanism=MONGODB-X509 needs tls=true and tlsCertificateKeyFile");
  }
  const char* const password = mongoc_uri_get_password(uri);
  const char* const source = mongoc_uri_get_auth_source(uri);
  auto made = auth::ServiceLogin::make(*mechanism, user == nullptr ? "" : user, source == nullptr ? "admin" : source,
                                       password == nullptr ? nullptr : auth::Secret::make(password));
  if (made.has_error()) {
    return Error(ErrorCode::failed_to_parse, "Invalid connection string: " + made.error().message);
  }
  return made;
}

// Of a replica set.
constexpr std::size_t set_members_max = 50;

bool is_of_address(char c) noexcept {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view(".-_:[]").find(c) != std::string_view::npos;
}

// As a value in a connection string.
std::string escaped(std::string_view text) {
  constexpr std::string_view plain = "-._~/";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || plain.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

}  // namespace

std::optional<HostAddress> parse_host_address(std::string_view text, std::uint16_t preset_port) {
  HostAddress address;
  address.port = preset_port;
  std::string name;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    name = text.substr(1, close - 1);
    std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return std::nullopt;
    if (!rest.empty()) port = rest.substr(1);
    if (!rest.empty() && port.empty()) return std::nullopt;
  } else {
    const std::size_t colon = text.find(':');
    name = text.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return std::nullopt;
    }
  }
  if (name.empty() || name.size() > 255 || name.find('/') != std::string::npos) return std::nullopt;
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  address.host = std::move(name);
  if (!port.empty()) {
    address.port = parse_number<std::uint16_t>(port).value_or(0);
    if (address.port == 0) return std::nullopt;
  }
  return address;
}

Result<std::string> connection_string_for(std::string_view host_spec, const TlsClientSettings* tls) {
  const auto wrong = [&](std::string_view what) {
    constexpr std::size_t quoted_max = 200;
    return Error(ErrorCode::failed_to_parse,
                 fmt::format("the host \"{}\" of a shard {}", host_spec.substr(0, quoted_max), what));
  };
  const std::size_t slash = host_spec.find('/');
  const bool named = slash != std::string_view::npos;
  const std::string_view set_name = named ? host_spec.substr(0, slash) : std::string_view();
  if (named && set_name.empty()) return wrong("has no name of a replica set before its /");
  std::vector<std::string> hosts;
  std::string_view rest = named ? host_spec.substr(slash + 1) : host_spec;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    const std::string_view each = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
    const auto address = parse_host_address(each);
    if (!address || !std::all_of(each.begin(), each.end(), is_of_address)) {
      return wrong("is not <set>/<host>:<port>,… or <host>:<port>");
    }
    std::string text = address->text();
    if (std::find(hosts.begin(), hosts.end(), text) == hosts.end()) hosts.push_back(std::move(text));
  }
  if (hosts.size() > 1 && !named) return wrong("names several hosts and no replica set");
  if (hosts.size() > set_members_max) return wrong("names more hosts than a replica set has");

  std::vector<std::string> options;
  if (named) options.push_back("replicaSet=" + escaped(set_name));
  if (tls != nullptr) {
    options.emplace_back("tls=true");
    const auto add_text = [&](std::string_view option, const std::string& value) {
      if (!value.empty()) options.push_back(fmt::format("{}={}", option, escaped(value)));
    };
    add_text("tlsCAFile", tls->files.ca);
    add_text("tlsCRLFile", tls->files.crl);
    add_text("tlsCertificateKeyFile", tls->files.certificate_key);
    add_text("tlsCertificateKeyFilePassword", tls->files.key_password);
    if (tls->invalid_certificates) options.emplace_back("tlsAllowInvalidCertificates=true");
    if (tls->invalid_hostnames) options.emplace_back("tlsAllowInvalidHostnames=true");
  }
  return fmt::format("mongodb://{}/{}{}", fmt::join(hosts, ","), options.empty() ? "" : "?", fmt::join(options, "&"));
}

bool holds_password(std::string_view uri) {
  const std::size_t start = uri.find("://");
  if (start == std::string_view::npos) return false;
  const std::string_view rest = uri.substr(start + 3);
  const std::size_t at = rest.rfind('@');
  return at != std::string_view::npos && rest.substr(0, at).find(':') != std::string_view::npos;
}

Result<ConnectionString> parse_connection_string(std::string uri) {
  if (uri.starts_with("mongodb+srv://")) return unsupported("mongodb+srv");
  const std::string crl_file = cut_crl_file(uri);
  const Complaints complaints;
  bson_error_t why;
  const Uri parsed(mongoc_uri_new_with_error(uri.c_str(), &why));
  if (!parsed) {
    // The parser quotes text that it does not understand, which may be a part of a password.
    return Error(ErrorCode::failed_to_parse,
                 holds_password(uri) ? std::string("Invalid connection string (why is not said: it holds a password; "
                                                   "its reserved characters must be written as %XX)")
                                     : fmt::format("Invalid connection string: {}", why.message));
  }
  if (mongoc_uri_get_option_as_bool(parsed.get(), MONGOC_URI_LOADBALANCED, false)) return unsupported("loadBalanced");
  if (!complaints.messages().empty()) {
    return Error(ErrorCode::failed_to_parse,
                 fmt::format("Invalid connection string: {}", complaints.messages().front()));
  }

  ConnectionString result;
  for (const auto* host = mongoc_uri_get_hosts(parsed.get()); host != nullptr; host = host->next) {
    if (std::string_view(host->host).find('/') != std::string_view::npos) {
      return unsupported("A Unix socket");
    }
    HostAddress address{host->host, host->port};
    if (std::find(result.hosts.begin(), result.hosts.end(), address) == result.hosts.end()) {
      result.hosts.push_back(std::move(address));
    }
  }
  if (result.hosts.empty()) {
    return Error(ErrorCode::failed_to_parse, "Invalid connection string: it names no host");
  }
  if (const char* name = mongoc_uri_get_replica_set(parsed.get())) result.set_name = name;
  auto tls = tls_of(parsed.get(), crl_file);
  if (tls.has_error()) return tls.error();
  result.tls = *std::move(tls);
  result.direct = mongoc_uri_get_option_as_bool(parsed.get(), MONGOC_URI_DIRECTCONNECTION, false);
  if (result.hosts.size() > 1 && result.set_name.empty()) {
    return Error(ErrorCode::failed_to_parse,
                 "Invalid connection string: several hosts need replicaSet=<name>");
  }
  const std::int64_t timeout =
      mongoc_uri_get_option_as_int32(parsed.get(), MONGOC_URI_CONNECTTIMEOUTMS, 0);
  if (timeout > 0) result.connect_timeout_ms = timeout;
  auto login = login_of(parsed.get());
  if (login.has_error()) return login.error();
  result.login = *std::move(login);
  result.ignored_options = ignored_options(parsed.get());
  return result;
}

}  // namespace spillway::shard
