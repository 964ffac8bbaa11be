// How this process encrypts what it sends to ranks (parallel.tls): TLS 1.3, with a certificate that was given
// or one of its own, made for this process alone.
//
//   TANDEM_TLS_CERT, TANDEM_TLS_KEY, TANDEM_TLS_CA   files in PEM: this rank's certificate and key, and who
//                                                    has to have signed those of the others. All or none.
//
// Nobody has signed a certificate of a rank's own: that who answers belongs to the launch is shown by its
// secret, in words that are bound to the very connection (tls_channel.h). That is done with given ones, too.
#pragma once

#include <memory>
#include <string>

using SSL_CTX = struct ssl_ctx_st;

namespace tandem {

inline constexpr const char* kTlsCertVariable = "TANDEM_TLS_CERT";
inline constexpr const char* kTlsKeyVariable = "TANDEM_TLS_KEY";
inline constexpr const char* kTlsCaVariable = "TANDEM_TLS_CA";

struct TlsFiles {
  std::string certificate, key, authority;
};
TlsFiles tls_files_from_environment();  // empty: none; ConfigError where only some are there

class TlsContext {
 public:
  explicit TlsContext(const TlsFiles& files);  // throws ConfigError naming the file
  SSL_CTX* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const;
  };
  std::unique_ptr<SSL_CTX, Free> context_;
};

std::string tls_problem(const std::string& what);  // with what OpenSSL says of its last error

}  // namespace tandem
