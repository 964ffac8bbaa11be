// How the weights and the gradients of a step are spread (log.histograms). Gradients are looked at between
// the passes and the update, which leaves none. Every rank counts what it owns, and the counts of all are
// added up: only steps with histograms pay, and what is trained does not change. A tied table's gradient lies
// in two buffers until the update adds them, and has none; under ddp no gradient has one.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "tandem/metrics/histogram.h"
#include "tandem/runtime/session.h"
#include "tandem/train/world.h"

namespace tandem {

class TensorHistograms {
 public:
  // Every that many steps; 0 for never.
  TensorHistograms(Session& session, const World& world, int64_t every);
  bool is_due(int64_t step) const { return every_ > 0 && step % every_ == 0; }

  // What takes the gradients as they are when it is called, divided by `scale`; nothing where none are due.
  std::function<void()> before_update(int64_t step, double scale);

  // Takes the weights, and gives "weights/NAME" and "gradients/NAME" of every parameter, over all ranks,
  // which call it together.
  std::vector<Histogram> take_weights();

 private:
  void take(std::string_view kind, double scale, std::vector<Histogram>& into);

  Session& session_;
  const World& world_;
  const int64_t every_;
  std::vector<Histogram> weights_, gradients_;  // of each parameter of the model, the same on every rank
};

}  // namespace tandem
