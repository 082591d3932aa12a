#include "proxy/base/tls_errors.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509.h>

#include <cstring>

namespace spillway {

std::string tls_error_text() {
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  if (first == 0) return "unknown error";
  // A system call's: a missing file, most likely.
  if (ERR_SYSTEM_ERROR(first)) return std::strerror(ERR_GET_REASON(first));
  const char* const reason = ERR_reason_error_string(first);
  if (reason != nullptr) return reason;
  std::string text(256, '\0');
  ERR_error_string_n(first, text.data(), text.size());
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::string tls_subject(x509_st* certificate) {
  BIO* const text = BIO_new(BIO_s_mem());
  if (text == nullptr) return {};
  std::string subject;
  constexpr unsigned long form = XN_FLAG_RFC2253 & ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB);
  if (X509_NAME_print_ex(text, X509_get_subject_name(certificate), 0, form) >= 0) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(text, &bytes);
    if (size > 0) subject.assign(bytes, static_cast<std::size_t>(size));
  }
  BIO_free(text);
  ERR_clear_error();
  return subject;
}

bool tls_names_roles(x509_st* certificate) {
  ASN1_OBJECT* const roles = OBJ_txt2obj("1.3.6.1.4.1.34601.2.1.1", 1);
  const bool found = roles != nullptr && X509_get_ext_by_OBJ(certificate, roles, -1) >= 0;
  ASN1_OBJECT_free(roles);
  ERR_clear_error();
  return found;
}

}  // namespace spillway
