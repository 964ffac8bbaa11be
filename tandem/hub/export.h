// A checkpoint of any mesh as a Hugging Face directory: config.json in the keys of transformers 4 and 5,
// weights in safetensors, and what the run kept of the directory that its model came from. The weights of an
// import come back bit for bit.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/config/config.h"
#include "tandem/hub/config_json.h"
#include "tandem/hub/kept_files.h"
#include "tandem/hub/safetensors_writer.h"

namespace tandem {
class ThreadPool;
}

namespace tandem::hub {

struct ExportOptions {
  std::optional<DType> dtype;  // as the model came, else fp32
  int64_t most_shard_bytes = 5'000'000'000;
  std::function<void(int64_t done, int64_t total)> told;  // bytes of weights
};

// A checkpoint's model in words of a family of Hugging Face's.
class ExportedModel {
 public:
  // Throws ConfigError where no family has what the model has, DataError where the checkpoint holds other
  // weights than the model.
  ExportedModel(const Manifest& manifest, const Config& config);

  const HubFamily& family() const { return *family_; }
  const ModelConfig& model() const { return model_; }
  const std::filesystem::path& kept() const { return kept_; }  // the run's folder hub; empty without one
  const std::vector<ParamSources>& params() const { return params_; }
  DType dtype(const ExportOptions& options) const;  // of config.json
  std::vector<OutTensor> tensors(const ExportOptions& options) const;
  std::string config_text(const ExportOptions& options) const;
  int64_t num_params() const;
  int64_t positions() const {
    return kept_config_ && model_.has(kRotary) ? kept_config_->positions : model_.context;
  }

  // Rows of a tensor that params() names, as fp32.
  void read(const std::string& tensor, const Box& rows, std::span<float> dst, ThreadPool* pool) const;
  // A box of a parameter, likewise.
  void read_param(const std::string& param, const Box& box, std::span<float> dst, ThreadPool* pool) const;

 private:
  struct Place {
    const TensorEntry* entry;
    int64_t row_begin, rows;
    bool transposed;
  };
  void choose_family();
  void find_weights();

  const Manifest& manifest_;
  const ModelConfig& model_;
  std::filesystem::path kept_;
  std::optional<HubConfig> kept_config_;
  std::optional<StoredAs> stored_;
  const HubFamily* family_ = nullptr;
  std::vector<ParamSources> params_;
  std::map<std::string, Place, std::less<>> places_;
};

struct Exported {
  std::vector<std::string> files;
  int64_t bytes = 0;  // of weights
};

// `out` must not be there, or be empty; it appears whole or not at all.
Exported export_hub(const ExportedModel& model, const std::filesystem::path& out,
                    const ExportOptions& options, ThreadPool* pool = nullptr);

}  // namespace tandem::hub
