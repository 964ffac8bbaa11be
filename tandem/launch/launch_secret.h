// The secret of a launch: by --rdzv-secret-file, else by the variables of comm/secret.h, else --insecure.
// Where none is given, one node makes one up; several need one at a store of their own, and agree on one
// through a shared directory or etcd, which are as private as those are.
#pragma once

#include <string>

#include "tandem/comm/key_store/key_store.h"
#include "tandem/comm/secret.h"
#include "tandem/launch/options.h"

namespace tandem {

Secret secret_for_one_node(const LaunchOptions& options);

// Of the store that nodes meet at. Throws ConfigError where one is needed and not given.
Secret secret_for_rendezvous(const LaunchOptions& options);

// Of the ranks.
Secret secret_for_nodes(const LaunchOptions& options, KeyStore& store, const std::string& id);

}  // namespace tandem
