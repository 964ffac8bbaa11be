#include "tandem/config/supported.h"

#include <gtest/gtest.h>

#include "tandem/config/keys.h"
#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

TEST(CheckSupported, SaysWhatWorksInsteadOfEachMissingFeature) {
  EXPECT_EQ(rejection("precision: fp8\ndevice: cpu"),
            "run.yaml:1: precision: fp8 needs a GPU; use fp32, bf16 or fp16 on the CPU");
  EXPECT_EQ(rejection("precision: fp8\ndevice: cuda\nmodel: {family: resnet}"),
            "run.yaml:1: precision: fp8 is for the matrices of blocks, and this family's blocks are "
            "convolutions; use bf16");
  EXPECT_EQ(rejection("device: cuda\nmodel: {family: resnet}\nmemory: {gradients: bf16}"),
            "run.yaml:3: memory.gradients: gradients of convolutions are made in fp32; use fp32");
  EXPECT_EQ(
      rejection("device: cuda\nparallel: {tls: true}"),
      "run.yaml:2: parallel.tls: NCCL, which GPUs talk through, does not encrypt; use false, and a private "
      "network");
}

// What `explain` and docs/config.md say of a key.
TEST(CheckSupported, KeysThatAreRefusedSayNotYet) {
  for (const Key& key : keys()) {
    const bool not_yet = key.doc.find("not yet") != std::string_view::npos;
    const std::string path(key.path);
    std::string message;
    for (const std::string value :
         {"true", "somewhere", "online", "1", "0.5", "data", "layout", "imagenet", "1USD"}) {
      message += rejection("", {{path + "=" + value}});
      message += rejection("model: {family: resnet}", {{path + "=" + value}});
    }
    EXPECT_EQ(not_yet, message.find("this version") != std::string::npos) << path << ": " << message;
  }
}

TEST(CheckSupported, AcceptsWhatThisVersionHas) {
  for (const char* yaml :
       {"device: cpu", "device: cuda", "device: cuda\nmodel: {family: resnet}", "precision: bf16",
        "precision: fp16", "precision: fp8", "memory: {offload: [optimizer]}",
        "parallel: {strategy: fsdp, data: 2, tensor: 2, pipeline: 2}"}) {
    EXPECT_EQ(rejection(yaml), "") << yaml;
  }
}

}  // namespace
}  // namespace tandem
