// A store in etcd, through the JSON gateway of its version 3 interface.
#pragma once

#include <mutex>
#include <nlohmann/json_fwd.hpp>

#include "tandem/comm/key_store/key_store.h"

namespace tandem {

class EtcdKeyStore final : public KeyStore {
 public:
  // Every request is answered within `timeout`, or the store counts as down; the first is made here.
  EtcdKeyStore(const std::string& host, int port, const std::string& prefix,
               std::chrono::milliseconds timeout);
  ~EtcdKeyStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string set_if_missing(const std::string& key, const std::string& value) override;
  void remove(const std::string& key) override;
  std::string description() const override { return description_; }

 private:
  nlohmann::json ask(const std::string& path, const nlohmann::json& request);
  std::string encoded_key(const std::string& key) const;

  const std::string url_, prefix_, description_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  void* curl_ = nullptr;  // one connection, kept open; guarded by mutex_
};

}  // namespace tandem
