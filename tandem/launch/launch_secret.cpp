#include "tandem/launch/launch_secret.h"

#include <fmt/format.h>

#include <optional>

#include "tandem/base/error.h"

namespace tandem {
namespace {

std::optional<Secret> find_given(const LaunchOptions& options) {
  if (!options.secret_file.empty()) return Secret::from_file(options.secret_file);
  if (auto given = given_secret()) return given;
  return options.insecure ? std::optional(Secret()) : std::nullopt;
}

}  // namespace

Secret secret_for_one_node(const LaunchOptions& options) {
  const std::optional<Secret> given = find_given(options);
  return given && !given->is_none() ? *given : Secret::random();
}

Secret secret_for_rendezvous(const LaunchOptions& options) {
  const std::optional<Secret> given = find_given(options);
  if (!given && options.backend == RendezvousBackend::Static) {
    throw ConfigError(
        "--rdzv-secret-file: missing; several nodes need a secret against strangers: name a file that is the "
        "same on all of them and private (mode 600), such as head -c 32 /dev/urandom | base64 makes, or let "
        "in whoever can reach the ports with --insecure");
  }
  return given.value_or(Secret());
}

Secret secret_for_nodes(const LaunchOptions& options, KeyStore& store, const std::string& id) {
  if (const std::optional<Secret> given = find_given(options)) return *given;
  const std::string key = fmt::format("tandem-launch/{}/secret", id);
  return Secret::from_hex(store.set_if_missing(key, Secret::random().to_hex()),
                          "rendezvous: the secret kept there");
}

}  // namespace tandem
