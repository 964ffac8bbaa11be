#include "tandem/config/other_names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/nearest.h"
#include "tandem/config/keys.h"
#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

TEST(OtherNames, LeadToKeysThatExist) {
  for (const char* name :
       {"learning_rate", "batch-size", "n_layer", "hidden_size", "seq_len", "dtype", "epochs", "warmup_steps",
        "gradient_accumulation_steps", "vocab_size", "num_heads", "dataset"}) {
    const std::string_view key = key_for_other_name(name);
    EXPECT_NE(find_key(key), nullptr) << name << " " << key;
  }
  EXPECT_EQ(rejection("", {{"train.learning_rate=3e-4"}}),
            "--set train.learning_rate: no such key; did you mean train.lr?");
  EXPECT_EQ(rejection("model: {hidden_size: 64}"),
            "run.yaml:1: model.hidden_size: no such key; did you mean model.width?");
}

TEST(OtherNames, LeadToValuesOfTheKeyAtHand) {
  const auto meant = [](const std::string& assignment) {
    const std::string message = rejection("", {{assignment}});
    const size_t at = message.find("did you mean ");
    return at == std::string::npos ? "" : message.substr(at + 13);
  };
  EXPECT_EQ(meant("precision=float16"), "fp16?");
  EXPECT_EQ(meant("precision=BF16"), "bf16?");
  EXPECT_EQ(meant("precision=FP16"), "fp16?");
  EXPECT_EQ(meant("precision=bfloat16"), "bf16?");
  EXPECT_EQ(meant("device=gpu"), "cuda?");
  EXPECT_EQ(meant("train.optimizer=Adam"), "adamw?");
  EXPECT_EQ(meant("parallel.strategy=full_shard"), "fsdp?");
  EXPECT_EQ(meant("model.family=gpt"), "gpt2?");
  EXPECT_EQ(meant("precision=quantum"), "") << "no suggestion is better than a wrong one";
}

// One letter too few, one twice, two swapped, upper case, - for _, a comma for the dot: each leads back to
// the key.
TEST(NearestKey, FindsEveryKeyAfterASlip) {
  for (const Key& key : keys()) {
    const std::string path(key.path);
    const size_t name = path.rfind('.') + 1;
    std::vector<std::string> slips;
    for (size_t i = name; i < path.size(); ++i) {
      slips.push_back(path.substr(0, i) + path.substr(i + 1));
      slips.push_back(path.substr(0, i) + path[i] + path.substr(i));
      if (i + 1 < path.size() && path[i] != path[i + 1]) {
        slips.push_back(path);
        std::swap(slips.back()[i], slips.back()[i + 1]);
      }
    }
    std::string upper = path, dashed = path, comma = path;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    std::replace(comma.begin(), comma.end(), '.', ',');
    slips.insert(slips.end(), {upper, dashed, comma, path + "s"});
    for (const std::string& slipped : slips) {
      if (find_key(slipped) != nullptr || is_section(slipped)) continue;
      // Another key may be as close as the one that was meant (min_lr without its m).
      const std::string found(nearest_key(slipped));
      EXPECT_TRUE(found == path || slip(slipped, found) <= slip(slipped, path)) << slipped << " " << found;
    }
  }
}

}  // namespace
}  // namespace tandem
