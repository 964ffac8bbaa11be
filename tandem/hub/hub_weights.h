// The weights of a Hugging Face directory as our parameters: any box of any of them. A rank reads only what
// it holds, a little at a time, so that loading needs no memory beside that of the weights.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/box.h"
#include "tandem/checkpoint/piece.h"
#include "tandem/hub/config_json.h"
#include "tandem/hub/tensor_names.h"
#include "tandem/hub/tensor_set.h"

namespace tandem {
class ThreadPool;
}

namespace tandem::hub {

class HubWeights {
 public:
  // Throws DataError naming the first tensor that is missing, that has another shape or type than the config
  // says, or that belongs to no parameter. `model` may have a smaller context than the directory's.
  HubWeights(const std::filesystem::path& directory, const HubFamily& family, const ModelConfig& model);

  const std::vector<ParamSources>& params() const { return params_; }
  const ParamSources* find(std::string_view param) const;  // nullptr when there is none
  const TensorSet& tensors() const { return set_; }
  std::string_view prefix() const { return prefix_; }
  DType dtype() const;  // that most of the weights have

  // Fills the target's box, converted to its type: F32 as it is or in halves, F16 or BF16.
  void read(const TensorTarget& target) const;
  // All of them, on all threads; `told` gets the bytes of each part that is done, from any thread.
  void read_all(std::span<const TensorTarget> targets, ThreadPool& pool,
                const std::function<void(int64_t)>& told) const;

 private:
  struct Part {
    const SafeTensor* tensor;
    DType dtype;
    int64_t row_begin, rows;
    bool transposed;
  };
  void resolve(const ParamSources& param);
  void check_head(const ModelConfig& model) const;
  void check_extra() const;
  static bool copies(const Part& part, const TensorTarget& target);
  void read_rows(const Part& part, int64_t total_cols, const Box& box, std::span<std::byte> dst) const;
  void read_transposed(const Part& part, const TensorTarget& target, int64_t begin, int64_t end) const;

  TensorSet set_;
  std::string prefix_;
  bool tied_ = false;
  std::vector<ParamSources> params_;
  std::map<std::string, std::vector<Part>, std::less<>> parts_;
};

}  // namespace tandem::hub
