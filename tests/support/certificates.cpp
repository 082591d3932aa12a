#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace spillway {

namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

constexpr long day_s = 24 * 3600;

struct Identity {
  Key key{nullptr, EVP_PKEY_free};
  Certificate certificate{nullptr, X509_free};
};

void require(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("certificates for tests: ") + what);
}

void extend(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  require(extension != nullptr, "an extension");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// {role: "root", db: "admin"}, as DER.
constexpr const char* roles_of_mongodb = "DER:31:0F:30:0D:0C:04:72:6F:6F:74:0C:05:61:64:6D:69:6E";

// Signed by itself without an issuer. `names`: a subjectAltName; empty: an authority.
Identity make(const char* common_name, const std::string& names, const Identity* issuer, long valid_for_s,
              bool with_roles = false) {
  static long serial = 1;
  Identity made;
  made.key.reset(EVP_EC_gen("P-256"));
  made.certificate.reset(X509_new());
  require(made.key && made.certificate, "a key");
  X509* const certificate = made.certificate.get();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -2 * day_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate), valid_for_s);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0);
  X509* const signer = issuer == nullptr ? certificate : issuer->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(signer));
  X509_set_pubkey(certificate, made.key.get());
  if (names.empty()) {
    extend(certificate, signer, NID_basic_constraints, "critical,CA:TRUE");
  } else {
    extend(certificate, signer, NID_subject_alt_name, names.c_str());
  }
  if (with_roles) {
    static const int roles = OBJ_create("1.3.6.1.4.1.34601.2.1.1", "mongodbRoles", "MongoDB roles");
    extend(certificate, signer, roles, roles_of_mongodb);
  }
  EVP_PKEY* const signing = issuer == nullptr ? made.key.get() : issuer->key.get();
  require(X509_sign(certificate, signing, EVP_sha256()) > 0, "a signature");
  return made;
}

void write(const std::string& file, const Identity& identity, bool with_key,
           const char* password = nullptr) {
  BIO* const out = BIO_new_file(file.c_str(), "w");
  require(out != nullptr, "a file");
  bool done = PEM_write_bio_X509(out, identity.certificate.get()) == 1;
  if (with_key) {
    const EVP_CIPHER* const cipher = password == nullptr ? nullptr : EVP_aes_128_cbc();
    done = done && PEM_write_bio_PrivateKey(out, identity.key.get(), cipher, nullptr, 0, nullptr,
                                            const_cast<char*>(password)) == 1;
  }
  BIO_free(out);
  require(done, "writing");
}

}  // namespace

Certificates::Certificates() {
  std::string folder = (std::filesystem::temp_directory_path() / "spillway-tls-XXXXXX").string();
  require(::mkdtemp(folder.data()) != nullptr, "a folder");
  folder_ = folder;
  const std::string here = "DNS:localhost,IP:127.0.0.1";
  const Identity authority = make("Test CA", "", nullptr, day_s);
  const Identity other = make("Other CA", "", nullptr, day_s);
  const Identity server_identity = make("localhost", here, &authority, day_s);
  write(ca(), authority, false);
  write(other_ca(), other, false);
  write(server(), server_identity, true);
  write(encrypted(), server_identity, true, password);
  write(expired(), make("localhost", here, &authority, -day_s), true);
  write(elsewhere(), make("example.org", "DNS:example.org", &authority, day_s), true);
  write(client(), make("client", "DNS:client", &authority, day_s), true);
  write(with_roles(), make("client", "DNS:client", &authority, day_s, true), true);
  write(stranger(), make("stranger", "DNS:stranger", &other, day_s), true);
}

Certificates::~Certificates() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace spillway
