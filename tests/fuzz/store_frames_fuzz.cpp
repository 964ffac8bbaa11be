// Any bytes as what a stranger says to a launch's store, or to a rank: never taken for one that knows the
// secret; and as what a peer says then: requests, each as it was framed, or another language. They may come
// in pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/handshake.h"
#include "tandem/comm/tcp/tcp_socket.h"

namespace {

using namespace tandem;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_handshake(std::string_view bytes, Side side) {
  static const Secret secret = Secret::random();
  Handshake handshake(secret, side, "fuzz");
  while (!handshake.over() && bytes.size() >= handshake.num_wanted()) {
    const std::string_view part = bytes.substr(0, handshake.num_wanted());
    bytes.remove_prefix(part.size());
    require(handshake.take(part).size() <= 64);
  }
  require(!handshake.known());
}

void check_frames(std::string_view bytes) {
  std::string unread, framed;
  size_t given = 0;
  for (size_t piece = 1; given < bytes.size(); piece = piece * 2 % 61 + 1) {
    const std::string_view more = bytes.substr(given, piece);
    unread += more;
    given += more.size();
    while (const auto fields = take_frame(unread)) framed += encode_frame({fields->begin(), fields->end()});
  }
  require(framed + unread == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const Side side : {Side::Server, Side::Client}) check_handshake(bytes, side);
  try {
    check_frames(bytes);
  } catch (const CommError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
