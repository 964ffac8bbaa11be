// A small shared dictionary through which ranks and launchers find each other. Values are short strings.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm/secret.h"

namespace tandem {

// All methods throw CommError naming the store's address when it cannot be reached, and get() when the key
// does not appear in time (naming the key).
class KeyStore {
 public:
  virtual ~KeyStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;  // waits for it
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;  // atomic; a missing key counts as 0
  // Sets the key only where it is missing; returns the value it has afterwards.
  virtual std::string set_if_missing(const std::string& key, const std::string& value) = 0;
  virtual void remove(const std::string& key) = 0;
  virtual std::string description() const = 0;  // "tcp 10.0.0.1:29500"
};

// By address:
//   tcp://host:port           one process serves it (`serve`) while it lives; the others wait for it
//   file:///directory         on one host, or on a file system that all hosts share
//   etcd://host:port[/prefix] keys are kept under /prefix/
// Throws ConfigError for another address, CommError where the store is not reached within `timeout`,
// ListenError where it cannot be served. A tcp store lets in those who know the secret; a directory must be
// this user's; etcd lets in whomever it lets in.
std::unique_ptr<KeyStore> make_key_store(const std::string& address, bool serve,
                                         std::chrono::milliseconds timeout, const Secret& secret);

}  // namespace tandem
