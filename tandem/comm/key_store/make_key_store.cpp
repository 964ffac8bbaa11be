#include <charconv>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/comm/key_store/etcd_key_store.h"
#include "tandem/comm/key_store/file_key_store.h"
#include "tandem/comm/key_store/key_store.h"
#include "tandem/comm/key_store/tcp_key_store.h"

namespace tandem {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

// "host:port", or "[address]:port" for the addresses that have colons themselves.
HostPort parse_host_port(std::string_view text, const std::string& address) {
  const size_t colon = text.rfind(':');
  HostPort result;
  if (colon != std::string_view::npos && colon > 0) {
    std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    result.host = host;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
    if (error == std::errc() && end == port.data() + port.size() && result.port >= 0 && result.port <= 65535)
      return result;
  }
  throw ConfigError("store address '{}': expected host:port after the scheme, found '{}'", address, text);
}

}  // namespace

std::unique_ptr<KeyStore> make_key_store(const std::string& address, bool serve,
                                         std::chrono::milliseconds timeout, const Secret& secret) {
  const size_t scheme_end = address.find("://");
  const std::string scheme = scheme_end == std::string::npos ? "" : address.substr(0, scheme_end);
  const std::string rest = scheme.empty() ? "" : address.substr(scheme_end + 3);
  if (scheme == "tcp") {
    const HostPort place = parse_host_port(rest, address);
    return std::make_unique<TcpKeyStore>(place.host, place.port, secret, serve ? Serve::ManyHosts : Serve::No,
                                         timeout);
  }
  if (scheme == "file" && rest.starts_with('/')) return std::make_unique<FileKeyStore>(rest);
  if (scheme == "etcd") {
    const size_t slash = rest.find('/');
    const HostPort place = parse_host_port(std::string_view(rest).substr(0, slash), address);
    return std::make_unique<EtcdKeyStore>(place.host, place.port,
                                          slash == std::string::npos ? "" : rest.substr(slash + 1), timeout);
  }
  throw ConfigError(
      "store address '{}': expected tcp://host:port, file:///directory or etcd://host:port/prefix", address);
}

}  // namespace tandem
