#include "tandem/cluster/kubernetes_access.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::cluster {
namespace {

constexpr const char* kConfig = R"(apiVersion: v1
kind: Config
current-context: a
clusters:
- name: one
  cluster: {server: "https://one:6443/", certificate-authority-data: Q0EtT05F}
- name: two
  cluster: {server: "https://two", certificate-authority: ca.pem, insecure-skip-tls-verify: true}
users:
- name: t
  user: {token: secret-token}
- name: c
  user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ}
- name: f
  user: {tokenFile: token}
- name: old
  user: {auth-provider: {name: gcp}}
contexts:
- name: a
  context: {cluster: one, user: t}
- name: b
  context: {cluster: two, user: c, namespace: team}
- name: d
  context: {cluster: two, user: f}
- name: e
  context: {cluster: two, user: old}
- name: broken
  context: {cluster: three, user: t}
)";

TEST(ReadKubeconfig, TakesTheContextsClusterAndUser) {
  const TemporaryDirectory directory;
  const auto file = directory.write("config", kConfig);
  directory.write("ca.pem", "CA-TWO");
  directory.write("token", "from-file\n");
  const KubernetesAccess current = read_kubeconfig({file}, "");
  EXPECT_EQ("https://one:6443", current.server);
  EXPECT_EQ("CA-ONE", current.authority);
  EXPECT_EQ("secret-token", current.token);
  EXPECT_EQ("default", current.space);
  EXPECT_FALSE(current.any_server);
  const KubernetesAccess named = read_kubeconfig({file}, "b");
  EXPECT_EQ("CA-TWO", named.authority);
  EXPECT_EQ("CERT", named.certificate);
  EXPECT_EQ("KEY", named.key);
  EXPECT_EQ("team", named.space);
  EXPECT_TRUE(named.any_server);
  EXPECT_EQ("from-file", read_kubeconfig({file}, "d").token);
}

TEST(ReadKubeconfig, OfSeveralFilesTheFirstThatNamesAThingCounts) {
  const TemporaryDirectory directory;
  const auto first =
      directory.write("first", "current-context: a\nusers: [{name: t, user: {token: other}}]\n");
  const auto second = directory.write("second", kConfig);
  EXPECT_EQ("other", read_kubeconfig({first, second, directory.path() / "missing"}, "").token);
}

TEST(ReadKubeconfig, AProgramGivesTheTokenAsThoseOfCloudsDo) {
  const TemporaryDirectory directory;
  const auto plugin =
      directory.write("plugin", "#!/bin/sh\necho \"{\\\"status\\\": {\\\"token\\\": \\\"$1-$KIND\\\"}}\"\n");
  std::filesystem::permissions(plugin, std::filesystem::perms::owner_all);
  const std::string user =
      "users: [{name: t, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, "
      "args: [get], env: [{name: KIND, value: x y}]}}}]\n";
  const auto file = directory.write("config", user + "current-context: a\n");
  const auto rest = directory.write("rest", kConfig);
  EXPECT_EQ("get-x y", read_kubeconfig({file, rest}, "").token);
  directory.write("plugin", "#!/bin/sh\necho no luck >&2; exit 3\n");
  EXPECT_NE(std::string::npos, message_of<ConfigError>([&] {
                                 read_kubeconfig({file, rest}, "");
                               }).find("no luck"));
}

TEST(ReadKubeconfig, WhatIsMissingIsNamedAndNoTokenIsQuoted) {
  const TemporaryDirectory directory;
  const auto file = directory.write("config", kConfig);
  directory.write("ca.pem", "CA-TWO");
  const auto message = [&](const std::string& context) {
    return message_of<ConfigError>([&] { read_kubeconfig({file}, context); });
  };
  EXPECT_NE(std::string::npos, message("nobody").find("has no context 'nobody'"));
  EXPECT_NE(std::string::npos, message("broken").find("has no cluster 'three'"));
  EXPECT_NE(std::string::npos, message("e").find("auth-provider"));
  const auto bad = directory.write("bad", "token: [secret-token");
  EXPECT_EQ(std::string::npos,
            message_of<ConfigError>([&] { read_kubeconfig({bad}, ""); }).find("secret-token"));
  EXPECT_THROW(read_kubeconfig({directory.path() / "missing"}, ""), ConfigError);
  const auto plain = directory.write(
      "plain", "current-context: a\nclusters: [{name: one, cluster: {server: 'http://one'}}]\n");
  EXPECT_THROW(read_kubeconfig({plain, file}, ""), ConfigError);
}

TEST(ServiceAccount, IsThePodsOwn) {
  const TemporaryDirectory directory;
  directory.write("token", "abc\n");
  directory.write("ca.crt", "CA");
  directory.write("namespace", "team");
  const KubernetesAccess access = service_account(directory.path(), "10.0.0.1", "443");
  EXPECT_EQ("https://10.0.0.1:443", access.server);
  EXPECT_EQ("abc", access.token);
  EXPECT_EQ("team", access.space);
  EXPECT_EQ("https://[fd00::1]:443", service_account(directory.path(), "fd00::1", "443").server);
}

}  // namespace
}  // namespace tandem::cluster
