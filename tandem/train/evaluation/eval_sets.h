// What is evaluated: all of data.eval at once, or, where its sets have names, each of them by itself.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/data/dataset_slice.h"
#include "tandem/data/loader.h"
#include "tandem/train/evaluation/evaluate.h"

namespace tandem {

class EvalSets {
 public:
  // `data` is what open_run_data gave, `memory` has loader_bytes of `options`; both outlive it. The sets take
  // turns with the memory.
  EvalSets(const DataSources& sources, const Dataset& data, const LoaderOptions& options,
           std::span<std::byte> memory);

  struct Named {
    std::string name;
    EvalResult result;
  };
  struct Report {
    EvalResult all;            // over the targets of all sets
    std::vector<Named> named;  // empty where sets have no names
    // "eval_loss", or "eval_loss/NAME".
    double loss_of(std::string_view metric) const;
    // What only some runs have, by the names of metrics: eval_top5, eval_loss/NAME.
    std::vector<std::pair<std::string, double>> more() const;
    std::string text(bool with_accuracy) const;  // "eval loss 1.2345, accuracy 0.5000, ..."
  };
  // All ranks call it together.
  Report evaluate(Session& session, const World& world = {});

 private:
  struct Set {
    std::string name;
    std::unique_ptr<Dataset> data;  // where it is a part of the whole
    std::unique_ptr<Loader> loader;
  };
  std::vector<Set> sets_;
};

}  // namespace tandem
