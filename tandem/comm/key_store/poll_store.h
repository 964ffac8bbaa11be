// Waiting for a key in a store that cannot tell when it appears.
#pragma once

#include "tandem/comm/key_store/store.h"

namespace tandem {

std::string poll_for(Store& store, const std::string& key, std::chrono::milliseconds timeout);

}  // namespace tandem
