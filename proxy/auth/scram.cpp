#include "proxy/auth/scram.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cursor/utf8.h"
#include "proxy/auth/concat.h"
#include "proxy/auth/saslprep.h"
#include "proxy/base/number.h"

namespace spillway::auth {

namespace {

constexpr std::size_t own_nonce_bytes = 24;  // 32 characters

Error malformed(std::string_view what) {
  return Error(ErrorCode::protocol_error, concat("Incorrect SCRAM message: ", what));
}

Error failed() { return Error(ErrorCode::authentication_failed, "Authentication failed."); }

// Takes "<name>=<value>" and the comma behind it off the front. nullopt: the text differs.
std::optional<std::string_view> take_attribute(std::string_view& rest, char name) {
  if (rest.size() < 2 || rest[0] != name || rest[1] != '=') return std::nullopt;
  const std::size_t end = std::min(rest.find(','), rest.size());
  const std::string_view value = rest.substr(2, end - 2);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return value;
}

bool is_nonce(std::string_view text) {
  const auto printable = [](char c) { return c >= 0x21 && c <= 0x7e && c != ','; };
  return !text.empty() && text.size() <= scram_nonce_bytes_max &&
         std::all_of(text.begin(), text.end(), printable);
}

// saslname: =2C is a comma, =3D an equals sign.
std::optional<std::string> decode_name(std::string_view text) {
  std::string name;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') return std::nullopt;
    if (text[i] != '=') {
      name += text[i];
      continue;
    }
    const std::string_view code = text.substr(i, 3);
    if (code != "=2C" && code != "=3D") return std::nullopt;
    name += code == "=2C" ? ',' : '=';
    i += 2;
  }
  if (name.empty() || name.size() > user_name_bytes_max || !is_utf8(name)) return std::nullopt;
  return name;
}

std::string encode_name(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == ',') {
      text += "=2C";
    } else if (c == '=') {
      text += "=3D";
    } else {
      text += c;
    }
  }
  return text;
}

std::string nonce_or_random(std::string_view given) {
  if (!given.empty()) return std::string(given);
  std::array<std::uint8_t, own_nonce_bytes> bytes;
  fill_random(bytes);
  return to_base64(bytes);
}

Digest exclusive_or(const Digest& a, const Digest& b) {
  Digest result = a;
  for (std::size_t i = 0; i < result.size; ++i) result.bytes[i] ^= b.bytes[i];
  return result;
}

}  // namespace

std::string_view mechanism_name(Hash hash) noexcept {
  return hash == Hash::sha1 ? "SCRAM-SHA-1" : "SCRAM-SHA-256";
}

std::optional<Hash> scram_mechanism(std::string_view name) noexcept {
  if (name == mechanism_name(Hash::sha256)) return Hash::sha256;
  if (name == mechanism_name(Hash::sha1)) return Hash::sha1;
  return std::nullopt;
}

std::uint32_t preset_iterations(Hash hash) noexcept { return hash == Hash::sha1 ? 10'000 : 15'000; }

std::size_t preset_salt_bytes(Hash hash) noexcept { return hash == Hash::sha1 ? 16 : 28; }

Result<Secret::Ptr> scram_password(Hash hash, std::string_view user, std::string_view password) {
  if (password.empty()) return Error(ErrorCode::bad_value, "the password is empty");
  if (password.size() > password_bytes_max) {
    return Error(ErrorCode::bad_value,
                 concat("a password has at most ", password_bytes_max, " bytes"));
  }
  std::string prepared;
  if (hash == Hash::sha1) {
    std::string text = concat(user, ":mongo:", password);
    prepared = md5_hex(text);
    wipe(text);
  } else {
    auto profile = saslprep(password);
    if (!profile || profile->empty()) {
      return Error(
          ErrorCode::bad_value,
          "the password is not UTF-8, or holds characters that SASLprep (RFC 4013) forbids");
    }
    prepared = *std::move(profile);
  }
  auto secret = Secret::make(prepared);
  wipe(prepared);
  return secret;
}

namespace {

using Keys = ScramKeyCache::Keys;

Keys derive_keys(Hash hash, std::string_view password, Bytes salt, std::uint32_t iterations) {
  Digest salted = pbkdf2(hash, password, salt, iterations);
  Keys keys;
  keys.client_key = hmac(hash, salted.view(), bytes_of("Client Key"));
  keys.stored_key = digest(hash, keys.client_key.view());
  keys.server_key = hmac(hash, salted.view(), bytes_of("Server Key"));
  wipe(salted);
  return keys;
}

}  // namespace

ScramCredentials make_credentials(Hash hash, const Secret& password, Bytes salt,
                                  std::uint32_t iterations) {
  Keys keys = derive_keys(hash, password.text(), salt, iterations);
  ScramCredentials credentials{
      iterations, {salt.begin(), salt.end()}, keys.stored_key, keys.server_key};
  wipe(keys.client_key);
  return credentials;
}

ScramCredentials fake_credentials(Hash hash, Bytes key, std::string_view user_id,
                                  std::uint32_t iterations) {
  const auto derived = [&](std::string_view what) {
    return hmac(Hash::sha256, key, bytes_of(concat(what, mechanism_name(hash), ":", user_id)));
  };
  ScramCredentials credentials;
  credentials.iterations = iterations;
  const Digest salt = derived("salt ");
  credentials.salt.assign(salt.bytes.begin(), salt.bytes.begin() + static_cast<std::ptrdiff_t>(
                                                                       preset_salt_bytes(hash)));
  // No password matches these.
  credentials.stored_key = derived("stored key ");
  credentials.server_key = derived("server key ");
  credentials.stored_key.size = credentials.server_key.size =
      static_cast<std::uint8_t>(digest_bytes(hash));
  return credentials;
}

Result<ScramClientFirst> parse_client_first(std::string_view message) {
  if (message.size() > scram_message_bytes_max)
    return malformed("the client's first message is too long");
  if (message.starts_with("p=")) return malformed("channel binding is not supported");
  if (!message.starts_with("n,") && !message.starts_with("y,")) {
    return malformed("the client's first message does not begin with a GS2 header");
  }
  ScramClientFirst first;
  std::string_view rest = message.substr(2);
  const std::size_t comma = rest.find(',');
  if (comma == std::string_view::npos) return malformed("the GS2 header does not end");
  const std::string_view authorization = rest.substr(0, comma);
  first.header = message.substr(0, 2 + comma + 1);
  first.bare = rest = rest.substr(comma + 1);
  if (rest.starts_with("m=")) return malformed("mandatory extensions are not supported");
  const auto name = take_attribute(rest, 'n');
  auto user = name ? decode_name(*name) : std::nullopt;
  if (!user) return malformed("there is no valid user name");
  const auto nonce = take_attribute(rest, 'r');
  if (!nonce || !is_nonce(*nonce)) return malformed("there is no valid nonce");
  if (!authorization.empty() &&
      (!authorization.starts_with("a=") || decode_name(authorization.substr(2)) != *user)) {
    return malformed("authorization as another user is not supported");
  }
  first.user = *std::move(user);
  first.nonce = *nonce;
  return first;
}

// --- the server's end

ScramServer::ScramServer(Hash hash, const ScramClientFirst& first, ScramCredentials credentials,
                         bool known, std::string_view nonce)
    : hash_(hash),
      credentials_(std::move(credentials)),
      known_(known),
      header_(first.header),
      client_first_(first.bare),
      nonce_(concat(first.nonce, nonce_or_random(nonce))),
      server_first_(concat("r=", nonce_, ",s=", to_base64(credentials_.salt),
                           ",i=", credentials_.iterations)) {}

Result<std::string> ScramServer::finish(std::string_view message) {
  if (message.size() > scram_message_bytes_max)
    return malformed("the client's last message is too long");
  std::string_view rest = message;
  const auto binding = take_attribute(rest, 'c');
  const auto nonce = take_attribute(rest, 'r');
  const std::size_t proof_at = message.rfind(",p=");
  if (!binding || !nonce || proof_at == std::string_view::npos) {
    return malformed("the client's last message lacks c, r or p");
  }
  if (*binding != to_base64(bytes_of(header_)))
    return malformed("the channel binding is not the header's");
  if (!same_secret(bytes_of(*nonce), bytes_of(nonce_)))
    return malformed("the nonce is not the server's");
  const auto proof = from_base64(message.substr(proof_at + 3));
  if (!proof || proof->size() != digest_bytes(hash_)) return malformed("the proof is not valid");
  const std::string text =
      concat(client_first_, ",", server_first_, ",", message.substr(0, proof_at));
  Digest given;
  given.size = static_cast<std::uint8_t>(proof->size());
  std::copy(proof->begin(), proof->end(), given.bytes.begin());
  const Digest signature = hmac(hash_, credentials_.stored_key.view(), bytes_of(text));
  Digest client_key = exclusive_or(given, signature);
  const Digest stored = digest(hash_, client_key.view());
  wipe(client_key);
  const Digest own = hmac(hash_, credentials_.server_key.view(), bytes_of(text));
  const bool same = same_secret(stored.view(), credentials_.stored_key.view());
  if (!same || !known_) return failed();
  return concat("v=", to_base64(own.view()));
}

// --- the client's end

std::optional<ScramKeyCache::Keys> ScramKeyCache::find(Bytes salt, std::uint32_t iterations) const {
  static_assert(std::is_trivially_copyable_v<Keys>);
  MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (iterations != entry.iterations || !std::equal(salt.begin(), salt.end(), entry.salt.begin(), entry.salt.end())) {
      continue;
    }
    Keys keys;
    std::memcpy(&keys, entry.keys->text().data(), sizeof keys);
    return keys;
  }
  return std::nullopt;
}

void ScramKeyCache::keep(Bytes salt, std::uint32_t iterations, const Keys& keys) {
  Entry entry{{salt.begin(), salt.end()},
              iterations,
              Secret::make({reinterpret_cast<const char*>(&keys), sizeof keys})};
  MutexLock lock(mutex_);
  if (entries_.size() < salts_max) {
    entries_.push_back(std::move(entry));
  } else {
    std::swap(entries_[next_], entry);
    next_ = (next_ + 1) % salts_max;
  }
}

ScramClient::ScramClient(Hash hash, std::string_view user, Secret::Ptr password,
                         std::string_view nonce)
    : hash_(hash),
      password_(std::move(password)),
      nonce_(nonce_or_random(nonce)),
      first_(concat("n,,n=", encode_name(user), ",r=", nonce_)) {}

Result<std::string> ScramClient::answer(std::string_view message) {
  const auto wrong = [](std::string_view what) {
    return Error(ErrorCode::authentication_failed, concat("the server's SCRAM message ", what));
  };
  if (message.size() > scram_message_bytes_max) return wrong("is too long");
  std::string_view rest = message;
  const auto nonce = take_attribute(rest, 'r');
  const auto salt_text = take_attribute(rest, 's');
  const auto iterations_text = take_attribute(rest, 'i');
  if (!nonce || !salt_text || !iterations_text) return wrong("lacks r, s or i");
  if (!is_nonce(*nonce) || !nonce->starts_with(nonce_) || nonce->size() == nonce_.size()) {
    return wrong("answers another nonce");
  }
  const auto salt = from_base64(*salt_text);
  if (!salt || salt->empty() || salt->size() > scram_salt_bytes_max)
    return wrong("has no valid salt");
  const auto iterations = parse_number<std::uint32_t>(*iterations_text);
  if (!iterations || *iterations < scram_iterations_min || *iterations > scram_iterations_max) {
    return wrong(concat("asks for ", *iterations_text, " iterations; between ",
                        scram_iterations_min, " and ", scram_iterations_max, " are accepted"));
  }
  auto known = cache_ != nullptr ? cache_->find(*salt, *iterations) : std::nullopt;
  Keys keys = known ? *known : derive_keys(hash_, password_->text(), *salt, *iterations);
  if (known) wipe(&*known, sizeof(Keys));
  if (!known && cache_ != nullptr) cache_->keep(*salt, *iterations, keys);
  const std::string last = concat("c=", to_base64(bytes_of("n,,")), ",r=", *nonce);
  const std::string text = concat(std::string_view(first_).substr(3), ",", message, ",", last);
  const Digest signature = hmac(hash_, keys.stored_key.view(), bytes_of(text));
  const Digest proof = exclusive_or(keys.client_key, signature);
  server_signature_ = hmac(hash_, keys.server_key.view(), bytes_of(text));
  wipe(&keys, sizeof keys);
  return concat(last, ",p=", to_base64(proof.view()));
}

Result<void> ScramClient::verify(std::string_view message) {
  std::string_view rest = message;
  const auto value = take_attribute(rest, 'v');
  const auto signature = value ? from_base64(*value) : std::nullopt;
  if (server_signature_.size == 0 || !signature ||
      !same_secret(*signature, server_signature_.view())) {
    return Error(ErrorCode::authentication_failed,
                 "the server did not show that it knows the password, too");
  }
  return {};
}

}  // namespace spillway::auth
