#include "tandem/checkpoint/inspect.h"

#include "tandem/checkpoint/example_state.h"
#include "tandem/checkpoint/writer.h"

namespace tandem {
namespace {

class Inspect : public CheckpointTest {};

TEST_F(Inspect, ShowsTheMomentTheSizesAndEveryTensor) {
  CheckpointWriter(folder, 0).save(at_step(3), ExampleState(1).views());
  const Manifest manifest = read_manifest(folder / "step-00000003");
  const std::string table = describe_checkpoint(manifest, true);
  for (const char* part : {"3 (epoch 2, 96 samples, batch 32)", "loss       2.25",
                           "17.0 KiB in 5 tensors, 1 file", "adam.m.embed.weight  f32    [7,300]"}) {
    EXPECT_NE(table.find(part), std::string::npos) << "no '" << part << "' in\n" << table;
  }
  EXPECT_EQ(describe_checkpoint(manifest, false).find("adam"), std::string::npos);
}

TEST_F(Inspect, ComparesTensorsByTheirDigests) {
  ExampleState changed(1);
  changed.tensors[2].bytes[5] ^= std::byte{1};
  changed.tensors[4].dtype = DType::F32;
  changed.tensors.erase(changed.tensors.begin() + 3);
  changed.add("extra", DType::U8, {1});
  CheckpointWriter writer(folder, 0);
  writer.save(at_step(1), ExampleState(1).views());
  writer.save(at_step(2), ExampleState(1).views());
  writer.save(at_step(3), changed.views());
  const Manifest first = read_manifest(folder / "step-00000001");
  EXPECT_TRUE(compare(first, read_manifest(folder / "step-00000002")).empty());
  std::string text;
  for (const Difference& difference : compare(first, read_manifest(folder / "step-00000003"))) {
    text += fmt::format("{}: {}; ", difference.tensor, difference.what);
  }
  EXPECT_EQ(text,
            "data.mask: values; adam.m.embed.weight: only in the first; step_count: dtype: i32 and f32; "
            "extra: only in the second; ");
}

}  // namespace
}  // namespace tandem
