#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/cli/model_source.h"
#include "tandem/compile/executable.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"
#include "tandem/config/print.h"
#include "tandem/hub/config_json.h"
#include "tandem/hub/export.h"
#include "tandem/hub/gguf_model.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/hub_start.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kRanks = 8;

// What the largest rank allocates, to train with 16 bits and one sequence a rank.
ordered_json memory_by_strategy(Config config, const BuildModel& model) {
  ordered_json list = ordered_json::array();
  config.precision = Precision::Bf16;
  config.train.micro_batch = 1;
  config.parallel = {};
  for (Strategy strategy :
       {Strategy::Single, Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp}) {
    config.parallel.strategy = strategy;
    config.parallel.data = strategy == Strategy::Single ? 1 : kRanks;
    config.train.batch = config.parallel.data;
    const Backend backend = make_backend(config);
    MeshPosition at;
    at.shape = mesh_shape(config);
    const CompiledStep step = compile_config(config, compile_options(config, backend, at), model);
    list.push_back({{"strategy", name_of(strategy)},
                    {"ranks", config.parallel.data},
                    {"bytes", total_bytes(step.sizes)},
                    {"device_bytes", device_bytes(step.sizes)}});
  }
  return list;
}

ordered_json shape_of(const ModelConfig& model) {
  ordered_json json;
  json["layers"] = model.layers;
  json["width"] = model.width;
  json["heads"] = model.heads;
  json["kv_heads"] = model.num_kv_heads();
  json["head"] = model.head_width();
  json["ffn"] = model.ffn_width();
  json["vocab"] = model.vocab;
  json["context"] = model.context;
  json["tied"] = model.tied;
  return json;
}

ordered_json about_file(const std::string& path) {
  const hub::SafetensorsFile file(path);
  ordered_json json = {{"kind", "safetensors"}, {"path", path}};
  int64_t elems = 0, bytes = 0;
  ordered_json tensors = ordered_json::array();
  for (const hub::SafeTensor& tensor : file.tensors()) {
    elems += tensor.shape.elems();
    bytes += static_cast<int64_t>(tensor.bytes.size());
    tensors.push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape.dims()}});
  }
  json["parameters"] = elems;
  json["bytes"] = bytes;
  json["metadata"] = file.metadata();
  json["tensors"] = std::move(tensors);
  return json;
}

ordered_json json_of(const hub::GgufValue& value) {
  return std::visit(
      [](const auto& held) -> ordered_json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, hub::GgufArray>) {
          return {{"of", held.of}, {"count", held.count}};
        } else if constexpr (std::is_same_v<Held, std::string>) {
          return is_utf8(held) ? held : printable(held);
        } else {
          return held;  // a float that is no number becomes null
        }
      },
      value);
}

// That most of the bytes have.
std::string_view usual_type(const hub::GgufContents& file) {
  std::map<std::string_view, size_t> bytes;
  for (const hub::GgufTensorInfo& tensor : file.tensors) bytes[tensor.type] += tensor.bytes.size();
  std::string_view usual = "none";
  for (const auto& [type, count] : bytes) {
    if (usual == "none" || count > bytes[usual]) usual = type;
  }
  return usual;
}

ordered_json about_gguf(const std::string& path, const BuildModel& build) {
  const hub::GgufFile opened(path);
  const hub::GgufContents& file = opened.contents();
  const auto model = hub::gguf_model(file, path);
  ordered_json json = {{"kind", "gguf"}, {"path", path}, {"version", file.version}};
  json["architecture"] = printable(file.text("general.architecture").value());
  json["parameters"] = hub::gguf_parameters(file);
  int64_t bytes = 0;
  for (const hub::GgufTensorInfo& tensor : file.tensors) bytes += static_cast<int64_t>(tensor.bytes.size());
  json["dtype"] = usual_type(file);
  json["bytes"] = bytes;
  const auto kind = file.text("tokenizer.ggml.model");
  json["tokenizer"] =
      kind ? ordered_json(fmt::format(
                 "{} ({}), {}", printable(*kind),
                 printable(file.text("tokenizer.ggml.pre").value_or("default")),
                 count_of(static_cast<int64_t>(file.length("tokenizer.ggml.tokens").value_or(0)), "token")))
           : ordered_json(nullptr);
  ordered_json tensors = ordered_json::array(), keys = ordered_json::object();
  for (const auto& [key, value] : file.keys) keys[key] = json_of(value);
  for (const hub::GgufTensorInfo& tensor : file.tensors)
    tensors.push_back({{"name", tensor.name}, {"dtype", tensor.type}, {"shape", tensor.shape.dims()}});
  if (const auto* found = std::get_if<hub::HubConfig>(&model)) {
    Config config;
    config.model = found->model;
    json["family"] = found->family->model_type;
    json["positions"] = found->positions;
    json["model"] = shape_of(config.model);
    json["memory"] = memory_by_strategy(config, build);
  } else {
    json["training"] = "no model that trains here: it has " + std::get<std::string>(model);
  }
  json["keys"] = std::move(keys);
  json["tensors"] = std::move(tensors);
  return json;
}

// The first of the files that a tokenizer may be in.
ordered_json tokenizer_in(const std::filesystem::path& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    if (is_there(directory / name)) return name;
  }
  return nullptr;
}

ordered_json about_directory(const std::string& path, const BuildModel& model) {
  const hub::HubConfig described = hub::read_config_json(path);
  const Config config = hub_config(path, {});
  ordered_json json = {{"kind", "hugging face"}, {"path", path}, {"family", described.family->model_type}};
  int64_t params = 0;
  for (const hub::ParamSources& param : hub::param_sources(*described.family, config.model, ""))
    params += param.shape.elems();
  json["parameters"] = params;
  if (hub::holds_weights(path)) {
    const hub::HubWeights weights = open_hub_weights(config);
    json["dtype"] = hub::torch_name(weights.dtype());
    json["bytes"] = weights.tensors().total_bytes();
  } else {
    json["dtype"] = described.dtype ? ordered_json(hub::torch_name(*described.dtype)) : ordered_json(nullptr);
    json["bytes"] = nullptr;
  }
  json["positions"] = described.positions;
  json["tokenizer"] = tokenizer_in(path);
  json["model"] = shape_of(config.model);
  json["memory"] = memory_by_strategy(config, model);
  return json;
}

ordered_json about_run(const std::string& path, const BuildModel& model) {
  const Manifest manifest = find_checkpoint(path);
  const Config config = checkpoint_config(manifest, {});
  ordered_json json = {{"kind", "run"}, {"path", path}, {"step", manifest.meta.step}};
  json["family"] = name_of(config.model.family);
  if (config.model.is_language_model()) {
    json["model"] = shape_of(config.model);
    try {
      const hub::ExportedModel exported(manifest, config);
      json["family"] = exported.family().model_type;
      json["parameters"] = exported.num_params();
      json["dtype"] = hub::torch_name(exported.dtype({}));
      json["tokenizer"] =
          exported.kept().empty() ? ordered_json(config.data.tokenizer) : tokenizer_in(exported.kept());
    } catch (const ConfigError& error) {
      json["export"] = fmt::format("not as a Hugging Face directory: {}", error.what());
    }
  }
  json["bytes"] = manifest.total_bytes();
  json["memory"] = memory_by_strategy(config, model);
  return json;
}

ordered_json about(const std::string& path, const BuildModel& model) {
  std::error_code ignored;
  const bool file = std::filesystem::is_regular_file(path, ignored);
  if (file && path.ends_with(".safetensors")) return about_file(path);
  if (file && path.ends_with(".gguf")) return about_gguf(path, model);
  return is_hub_directory(path) ? about_directory(path, model) : about_run(path, model);
}

void print_row(const std::string& key, const std::string& value) {
  std::printf("%s\n", fmt::format("{:<12} {}", key, value).c_str());
}

std::string text_of(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_info(const ordered_json& json) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_structured() || value.is_null()) continue;
    const bool bytes = key == "bytes";
    print_row(key, bytes ? format_bytes(value.get<int64_t>())
                   : key == "parameters"
                       ? fmt::format("{} ({})", format_count(value.get<double>()), value.dump())
                       : text_of(value));
  }
  if (json.contains("model")) {
    std::string list;
    for (const auto& [key, value] : json["model"].items())
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", key, text_of(value));
    print_row("model", list);
  }
  if (json.contains("tensors")) {
    for (const ordered_json& tensor : json["tensors"])
      print_row(text_of(tensor["dtype"]),
                fmt::format("{} {}", printable(text_of(tensor["name"])), tensor["shape"].dump()));
  }
  if (!json.contains("memory")) return;
  std::printf("\nto train in bf16 with AdamW, one sequence a rank, each rank needs\n");
  for (const ordered_json& row : json["memory"])
    print_row(text_of(row["strategy"]),
              fmt::format("{:>10}  on {}", format_bytes(row["bytes"].get<int64_t>()),
                          count_of(row["ranks"].get<int64_t>(), "rank")));
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  struct Flags {
    std::string path;
    bool json = false;
  };
  CLI::App* command = add_command(app, "info", "what a model is, and the memory that it takes to train it",
                                  "tandem info models/smollm2");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("PATH", flags->path,
                   "a Hugging Face directory, a run, a checkpoint, a safetensors or a GGUF file")
      ->required();
  command->add_flag("--json", flags->json, "print one JSON object");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      const std::string& path = flags->path;
      const ordered_json json = about(path, action.model);
      if (flags->json) {
        std::printf("%s\n", json.dump().c_str());
      } else {
        print_info(json);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
