// CRC-32C (Castagnoli), which S3 compares with what has arrived of a put (x-amz-checksum-crc32c). Processors
// have an instruction for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem::s3 {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);  // `before`: of what they follow
uint32_t crc32c_by_table(std::span<const std::byte> bytes,
                         uint32_t before = 0);  // what processors without the instruction do

std::string crc32c_base64(uint32_t crc);  // as the header has it
inline std::string crc32c_base64(std::span<const std::byte> bytes) { return crc32c_base64(crc32c(bytes)); }

}  // namespace tandem::s3
