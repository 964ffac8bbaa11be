// Speaks with the API server of a Kubernetes cluster, over HTTPS with libcurl.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tandem/cluster/kubernetes_access.h"

namespace tandem::cluster {

class KubernetesClient {
 public:
  using Json = nlohmann::ordered_json;
  struct Answer {
    int status = 0;
    Json body;
    bool good() const { return status >= 200 && status < 300; }
    std::string message() const;  // the server's own words, on one line
  };

  explicit KubernetesClient(KubernetesAccess access);
  ~KubernetesClient();
  KubernetesClient(const KubernetesClient&) = delete;
  KubernetesClient& operator=(const KubernetesClient&) = delete;

  // All throw IoError naming the server where it cannot be reached or does not prove who it is, and
  // ConfigError where it does not know this client (401).
  Answer get(const std::string& path) { return send("GET", path, "", ""); }
  Answer create(const std::string& path, const Json& object);
  Answer merge(const std::string& path, const Json& changes);  // a JSON merge patch
  Answer remove(const std::string& path, const Json& options);

  // Hands over what comes until the server ends it or `take` returns false.
  Answer stream(const std::string& path, const std::function<bool(std::string_view)>& take);

  const KubernetesAccess& access() const { return access_; }

  // Refused by the server: a sentence with what was asked for.
  [[noreturn]] void refuse(const std::string& what, const Answer& answer) const;

 private:
  Answer send(const std::string& method, const std::string& path, const std::string& body, const char* type,
              const std::function<bool(std::string_view)>* take = nullptr);

  const KubernetesAccess access_;
  void* curl_ = nullptr;
};

}  // namespace tandem::cluster
