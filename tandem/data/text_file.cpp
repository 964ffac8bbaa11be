#include "tandem/data/text_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using namespace std::string_view_literals;

struct Known {
  std::string_view first_bytes;
  std::string_view what;
  std::string_view todo;
};

constexpr std::string_view kToText = "write its text column to a text file first";
constexpr std::string_view kPrepare = "run tandem prepare --out DIR FILE";
constexpr std::string_view kImage = "train on text; the only images are builtin:shapes";

constexpr Known kKnown[] = {
    {"\x1f\x8b"sv, "gzip-compressed", kPrepare},
    {"\x28\xb5\x2f\xfd"sv, "zstd-compressed", kPrepare},
    {"\xfd"
     "7zXZ\0"sv,
     "xz-compressed", "unpack it first: xz -dk FILE"},
    {"BZh"sv, "bzip2-compressed", "unpack it first: bzip2 -dk FILE"},
    {"\x04\x22\x4d\x18"sv, "lz4-compressed", "unpack it first: lz4 -d FILE"},
    {"PK\x03\x04"sv, "a zip archive", "unpack it first: unzip FILE"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive", "unpack it first: 7z x FILE"},
    {"PAR1"sv, "a Parquet file",
     "write its text column out first: duckdb -c \"COPY (SELECT text FROM 'FILE') TO 'text.jsonl' (FORMAT "
     "json)\""},
    {"ARROW1"sv, "an Arrow file", kToText},
    {"SQLite format 3\0"sv, "an SQLite database", kToText},
    {"\x93NUMPY"sv, "a NumPy array", "train on text, or write its tokens' text to a file"},
    {"%PDF-"sv, "a PDF", "take its text out first: pdftotext FILE"},
    {"\x89PNG\r\n"sv, "a PNG image", kImage},
    {"\xff\xd8\xff"sv, "a JPEG image", kImage},
    {"\x7f"
     "ELF"sv,
     "a program", "name a text file"},
    {"\xff\xfe"sv, "UTF-16 text", "convert it first: iconv -f UTF-16 -t UTF-8 FILE"},
    {"\xfe\xff"sv, "UTF-16 text", "convert it first: iconv -f UTF-16 -t UTF-8 FILE"},
};

// Three letters are a word that text may begin with: what follows them in a bzip2 file is not text.
bool begins_with(std::string_view text, const Known& known) {
  if (!text.starts_with(known.first_bytes)) return false;
  return known.first_bytes != "BZh"sv ||
         text.substr(std::min(text.size(), size_t{4})).starts_with("1AY&SY"sv);
}

// The command with the file's own name in it.
std::string named(std::string_view todo, const std::filesystem::path& file) {
  std::string text(todo);
  if (const size_t at = text.find("FILE"); at != std::string::npos) text.replace(at, 4, file.string());
  return text;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void check_text_start(const std::filesystem::path& file, std::span<const std::byte> content) {
  if (content.empty()) throw DataError("{}: file is empty: expected text", file.string());
  const std::string_view text = as_text(content);
  for (const Known& known : kKnown) {
    if (!begins_with(text, known)) continue;
    throw DataError("{}: is {}: expected plain text; {}", file.string(), known.what, named(known.todo, file));
  }
  check_text_piece(file, content.first(std::min(content.size(), kCheckedAtOnce)), 0);
}

void check_text_piece(const std::filesystem::path& file, std::span<const std::byte> piece, size_t offset) {
  const size_t zero = as_text(piece).find('\0');
  if (zero == std::string_view::npos) return;
  throw DataError(
      "{}: byte 0 at offset {}: expected text, found binary; name a text file, or remove such bytes: tr -d "
      "'\\0' < {}",
      file.string(), offset + zero, file.string());
}

}  // namespace tandem
