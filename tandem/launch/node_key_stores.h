// The store that a launch of several nodes meets at, from its flags.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tandem/comm/key_store/key_store.h"
#include "tandem/launch/options.h"

namespace tandem {

struct NodeKeyStores {
  std::unique_ptr<KeyStore> main;
  std::unique_ptr<KeyStore> watch;  // for the thread that watches: a wait in one must not hold up the other
  bool serves = false;              // this process holds the store: the others need it to the end
  std::string own_address;          // where other nodes reach this one
  std::string master_addr;          // what ranks are told, where a flag says so
  int master_port = 0;
  Secret secret;  // what the ranks of all nodes know
};

// Throws ListenError where the store cannot be served, CommError where it is not reached within the
// rendezvous' timeout, naming its address, StrangerError where it has another secret; null where
// interrupted() said so. `id` is the launch's.
std::optional<NodeKeyStores> open_node_key_stores(const LaunchOptions& options, const std::string& id,
                                                  const std::function<bool()>& interrupted);

}  // namespace tandem
