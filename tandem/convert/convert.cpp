#include "tandem/convert/convert.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/config/values.h"
#include "tandem/convert/formats.h"

namespace tandem::convert {
namespace {

struct Format {
  std::string_view name;
  bool (*is)(const Value& root);
  void (*convert)(const Source& source, Draft& draft, Sizes& sizes);
};

// In the order in which they are tried: accelerate's files have DeepSpeed's words inside, Trainer's a few of
// both.
constexpr Format kFormats[] = {
    {"accelerate", is_accelerate, convert_accelerate},
    {"deepspeed", is_deepspeed, convert_deepspeed},
    {"trainer", is_trainer, convert_trainer},
    {"torchtitan", is_torchtitan, convert_torchtitan},
};

bool is_ours(const Value& root) {
  return root.contains("train") && root["train"].is_object() &&
         (root.contains("parallel") || root.contains("data") || root.contains("model"));
}

const Format& find_format(const Request& request, const Value& root) {
  for (const Format& format : kFormats) {
    if (request.format.empty() ? !is_ours(root) && format.is(root) : format.name == request.format)
      return format;
  }
  if (!request.format.empty())
    throw ConfigError("--from: expected one of {}, found {}", fmt::join(format_names(), ", "),
                      in_quotes(request.format));
  if (is_ours(root))
    throw ConfigError("{}: is a config of Tandem already; tandem explain shows what it says",
                      request.file.string());
  throw ConfigError("{}: no config of {} by its keys; give --from NAME if it is one", request.file.string(),
                    fmt::join(format_names(), ", "));
}

// Axes that split a model need its sizes, which most files leave to a script.
void put_off_axes(Draft& draft) {
  if (draft.has("model.from") || draft.has("model.width")) return;
  for (const char* key : {"parallel.tensor", "parallel.pipeline"}) {
    const Value* size = draft.get(key);
    if (size == nullptr) continue;
    draft.hint(key, size->dump(),
               fmt::format("set it to {} when the model is there, which it splits", size->dump()));
    draft.erase(key);
  }
}

}  // namespace

std::string as_run_name(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '-';
  }
  return text.starts_with('.') ? "" : text;
}

std::vector<std::string_view> format_names() {
  std::vector<std::string_view> names;
  for (const Format& format : kFormats) names.push_back(format.name);
  return names;
}

Converted convert_file(const Request& request, const FillModel& fill) {
  const Value root = read_document(request.file);
  const Format& format = find_format(request, root);
  const std::string file = request.file.string();
  Draft draft;
  Sizes sizes;
  sizes.ranks = request.ranks;
  format.convert(Source(file, root), draft, sizes);
  set_sizes(sizes, file, draft);
  if (const std::string name = as_run_name(request.file.stem().string()); !draft.has("name"))
    draft.set("name", name.empty() ? "run" : name);
  if (!draft.has("model.from") && !draft.has("model.width") && !draft.hinted("model.from"))
    draft.hint("model.from", "DIR",
               "the file has no model: a Hugging Face directory, or the sizes of docs/config.md");
  draft.hint("data.train", "DIR",
             "shards that tandem prepare made, or a text file; a built-in set until then");
  put_off_axes(draft);
  Converted converted{std::string(format.name), draft.yaml(), 1, draft.findings(), draft.num_keys()};
  try {
    const ParallelConfig parallel = parse_config(converted.yaml, "converted", {}, 1, fill).config.parallel;
    converted.ranks = parallel.data * parallel.tensor * parallel.pipeline;
  } catch (const ConfigError& error) {
    throw ConfigError("{}: does not make a config that loads: {}", file, error.what());
  }
  return converted;
}

}  // namespace tandem::convert
