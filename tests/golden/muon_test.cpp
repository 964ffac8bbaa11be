// Muon's update, as it is compiled, against 20 steps of a plain Python program (make_muon.py).
#include "tests/golden/updates_test.h"

namespace tandem {
namespace {

TEST(Muon, FollowsThePublishedRule) {
  const nlohmann::json golden = read_golden("muon.json");
  for (MuonScale scale : {MuonScale::MatchAdamW, MuonScale::Original}) {
    CompileOptions options;
    options.optimizer = OptimizerKind::Muon;
    options.muon_scale = scale;
    const auto hyper = [&](int64_t step) {
      return std::vector<float>{golden["lr"], golden["decay"], static_cast<float>(step), 1, 0, 0, 0, 0.9f,
                                0.95f,        1e-8f,           golden["momentum"]};
    };
    expect_updates(golden, scale == MuonScale::Original ? "original" : "match_rms_adamw", options, hyper);
  }
}

}  // namespace
}  // namespace tandem
