#include "tandem/comm/tls/tls_context.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};

[[noreturn]] void fail(const std::string& what) { throw CommError("tls: {}", tls_problem(what)); }

// For this process alone: its name says nothing, and it is good for as long as any run.
void use_own(SSL_CTX* context) {
  constexpr long kTenYears_s = 10L * 365 * 24 * 3600;
  const std::unique_ptr<EVP_PKEY, FreeKey> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, FreeCertificate> certificate(X509_new());
  if (!key || !certificate) fail("cannot make a key");
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -24L * 3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kTenYears_s);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("tandem rank"),
                             -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  if (X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0 ||
      SSL_CTX_use_certificate(context, certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    fail("cannot make a certificate");
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
}

void use_files(SSL_CTX* context, const TlsFiles& files) {
  const auto require = [](bool good, const char* name, const std::string& file, const char* expected) {
    if (!good) throw ConfigError("{}: {}", name, tls_problem(fmt::format("{}: expected {}", file, expected)));
  };
  require(SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) == 1, kTlsCertVariable,
          files.certificate, "a certificate in PEM");
  require(SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) == 1, kTlsKeyVariable,
          files.key, "the key of the certificate, in PEM");
  require(SSL_CTX_check_private_key(context) == 1, kTlsKeyVariable, files.key, "the key of that certificate");
  require(SSL_CTX_load_verify_locations(context, files.authority.c_str(), nullptr) == 1, kTlsCaVariable,
          files.authority, "certificates in PEM");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
}

}  // namespace

std::string tls_problem(const std::string& what) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  ERR_clear_error();
  return reason != nullptr ? fmt::format("{} ({})", what, reason) : what;
}

TlsFiles tls_files_from_environment() {
  TlsFiles files{variable(kTlsCertVariable), variable(kTlsKeyVariable), variable(kTlsCaVariable)};
  const int given = !files.certificate.empty() + !files.key.empty() + !files.authority.empty();
  if (given != 0 && given != 3)
    throw ConfigError(
        "{}, {}, {}: expected all of them or none, found {}; without, ranks make certificates of their own",
        kTlsCertVariable, kTlsKeyVariable, kTlsCaVariable, given);
  return files;
}

void TlsContext::Free::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

TlsContext::TlsContext(const TlsFiles& files) : context_(SSL_CTX_new(TLS_method())) {
  if (!context_) fail("OpenSSL does not start");
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(context_.get(), 0);  // nothing comes that nobody waits for
  SSL_CTX_set_session_cache_mode(context_.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Both are hardware's; the shorter key is the faster one, and secure.
  SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256");
  if (files.certificate.empty()) {
    use_own(context_.get());
  } else {
    use_files(context_.get(), files);
  }
}

}  // namespace tandem
