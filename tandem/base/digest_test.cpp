#include "tandem/base/digest.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tandem {
namespace {

std::string digest(std::string_view text) { return digest_hex(std::as_bytes(std::span(text))); }

TEST(Digest, IsXxh3Of128Bits) {
  EXPECT_EQ(digest(""), "99aa06d3014798d86001c324468d497f");  // xxHash's published value for no bytes, seed 0
}

TEST(Digest, ChangesWithAnyByte) { EXPECT_NE(digest("tandem"), digest("tandfm")); }

}  // namespace
}  // namespace tandem
