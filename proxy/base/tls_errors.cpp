#include "proxy/base/tls_errors.h"

#include <openssl/err.h>

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

}  // namespace spillway
