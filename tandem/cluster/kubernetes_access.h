// How to reach the API server of a Kubernetes cluster, and as whom: from a kubeconfig as kubectl has it, or,
// in a pod, from its service account.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::cluster {

// Texts of certificates and keys are PEM. None of it is written anywhere or quoted in an error.
struct KubernetesAccess {
  std::string server;             // "https://10.0.0.1:6443"
  std::string space = "default";  // the namespace that is meant where none is named
  std::string context;            // of the kubeconfig; empty in a pod
  std::string authority;          // who signs the server's certificate; empty: whom the system trusts
  std::string certificate, key;   // this client's, or
  std::string token;              // what it shows instead
  std::string proxy;
  bool any_server = false;  // insecure-skip-tls-verify
};

// $KUBECONFIG (files, of which the first that names a thing counts), else ~/.kube/config, else the service
// account of this pod. `context` is one of the kubeconfig's; the current one if empty. Throws ConfigError
// where there is none, and where it has what is not understood here.
KubernetesAccess find_kubernetes(const std::string& context);

KubernetesAccess read_kubeconfig(const std::vector<std::filesystem::path>& files, const std::string& context);
KubernetesAccess service_account(const std::filesystem::path& folder, const std::string& host,
                                 const std::string& port);

// Throws ConfigError beginning with `what` where it is none.
std::string from_base64(const std::string& text, const std::string& what);

}  // namespace tandem::cluster
