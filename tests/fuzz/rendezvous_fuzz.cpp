// Any lines as what launchers have left in a store under this launch's keys, where another program may have
// written: refused with one line, or nodes that can be numbered and shared out, and ends, which are the same
// after they were written and read. The first byte is the unit of elastic ranks.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/launch/flag_values.h"
#include "tandem/launch/options.h"
#include "tandem/launch/rendezvous.h"

namespace {

using namespace tandem;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename Use>
void attempt(const Use& use) {
  try {
    use();
  } catch (const Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::istringstream lines(text);
  std::vector<NodeInfo> nodes;
  for (std::string line; std::getline(lines, line);) {
    attempt([&] {
      nodes.push_back(NodeInfo::from_text(line));
      const std::string written = nodes.back().to_text();
      require(NodeInfo::from_text(written).to_text() == written && nodes.back().num_ranks >= 0);
    });
    attempt([&] {
      const std::string written = RoundEnd::from_text(line).to_text();
      require(RoundEnd::from_text(written).to_text() == written);
    });
    parse_signal_and_rank(line);
    attempt([&] { parse_rendezvous_settings(line, "--rdzv-conf"); });
    attempt([&] { parse_host_port(line, "--rdzv-endpoint"); });
    attempt([&] { parse_nodes(line); });
    attempt([&] { parse_streams(line, "--tee"); });
    attempt([&] { parse_local_ranks(line, "--local-ranks-filter"); });
    attempt([&] { parse_signals(line, "--signals-to-handle"); });
    parse_words(line);
    expand_prefix(line, {.role = "role", .host = "host"});
  }
  attempt([&] {
    Round round;
    round.nodes = order_nodes(nodes);
    share_out(round.nodes, 1 + data[0]);
    require(round.world_size() >= 0);
    for (const NodeInfo& node : round.nodes) require(node.num_ranks >= 0);
  });
  return 0;
}
