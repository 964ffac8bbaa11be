#include "tandem/data/text_file.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/data/open_dataset.h"
#include "tandem/data/prepare/prepare.h"

namespace tandem {
namespace {

using namespace std::string_view_literals;

std::string refused_by_train(const std::filesystem::path& file) {
  return message_of<DataError>([&] { open_dataset(file.string(), Split::Train, {.context = 8}); });
}

std::string refused_by_prepare(const std::filesystem::path& file) {
  return message_of<DataError>([&] {
    const std::string name = file.string();
    prepare_text(std::span(&name, 1), name + ".out", {});
  });
}

TEST(TextFile, IsTheSameForTrainAndPrepare) {
  const TemporaryDirectory scratch;
  const std::pair<std::string_view, std::string> files[] = {
      {"one zero\0"sv, "byte 0 at offset 8: expected text, found binary; "},
      {"PK\x03\x04"sv, "is a zip archive: expected plain text; unpack it first: unzip "},
      {"PAR1"sv, "is a Parquet file: expected plain text; write its text column out first: duckdb -c "},
      {"BZh91AY&SY"sv, "is bzip2-compressed"},
      {"\xff\xfeh\0i\0"sv, "is UTF-16 text: expected plain text; convert it first: iconv "},
  };
  for (const auto& [start, message] : files) {
    std::string content(start);
    content.append(100, 'x');
    const auto file = scratch.write("file", content);
    EXPECT_EQ(refused_by_train(file).find(file.string() + ": " + message), 0u) << refused_by_train(file);
    EXPECT_EQ(refused_by_prepare(file), refused_by_train(file));
  }
  const auto empty = scratch.write("file", "");
  EXPECT_EQ(refused_by_train(empty), empty.string() + ": file is empty: expected text");
  EXPECT_EQ(refused_by_prepare(empty), refused_by_train(empty));
}

TEST(TextFile, MayEndWhereItBeginsLikeSomethingElse) {
  for (const std::string_view text : {"BZh"sv, "BZh9"sv, "P"sv})
    EXPECT_NO_THROW(check_text_start("file", std::as_bytes(std::span(text))));
}

TEST(TextFile, IsUnpackedByPrepareAlone) {
  const TemporaryDirectory scratch;
  const auto gzip = scratch.write("a.gz", "\x1f\x8b\x08 and so on");
  EXPECT_EQ(refused_by_train(gzip),
            gzip.string() + ": is gzip-compressed: expected plain text; run tandem prepare --out DIR " +
                gzip.string());
  EXPECT_NE(refused_by_prepare(gzip).find("a.gz: gzip-compressed, but damaged"), std::string::npos);
  const auto zstd = scratch.write("a.zst", "\x28\xb5\x2f\xfd");
  EXPECT_NE(refused_by_train(zstd).find("is zstd-compressed: expected plain text; run tandem prepare"),
            std::string::npos);
  EXPECT_NE(refused_by_prepare(zstd).find("a.zst: zstd-compressed, but cut off"), std::string::npos);
}

TEST(TextFile, MayBeInAnyEncodingWithoutZeroes) {
  const TemporaryDirectory scratch;
  const std::string latin = "caf\xe9 cr\xe8me\n", word = "BZhaped words, 7z and PK too\n";
  for (const std::string& line : {latin, word}) {
    const auto file = scratch.write("file", line + line + line);
    EXPECT_GT(open_dataset(file.string(), Split::Train, {.context = 8})->num_samples(), 1);
    const std::filesystem::path out = scratch.path() / "out";
    const std::string name = file.string();
    EXPECT_EQ(prepare_text(std::span(&name, 1), out, {}).num_files, 1);
    std::filesystem::remove_all(out);
  }
}

TEST(TextFile, BehindWhatIsCheckedAtOnceIsCheckedWhenItIsRead) {
  const TemporaryDirectory scratch;
  const auto file = scratch.write("file", "");
  std::filesystem::resize_file(file, kCheckedAtOnce + 4096);  // a hole: zeroes
  {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    const std::string piece(1 << 20, 'x');
    for (size_t done = 0; done < kCheckedAtOnce; done += piece.size())
      stream.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  }
  const auto set = open_dataset(file.string(), Split::Train, {.context = 1024});
  std::vector<int32_t> tokens(1024), targets(1024);
  const SampleBuffers out{.tokens = tokens.data(), .targets = targets.data()};
  set->fill(0, out);
  const std::string message = message_of<DataError>([&] { set->fill(set->num_samples() - 1, out); });
  EXPECT_NE(message.find("byte 0 at offset "), std::string::npos) << message;
  EXPECT_EQ(refused_by_prepare(file).find(file.string() + ": byte 0 at offset 67108864"), 0u);
}

}  // namespace
}  // namespace tandem
