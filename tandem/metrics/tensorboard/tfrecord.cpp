#include "tandem/metrics/tensorboard/tfrecord.h"

#include <array>
#include <cstring>

#include "tandem/metrics/little_endian.h"

namespace tandem {
namespace {

constexpr size_t kHead = sizeof(uint64_t) + sizeof(uint32_t);
constexpr size_t kFrame = kHead + sizeof(uint32_t);

constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kCastagnoli = 0x82f63b78;  // its bits from the lowest on
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kCastagnoli : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string tfrecord(std::string_view bytes) {
  std::string record;
  record.reserve(bytes.size() + kFrame);
  put_little_endian<uint64_t>(record, bytes.size());
  put_little_endian<uint32_t>(record, masked_crc32c(record));
  record += bytes;
  put_little_endian<uint32_t>(record, masked_crc32c(bytes));
  return record;
}

std::optional<std::string_view> TfRecordReader::next() {
  const std::string_view left = file_.substr(position_);
  if (left.size() < kHead) return std::nullopt;
  const auto length = get_little_endian<uint64_t>(left);
  if (masked_crc32c(left.substr(0, sizeof(uint64_t))) !=
      get_little_endian<uint32_t>(left.substr(sizeof(uint64_t)))) {
    damaged_ = true;
    return std::nullopt;
  }
  if (length > left.size() - kHead || left.size() - kHead - length < sizeof(uint32_t)) return std::nullopt;
  const std::string_view bytes = left.substr(kHead, length);
  if (masked_crc32c(bytes) != get_little_endian<uint32_t>(left.substr(kHead + length))) {
    damaged_ = true;
    return std::nullopt;
  }
  position_ += kFrame + length;
  return bytes;
}

}  // namespace tandem
