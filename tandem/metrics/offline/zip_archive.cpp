#include "tandem/metrics/offline/zip_archive.h"

#include <zlib.h>

#include "tandem/metrics/little_endian.h"

namespace tandem::zip {
namespace {

constexpr uint16_t kVersion = 45;     // the first with sizes of 64 bits
constexpr uint16_t kStreamed = 8;     // sizes follow the bytes
constexpr uint16_t kDate = 0x21;      // 1980-01-01, the first there is
constexpr uint32_t kIn64 = ~0u;       // the extra field has it
constexpr uint16_t kZip64 = 1;        // that field's number
constexpr uint32_t kMode = 0100644u;  // of a plain file

template <typename... T>
std::string pack(T... values) {
  std::string bytes;
  (put_little_endian(bytes, values), ...);
  return bytes;
}

// Flags, method (none), time and date: in every head.
std::string common(uint16_t flags) { return pack(kVersion, flags, uint16_t{0}, uint16_t{0}, kDate); }

uint16_t length(std::string_view name) { return static_cast<uint16_t>(name.size()); }

std::string directory_entry(const Growing& file, uint16_t flags, uint64_t offset) {
  const uint16_t made_by = 3 << 8 | kVersion;  // on Unix
  return pack(uint32_t{0x02014b50}, made_by) + common(flags) +
         pack(file.crc, kIn64, kIn64, length(file.name), uint16_t{28}, uint16_t{0}, uint16_t{0}, uint16_t{0},
              kMode << 16, kIn64) +
         std::string(file.name) + pack(kZip64, uint16_t{24}, file.bytes, file.bytes, offset);
}

}  // namespace

std::string growing_head(std::string_view name) {
  return pack(uint32_t{0x04034b50}) + common(kStreamed) +
         pack(uint32_t{0}, kIn64, kIn64, length(name), uint16_t{20}) + std::string(name) +
         pack(kZip64, uint16_t{16}, uint64_t{0}, uint64_t{0});
}

std::string tail(const Growing& growing, std::string_view name, std::string_view content) {
  std::string bytes = pack(uint32_t{0x08074b50}, growing.crc, growing.bytes, growing.bytes);
  const uint64_t begin = growing_head(growing.name).size() + growing.bytes;
  const uint64_t second = begin + bytes.size();
  const Growing file{name, crc_of(content), content.size()};
  const auto size = static_cast<uint32_t>(content.size());
  bytes += pack(uint32_t{0x04034b50}) + common(0) + pack(file.crc, size, size, length(name), uint16_t{0});
  bytes += name;
  bytes += content;
  const uint64_t directory = begin + bytes.size();
  const std::string entries = directory_entry(growing, kStreamed, 0) + directory_entry(file, 0, second);
  bytes += entries;
  const uint64_t end = begin + bytes.size();
  const uint64_t entries_bytes = entries.size();
  bytes += pack(uint32_t{0x06064b50}, uint64_t{44}, kVersion, kVersion, uint32_t{0}, uint32_t{0}, uint64_t{2},
                uint64_t{2}, entries_bytes, directory);
  bytes += pack(uint32_t{0x07064b50}, uint32_t{0}, end, uint32_t{1});
  bytes += pack(uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, uint16_t{2}, uint16_t{2},
                static_cast<uint32_t>(entries_bytes), kIn64, uint16_t{0});
  return bytes;
}

uint32_t crc_of(std::string_view bytes, uint32_t begun) {
  return static_cast<uint32_t>(::crc32_z(begun, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace tandem::zip
