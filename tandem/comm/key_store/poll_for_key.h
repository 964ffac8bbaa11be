// Waiting for a key in a store that cannot tell when it appears.
#pragma once

#include "tandem/comm/key_store/key_store.h"

namespace tandem {

std::string poll_for_key(KeyStore& store, const std::string& key, std::chrono::milliseconds timeout);

}  // namespace tandem
