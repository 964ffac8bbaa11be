#include "tandem/hub/export.h"

#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/checkpoint/piece.h"
#include "tandem/checkpoint/read_boxes.h"
#include "tandem/hub/fresh_directory.h"
#include "tandem/hub/hub_dtype.h"

namespace tandem::hub {

namespace fs = std::filesystem;

namespace {

// Empty where there is none.
fs::path kept_of(const Manifest& manifest) {
  const fs::path kept = kept_folder_of(manifest.directory);
  return is_there(kept / "config.json") ? kept : fs::path();
}

bool is_weight(std::string_view tensor) {
  return tensor.find(':') == std::string_view::npos && !tensor.starts_with(kHintPrefix);
}

}  // namespace

ExportedModel::ExportedModel(const Manifest& manifest, const Config& config)
    : manifest_(manifest), model_(config.model), kept_(kept_of(manifest)) {
  choose_family();
  params_ =
      param_sources(*family_, model_, stored_ ? std::string_view(stored_->prefix) : name_prefix(*family_));
  find_weights();
}

void ExportedModel::choose_family() {
  if (!kept_.empty()) {
    HubConfig kept = read_config_json(kept_);
    if (first_difference(model_, kept.model).empty()) {
      family_ = kept.family;
      kept_config_ = std::move(kept);
      stored_ = read_stored_as(kept_);
      return;
    }
  }
  family_ = &family_of(model_, manifest_.directory.string());
}

void ExportedModel::find_weights() {
  const std::string origin = manifest_.directory.string();
  std::set<std::string_view> known;
  for (const ParamSources& param : params_) {
    const TensorEntry* entry = manifest_.find(param.name);
    if (entry == nullptr)
      throw DataError("{}: holds no parameter '{}' of the family {}", origin, param.name,
                      family_->model_type);
    if (entry->shape != param.shape || entry->dtype != DType::F32)
      throw DataError("{}: parameter '{}': expected f32 {}, found {} {}", origin, param.name,
                      to_string(param.shape), dtype_name(entry->dtype), to_string(entry->shape));
    known.insert(entry->name);
    int64_t row = 0;
    for (const Source& part : param.parts) {
      places_[part.tensor] = {entry, row, part.rows, part.transposed};
      row += part.rows;
    }
  }
  for (const TensorEntry& tensor : manifest_.tensors) {
    if (!is_weight(tensor.name) || known.contains(tensor.name)) continue;
    throw DataError("{}: holds '{}', which the family {} does not have; it cannot be exported", origin,
                    tensor.name, family_->model_type);
  }
}

DType ExportedModel::dtype(const ExportOptions& options) const {
  if (options.dtype) return *options.dtype;
  if (!stored_) return kept_config_ && kept_config_->dtype ? *kept_config_->dtype : DType::F32;
  std::map<DType, int64_t> elems;
  for (const ParamSources& param : params_) {
    for (const Source& part : param.parts) {
      const auto found = stored_->dtypes.find(part.tensor);
      if (found != stored_->dtypes.end()) elems[found->second] += param.tensor_shape(part).elems();
    }
  }
  const auto most = std::max_element(elems.begin(), elems.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elems.end() ? DType::F32 : most->first;
}

std::vector<OutTensor> ExportedModel::tensors(const ExportOptions& options) const {
  const DType usual = dtype(options);
  std::vector<OutTensor> list;
  for (const ParamSources& param : params_) {
    for (const Source& part : param.parts) {
      DType type = usual;
      if (!options.dtype && stored_ && stored_->dtypes.contains(part.tensor))
        type = stored_->dtypes.at(part.tensor);
      list.push_back({part.tensor, type, param.tensor_shape(part)});
    }
  }
  return list;
}

std::string ExportedModel::config_text(const ExportOptions& options) const {
  if (!kept_config_) return config_json(*family_, model_, model_.context, dtype(options)).dump(2) + "\n";
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(read_text(kept_ / "config.json"));
  add_both_spellings(json, *kept_config_, dtype(options));
  if (model_.has(kWeightedPositions)) {
    json["n_positions"] = model_.context;
    if (json.contains("n_ctx")) json["n_ctx"] = model_.context;
  }
  std::string text = json.dump(2) + "\n";
  const std::string differs = first_difference(model_, parse_config_json(text, "config.json").model);
  TANDEM_CHECK(differs.empty(), "config.json would lose {}", differs);
  return text;
}

int64_t ExportedModel::num_params() const {
  int64_t count = 0;
  for (const ParamSources& param : params_) count += param.shape.elems();
  return count;
}

void ExportedModel::read(const std::string& tensor, const Box& rows, std::span<float> dst,
                         ThreadPool* pool) const {
  const Place& place = places_.at(tensor);
  const int64_t cols = whole_box(place.entry->shape).col_end;
  if (!place.transposed) {
    const Box box{place.row_begin + rows.row_begin, place.row_begin + rows.row_end, 0, cols};
    const BoxRead read{place.entry, box, std::as_writable_bytes(dst)};
    return read_boxes(manifest_, std::span(&read, 1), pool);
  }
  const Box box{place.row_begin, place.row_begin + place.rows, rows.row_begin, rows.row_end};
  std::vector<float> turned(static_cast<size_t>(box.elems()));
  const BoxRead read{place.entry, box, std::as_writable_bytes(std::span(turned))};
  read_boxes(manifest_, std::span(&read, 1), pool);
  for (int64_t row = 0; row < box.rows(); ++row) {
    for (int64_t col = 0; col < box.cols(); ++col)
      dst[static_cast<size_t>(col * box.rows() + row)] = turned[static_cast<size_t>(row * box.cols() + col)];
  }
}

void ExportedModel::read_param(const std::string& param, const Box& box, std::span<float> dst,
                               ThreadPool* pool) const {
  const BoxRead read{manifest_.find(param), box, std::as_writable_bytes(dst)};
  read_boxes(manifest_, std::span(&read, 1), pool);
}

Exported export_hub(const ExportedModel& model, const fs::path& out, const ExportOptions& options,
                    ThreadPool* pool) {
  FreshDirectory directory(out);
  Exported exported;
  const std::vector<OutTensor> tensors = model.tensors(options);
  int64_t total = 0;
  for (const OutTensor& tensor : tensors) total += tensor.bytes();
  const auto give = [&](const OutTensor& tensor, const Box& rows, std::span<std::byte> dst) {
    std::vector<float> values(static_cast<size_t>(rows.elems()));
    model.read(tensor.name, rows, values, pool);
    from_floats(values, tensor.dtype, dst.data());
  };
  const WrittenWeights written =
      write_safetensors(directory.path(), tensors, options.most_shard_bytes, give, [&](int64_t done) {
        if (options.told) options.told(done, total);
      });
  exported.files = written.files;
  exported.bytes = written.bytes;
  const auto add = [&](const std::string& name, const std::string& text) {
    write_atomically(directory.path() / name, text);
    exported.files.push_back(name);
  };
  add("config.json", model.config_text(options));
  if (model.kept().empty() || !is_there(model.kept() / "generation_config.json"))
    add("generation_config.json", "{\n  \"_from_model_config\": true\n}\n");
  if (!model.kept().empty()) {
    for (const std::string& name : small_files(model.kept())) {
      if (name != "config.json") add(name, read_text(model.kept() / name));
    }
  }
  directory.commit();
  return exported;
}

}  // namespace tandem::hub
