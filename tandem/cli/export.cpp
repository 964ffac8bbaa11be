#include "tandem/hub/export.h"

#include <cstdio>
#include <memory>

#include "tandem/base/quantity.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/config/values.h"
#include "tandem/hub/gguf_export.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/metrics/long_work.h"
#include "tandem/train/compile_config.h"

namespace tandem::cli {
namespace {

std::optional<DType> dtype_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "bf16") return DType::BF16;
  if (name == "fp32") return DType::F32;
  if (name == "fp16") return DType::F16;
  throw ConfigError("--dtype: expected bf16, fp32 or fp16, found '{}'", name);
}

int64_t shard_bytes(const std::string& text) {
  const std::optional<int64_t> bytes = parse_size(text);
  if (!bytes || *bytes < 1)
    throw ConfigError("--max-shard-size: expected a size such as 5GB, found '{}'", text);
  return *bytes;
}

hub::GgufType quant_of(const std::string& name) {
  if (name == "f16") return hub::GgufType::F16;
  if (name == "bf16") return hub::GgufType::BF16;
  if (name == "q8_0") return hub::GgufType::Q8_0;
  throw ConfigError("--quant: expected f16, bf16 or q8_0, found '{}'", name);
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  struct Flags {
    std::string checkpoint, out, format = "hf", dtype, quant, shard = "5GB";
    bool ema = false;
  };
  CLI::App* command =
      add_command(app, "export", "write a checkpoint as a Hugging Face directory, or as a GGUF file",
                  "tandem export runs/quickstart models/quickstart --dtype bf16");
  auto flags = std::make_shared<Flags>();
  add_checkpoint_to(*command, flags->checkpoint);
  command->add_option("OUT", flags->out, "the directory or file, which is made")->required();
  add_ema_to(*command, flags->ema);
  command->add_option("--format", flags->format, "hf or gguf")->type_name("NAME")->capture_default_str();
  command
      ->add_option("--dtype", flags->dtype, "bf16, fp32 or fp16; as the model came if not given, else fp32")
      ->type_name("NAME");
  command->add_option("--max-shard-size", flags->shard, "bytes of weights in one file")
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_option("--quant", flags->quant, "gguf: type of matrices, f16 (if not given), bf16 or q8_0")
      ->type_name("NAME");
  command->callback([flags, &action] {
    action.run = [flags] {
      const bool gguf = flags->format == "gguf";
      if (!gguf && flags->format != "hf")
        throw ConfigError("--format: expected hf or gguf, found '{}'", flags->format);
      if (gguf && !flags->dtype.empty()) throw ConfigError("--dtype: a GGUF file has --quant instead");
      if (!gguf && !flags->quant.empty()) throw ConfigError("--quant: needs --format gguf");
      const hub::GgufType quant = quant_of(flags->quant.empty() ? "f16" : flags->quant);
      hub::ExportOptions options;
      options.dtype = dtype_of(flags->dtype);
      options.most_shard_bytes = shard_bytes(flags->shard);
      Manifest manifest = find_checkpoint(flags->checkpoint);
      if (flags->ema) manifest = averaged(std::move(manifest));
      const Config config = checkpoint_config(manifest, {});
      const hub::ExportedModel model(manifest, config);
      ThreadPool pool(thread_count(config));
      std::unique_ptr<LongWork> work;
      options.told = [&, told = int64_t{0}](int64_t done, int64_t total) mutable {
        if (!work) work = std::make_unique<LongWork>("writing " + flags->out, total);
        work->done(done - told);
        told = done;
      };
      const int64_t bytes = gguf ? hub::export_gguf(model, flags->out, quant, options.told, &pool)
                                 : hub::export_hub(model, flags->out, options, &pool).bytes;
      const std::string_view type = !gguf                  ? hub::torch_name(model.dtype(options))
                                    : flags->quant.empty() ? "f16"
                                                           : std::string_view(flags->quant);
      std::printf("%s\n", fmt::format("{}: {} of step {}, {} parameters, {} in {}", flags->out,
                                      model.family().model_type, manifest.meta.step,
                                      format_count(static_cast<double>(model.num_params())),
                                      format_bytes(bytes), type)
                              .c_str());
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
