// Certificates for tests of TLS, made anew each time, in a folder that is removed again.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

class Certificates {
 public:
  Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;
  ~Certificates();

  std::string ca() const { return path("ca.pem"); }
  std::string other_ca() const { return path("other-ca.pem"); }
  std::string server() const { return path("server.pem"); }    // of localhost and 127.0.0.1
  std::string expired() const { return path("expired.pem"); }  // the same, until yesterday
  std::string elsewhere() const { return path("elsewhere.pem"); }  // of example.org
  std::string client() const { return path("client.pem"); }
  std::string with_roles() const { return path("with-roles.pem"); }  // a client's, with MongoDB's extension
  std::string encrypted() const { return path("encrypted.pem"); }  // server's, with a password
  std::string stranger() const { return path("stranger.pem"); }    // a client of the other CA
  static constexpr const char* password = "open sesame";

 private:
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

}  // namespace spillway
