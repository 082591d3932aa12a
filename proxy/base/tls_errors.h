// OpenSSL's errors and certificates' names, as text.
#pragma once

#include <string>

struct x509_st;  // OpenSSL's X509

namespace spillway {

// The first error of this thread's queue, which is emptied; "unknown error" if it is empty.
std::string tls_error_text();

// The certificate's subject (RFC 2253, UTF-8); empty: there is none.
std::string tls_subject(x509_st* certificate);

// Does it hold MongoDB's extension for roles, 1.3.6.1.4.1.34601.2.1.1?
bool tls_names_roles(x509_st* certificate);

}  // namespace spillway
