// A checkpoint as the first format version wrote it, byte for byte: it must load for ever.
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/checkpoint/example_state_test.h"
#include "tandem/checkpoint/inspect.h"

namespace tandem {
namespace {

constexpr const char* kText = R"(
{
 "batch": 32,
 "config": {
  "name": "old"
 },
 "digest": "de3fed903d2135ecb9a868e5c6b1d5d3",
 "epoch": 1,
 "files": [
  {
   "bytes": 38,
   "name": "rank-00000.ckpt"
  }
 ],
 "hardware": "2 cores",
 "hostname": "node-1",
 "loss": 2.5,
 "mesh": {
  "data": 1,
  "pipeline": 1,
  "tensor": 1
 },
 "metrics": {},
 "samples": 224,
 "scalars": {
  "seed": 17
 },
 "sequence": 1,
 "step": 7,
 "tensors": [
  {
   "digest": "95071b0fd974023f450620f7cc2deaeb",
   "dtype": "u8",
   "name": "cube",
   "shape": [
    2,
    3,
    4
   ],
   "shards": [
    {
     "begin": [
      0,
      0,
      0
     ],
     "bytes": 24,
     "digest": "95071b0fd974023f450620f7cc2deaeb",
     "end": [
      2,
      3,
      4
     ],
     "file": "rank-00000.ckpt",
     "offset": 0
    }
   ]
  },
  {
   "digest": "2438672acf89a0ba2099754ac5574c03",
   "dtype": "bf16",
   "name": "bias",
   "shape": [
    5
   ],
   "shards": [
    {
     "begin": [
      0
     ],
     "bytes": 10,
     "digest": "2438672acf89a0ba2099754ac5574c03",
     "end": [
      5
     ],
     "file": "rank-00000.ckpt",
     "offset": 24
    }
   ]
  },
  {
   "digest": "4c3c56606839c01251353eef0e1def38",
   "dtype": "i32",
   "name": "count",
   "shape": [],
   "shards": [
    {
     "begin": [],
     "bytes": 4,
     "digest": "4c3c56606839c01251353eef0e1def38",
     "end": [],
     "file": "rank-00000.ckpt",
     "offset": 34
    }
   ]
  }
 ],
 "time": "2026-01-01T00:00:00.000Z",
 "version": 1
}
)";

class Version1 : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    std::filesystem::create_directories(directory());
    for (size_t i = 0; i < 38; ++i) bytes.push_back(static_cast<char>(i * 7));
    write_atomically(directory() / "manifest.json", std::string_view(kText).substr(1));
    write_atomically(directory() / "rank-00000.ckpt", bytes);
  }
  std::filesystem::path directory() const { return folder / "step-00000007"; }

  std::string bytes;
};

TEST_F(Version1, LoadsWholeAndInPieces) {
  std::string cube(24, '\0'), bias(10, '\0'), count(4, '\0'), middle(6, '\0');
  const auto memory = [](std::string& text) { return std::as_writable_bytes(std::span(text)); };
  const std::vector<TensorTarget> targets{{"cube", DType::U8, {2, 3, 4}, memory(cube)},
                                          {"cube", DType::U8, {2, 3, 4}, {0, 2, 5, 8}, memory(middle)},
                                          {"bias", DType::BF16, {5}, memory(bias)},
                                          {"count", DType::I32, {}, memory(count)}};
  const Latest latest = load_latest(folder, targets);
  ASSERT_TRUE(latest.manifest.has_value());
  EXPECT_EQ(latest.manifest->meta.step, 7);
  EXPECT_EQ(latest.manifest->meta.mesh, MeshShape{});
  EXPECT_EQ(cube, bytes.substr(0, 24));
  EXPECT_EQ(bias, bytes.substr(24, 10));
  EXPECT_EQ(count, bytes.substr(34));
  EXPECT_EQ(middle, bytes.substr(5, 3) + bytes.substr(17, 3));
  verify(*latest.manifest);
}

TEST_F(Version1, DamageOutsideThePieceThatIsReadIsFoundToo) {
  flip_byte(directory() / "rank-00000.ckpt", 23);  // the one digest is of all of it
  std::string first(1, '\0');
  const TensorTarget target{
      "cube", DType::U8, {2, 3, 4}, {0, 1, 0, 1}, std::as_writable_bytes(std::span(first))};
  EXPECT_THROW(load(read_manifest(directory()), {&target, 1}, nullptr, Match::Subset), DataError);
}

TEST_F(Version1, EqualsTheSameTensorsInTheNewestVersion) {
  const auto part = [&](size_t begin, size_t size) {
    return std::as_bytes(std::span(bytes).subspan(begin, size));
  };
  const std::vector<TensorView> views{{"cube", DType::U8, {2, 3, 4}, {0, 1, 0, 12}, part(0, 12)},
                                      {"cube", DType::U8, {2, 3, 4}, {1, 2, 0, 12}, part(12, 12)},
                                      {"bias", DType::BF16, {5}, part(24, 10)},
                                      {"count", DType::I32, {}, part(34, 4)}};
  CheckpointWriter writer(folder, 0);
  writer.save(at_step(8), views);
  const Manifest old = read_manifest(directory()), now = read_manifest(folder / "step-00000008");
  EXPECT_EQ(now.sequence, old.sequence + 1);
  EXPECT_TRUE(compare(old, now).empty());
}

TEST_F(Version1, AVersionFromTheFutureIsRefused) {
  std::string text = std::string(kText).substr(1);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 3");
  const std::string message = message_of<DataError>([&] { parse_manifest(text, "here"); });
  EXPECT_NE(message.find("expected format version 2 or older, found 3"), std::string::npos) << message;
}

}  // namespace
}  // namespace tandem
