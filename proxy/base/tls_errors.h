// What OpenSSL has to say, as text.
#pragma once

#include <string>

namespace spillway {

// The first error of this thread's queue, which is emptied; "unknown error" if it is empty.
std::string tls_error_text();

}  // namespace spillway
