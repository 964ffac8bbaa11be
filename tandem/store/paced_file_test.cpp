#include "tandem/store/paced_file.h"

#include <gtest/gtest.h>

#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

std::vector<std::byte> some_bytes(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * i >> 11);
  return bytes;
}

TEST(PacedFile, HasEveryByteWhereverPiecesEnd) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "x";
  // Long enough that what lies behind is waited for, and with an end inside a piece.
  const auto bytes = some_bytes(static_cast<size_t>(PacedFile::kBehind + 3 * PacedFile::kPiece + 5));
  for (const size_t step : {size_t{1'000'003}, static_cast<size_t>(PacedFile::kPiece), bytes.size()}) {
    PacedFile file(path);
    for (size_t at = 0; at < bytes.size(); at += step)
      file.write_all(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
    file.sync_and_close();
    const MappedFile there(path);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), there.bytes().begin(), there.bytes().end())) << step;
  }
}

TEST(PacedFile, WritesWhereThereIsNothingToPace) {
  PacedFile file("/dev/null");
  EXPECT_NO_THROW(file.write_all(some_bytes(static_cast<size_t>(2 * PacedFile::kPiece))));
}

TEST(PacedFile, TellsOfAFullDisk) {
  PacedFile file("/dev/full");
  EXPECT_EQ(message_of<IoError>([&] { file.write_all(some_bytes(100)); }),
            "/dev/full: cannot write: No space left on device");
}

}  // namespace
}  // namespace tandem
