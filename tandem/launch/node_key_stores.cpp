#include "tandem/launch/node_key_stores.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/launch/address.h"
#include "tandem/launch/launch_secret.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAnswer{3000};  // of a store that is there
constexpr milliseconds kPause{50};

// Tries to reach a store until the time is over. Null where interrupted.
std::unique_ptr<KeyStore> reach(const std::string& address, const LaunchOptions& options,
                                const Secret& secret, const std::function<bool()>& interrupted) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(options.rendezvous_timeout_s);
  while (!interrupted()) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    try {
      return make_key_store(address, false, std::clamp(left, milliseconds(1), kAnswer), secret);
    } catch (const CommError& error) {
      if (Clock::now() + kPause > deadline)
        throw CommError(
            "rendezvous at {}: no store within {:g} s; is {} running, and --rdzv-endpoint the same "
            "on all nodes? ({})",
            address, options.rendezvous_timeout_s,
            options.backend == RendezvousBackend::Static ? "tandem launch on node 0" : "it", error.what());
    }
    std::this_thread::sleep_for(kPause);
  }
  return nullptr;
}

// Node 0 serves; where nobody was named node 0, the node at that address whose launcher comes first.
std::unique_ptr<KeyStore> serve_if_node_0(const LaunchOptions& options, const HostPort& place,
                                          const std::string& address, const Secret& secret) {
  if (options.node_rank > 0 || (options.node_rank < 0 && !is_own_address(place.host))) return nullptr;
  try {
    return make_key_store(address, true, kAnswer, secret);
  } catch (const Error&) {
    if (options.node_rank == 0) throw;
    return nullptr;
  }
}

}  // namespace

std::optional<NodeKeyStores> open_node_key_stores(const LaunchOptions& options, const std::string& id,
                                                  const std::function<bool()>& interrupted) {
  const Secret secret = secret_for_rendezvous(options);
  NodeKeyStores stores;
  stores.master_addr = options.master_addr;
  stores.master_port = options.master_port;
  HostPort place{hostname(), 1};  // towards which this node's address is looked up
  std::string address;
  if (options.backend == RendezvousBackend::File) {
    address = "file://" + std::filesystem::absolute(options.endpoint).string();
  } else {
    place = options.endpoint.empty() ? HostPort{options.master_addr, options.master_port + 1}
                                     : parse_endpoint(options.endpoint, "--rdzv-endpoint");
    const bool etcd = options.backend == RendezvousBackend::Etcd;
    address = fmt::format("{}://{}:{}", etcd ? "etcd" : "tcp", place.host, place.port);
  }
  if (options.backend == RendezvousBackend::Static)
    stores.main = serve_if_node_0(options, place, address, secret);
  stores.serves = stores.main != nullptr;
  if (!stores.main) stores.main = reach(address, options, secret, interrupted);
  if (stores.main) stores.watch = reach(address, options, secret, interrupted);
  stores.own_address = address_towards(place.host, place.port);
  if (!stores.watch) return std::nullopt;
  stores.secret = secret_for_nodes(options, *stores.main, id);
  return stores;
}

}  // namespace tandem
