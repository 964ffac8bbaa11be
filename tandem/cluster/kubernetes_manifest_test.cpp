#include "tandem/cluster/kubernetes_manifest.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "tandem/base/error.h"

namespace tandem::cluster {
namespace {

Job job(int nodes) {
  Job job;
  job.name = "My run_1";
  job.nodes = nodes;
  job.ranks_per_node = job.gpus_per_node = 8;
  return job;
}

KubernetesOptions options() {
  KubernetesOptions options;
  options.image = "registry/tandem:1";
  options.config_text = "name: a\n";
  options.secret = "meet";
  return options;
}

TEST(KubernetesName, IsOneThatKubernetesTakes) {
  EXPECT_EQ("my-run-1", kubernetes_name("My run_1"));
  EXPECT_EQ("run-7b", kubernetes_name("7b"));
  EXPECT_EQ("run", kubernetes_name("$()"));
  EXPECT_EQ("a", kubernetes_name("-a-"));
  EXPECT_LE(kubernetes_name(std::string(100, 'x')).size(), 52u);
}

TEST(KubernetesManifest, OneNodeNeedsNoServiceAndNoSecret) {
  KubernetesOptions alone = options();
  alone.secret = "";
  const std::vector<YAML::Node> documents = YAML::LoadAll(kubernetes_manifest(job(1), alone));
  ASSERT_EQ(2u, documents.size());
  EXPECT_EQ("ConfigMap", documents[0]["kind"].as<std::string>());
  EXPECT_EQ("name: a\n", documents[0]["data"]["config.yaml"].as<std::string>());
}

TEST(KubernetesManifest, PodsHaveNoRightsAndKnowTheirNumber) {
  const std::vector<YAML::Node> documents = YAML::LoadAll(kubernetes_manifest(job(2), options()));
  ASSERT_EQ(3u, documents.size());
  EXPECT_EQ("None", documents[1]["spec"]["clusterIP"].as<std::string>());
  const YAML::Node pod = documents[2]["spec"]["template"]["spec"];
  EXPECT_TRUE(pod["securityContext"]["runAsNonRoot"].as<bool>());
  EXPECT_EQ(documents[1]["metadata"]["name"].as<std::string>(), pod["subdomain"].as<std::string>());
  const YAML::Node container = pod["containers"][0];
  EXPECT_TRUE(container["securityContext"]["readOnlyRootFilesystem"].as<bool>());
  EXPECT_FALSE(container["securityContext"]["allowPrivilegeEscalation"].as<bool>());
  EXPECT_EQ("8", container["resources"]["limits"]["nvidia.com/gpu"].as<std::string>());
  EXPECT_EQ("PET_NODE_RANK", container["env"][1]["name"].as<std::string>());
  EXPECT_EQ("TANDEM_SECRET_FILE", container["env"][2]["name"].as<std::string>());
  EXPECT_EQ("meet", pod["volumes"][1]["secret"]["secretName"].as<std::string>());
}

TEST(KubernetesManifest, ArgumentsAreNotExpanded) {
  Job hostile = job(1);
  hostile.arguments = {"--run-dir", "$(HOME)/$$x\n- y: 'z'"};
  const YAML::Node args = YAML::LoadAll(
      kubernetes_manifest(hostile, options()))[1]["spec"]["template"]["spec"]["containers"][0]["args"];
  EXPECT_EQ("$$(HOME)/$$$$x\n- y: 'z'", args[args.size() - 1].as<std::string>());
}

TEST(KubernetesManifest, RefusesWhatKubernetesWould) {
  const auto refused = [](auto change) {
    KubernetesOptions bad = options();
    change(bad);
    EXPECT_THROW(kubernetes_manifest(job(2), bad), ConfigError);
  };
  refused([](auto& bad) { bad.image = ""; });
  refused([](auto& bad) { bad.image = "a b"; });
  refused([](auto& bad) { bad.secret = ""; });
  refused([](auto& bad) { bad.space = "A"; });
  refused([](auto& bad) { bad.claims = {"data"}; });
  refused([](auto& bad) { bad.claims = {"data:relative"}; });
  refused([](auto& bad) { bad.selectors = {"a b=c"}; });
  refused([](auto& bad) { bad.tolerations = {"spot:Sometimes"}; });
  refused([](auto& bad) { bad.resources = {"gpu=many"}; });
  refused([](auto& bad) { bad.shared_memory = "a lot"; });
  refused([](auto& bad) { bad.close = bad.spread = "zone"; });
  refused([](auto& bad) { bad.config_text = "\xff"; });
}

}  // namespace
}  // namespace tandem::cluster
