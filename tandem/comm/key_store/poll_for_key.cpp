#include "tandem/comm/key_store/poll_for_key.h"

#include <algorithm>
#include <thread>

#include "tandem/base/error.h"

namespace tandem {

std::string poll_for_key(KeyStore& store, const std::string& key, std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (milliseconds pause{2};; pause = std::min(2 * pause, milliseconds(100))) {
    if (auto value = store.try_get(key)) return *std::move(value);
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      throw CommError("store {}: key '{}' did not appear within {} s", store.description(), key,
                      static_cast<double>(timeout.count()) / 1000);
    }
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

}  // namespace tandem
