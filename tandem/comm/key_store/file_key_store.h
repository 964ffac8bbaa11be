// A store in a directory: a file a key, which appears whole or not at all.
#pragma once

#include <filesystem>

#include "tandem/comm/key_store/key_store.h"

namespace tandem {

class FileKeyStore final : public KeyStore {
 public:
  explicit FileKeyStore(std::filesystem::path directory);  // made where it is missing

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string set_if_missing(const std::string& key, const std::string& value) override;
  void remove(const std::string& key) override;
  std::string description() const override { return "file " + directory_.string(); }

 private:
  std::filesystem::path path_of(const std::string& key) const;
  int64_t add_without_locks(const std::string& key, int64_t amount);
  int64_t add_to_value(const std::string& key, int64_t amount);  // for one at a time
  std::filesystem::path write_aside(const std::string& value);
  [[noreturn]] void fail(const std::string& action) const;  // with what errno says

  const std::filesystem::path directory_;
};

}  // namespace tandem
