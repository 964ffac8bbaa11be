#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/convert/formats.h"
#include "tandem/convert/optimizer.h"
#include "tandem/convert/rules.h"

namespace tandem::convert {
namespace {

constexpr std::string_view kProfile = "use tandem profile CONFIG --trace FILE";
constexpr std::string_view kMetrics = "metrics.jsonl and metrics.csv have every step";
constexpr std::string_view kPlanned = "communication is planned when the step is compiled";
constexpr std::string_view kBlocks = "the pipeline's ranks get equal shares of the blocks";
constexpr std::string_view kSaving =
    "checkpoints always resume; tandem export writes a Hugging Face directory";
constexpr std::string_view kData = "make shards with tandem prepare --out DIR FILES and set data.train";
constexpr std::string_view kFp8 =
    "scales are made of the largest value seen; precision: fp8 has no other setting";

constexpr Rule kRules[] = {
    read("job.description"),
    lost("job.dump_folder", "the run directory is runs/<name>, or --run-dir"),
    lost("job", "tandem explain shows every setting"),
    lost("profiling", kProfile),
    lost("metrics", kMetrics),
    read("model.name"),
    read("model.flavor"),
    read("model.hf_assets_path"),
    read("model.tokenizer_path"),
    read("model.converters"),
    lost("model", "tandem plan --dump shows the model"),
    read("optimizer.name"),
    same("optimizer.lr", "train.lr", "0.0008"),
    read("optimizer.beta1"),
    read("optimizer.beta2"),
    read("optimizer.eps"),
    same("optimizer.weight_decay", "train.weight_decay", "0.1"),
    lost("optimizer.implementation", "the update is one kernel over all parameters", "\"fused\""),
    lost("optimizer", "Tandem's rule has no such number"),
    same("lr_scheduler.warmup_steps", "train.warmup", "200"),
    same("lr_scheduler.min_lr_factor", "train.min_lr"),
    same("lr_scheduler.lr_min", "train.min_lr", "0"),
    read("lr_scheduler.decay_type"),
    read("lr_scheduler.decay_ratio"),
    lost("lr_scheduler", "the schedule ends with train.steps"),
    read("training.local_batch_size"),
    read("training.batch_size"),
    read("training.global_batch_size"),
    same("training.seq_len", "model.context", "2048"),
    same("training.max_norm", "train.clip", "1"),
    same("training.steps", "train.steps", "10000"),
    same("training.seed", "train.seed"),
    same("debug.seed", "train.seed"),
    read("training.dataset"),
    read("training.dataset_path"),
    read("training.enable_cpu_offload"),
    read("training.mixed_precision_param"),
    lost("training.mixed_precision_reduce",
         "gradients are summed in fp32; parallel.reduce says how they travel", "\"float32\""),
    lost("training.compile", "every step is compiled"),
    lost("training.dtype", "masters are fp32", "\"float32\""),
    lost("training.gc_freq", "there is no garbage to collect", "50"),
    lost("training.dataloader", "set data.workers and data.prefetch"),
    lost("training.deterministic", "runs are the same bit for bit always"),
    lost("debug", "runs are the same bit for bit always"),
    read("parallelism.data_parallel_replicate_degree"),
    read("parallelism.data_parallel_shard_degree"),
    read("parallelism.tensor_parallel_degree"),
    read("parallelism.pipeline_parallel_degree"),
    read("parallelism.pipeline_parallel_schedule"),
    read("parallelism.pipeline_parallel_microbatch_size"),
    lost("parallelism.fsdp_reshard_after_forward", kPlanned, "\"default\""),
    lost("parallelism.enable_async_tensor_parallel", kPlanned),
    lost("parallelism.enable_compiled_autograd", "every step is compiled"),
    lost("parallelism.disable_loss_parallel", "the tensor axis always splits the vocabulary"),
    lost("parallelism.pipeline_parallel_split_points", kBlocks),
    lost("parallelism.module_fqns_per_model_part", kBlocks),
    lost("parallelism.pipeline_parallel_first_stage_less_layers", kBlocks),
    lost("parallelism.pipeline_parallel_last_stage_less_layers", kBlocks),
    lost("parallelism.pipeline_parallel_layers_per_stage", "set parallel.chunks"),
    lost("parallelism.context_parallel_degree",
         "a sequence is not split over ranks except by the tensor axis", "1"),
    lost("parallelism.expert_parallel_degree", "there are no experts", "1"),
    lost("parallelism.expert_tensor_parallel_degree", "there are no experts", "1"),
    lost("parallelism", "the mesh is parallel.data * parallel.tensor * parallel.pipeline"),
    read("checkpoint.enable"),
    read("checkpoint.enable_checkpoint"),
    read("checkpoint.interval"),
    read("checkpoint.keep_latest_k"),
    read("checkpoint.async_mode"),
    read("checkpoint.initial_load_path"),
    read("checkpoint.initial_load_in_hf"),
    lost("checkpoint.folder", "checkpoints are in runs/<name>/checkpoints", "\"checkpoint\""),
    lost("checkpoint.load_step", "give it to tandem train: --resume-from-checkpoint", "-1"),
    lost("checkpoint.export_dtype", "give it to tandem export: --dtype", "\"float32\""),
    lost("checkpoint.initial_load_model_only", kSaving, "true"),
    lost("checkpoint.last_save_model_only", kSaving, "true"),
    lost("checkpoint", kSaving),
    read("activation_checkpoint.mode"),
    read("activation_checkpoint.selective_ac_option"),
    lost("activation_checkpoint.memory_budget", "memory.recompute: auto takes what fits into memory.limit"),
    lost("activation_checkpoint", "recomputed values are the same bits, always"),
    lost("compile", "every step is compiled"),
    lost("quantize", kFp8),
    lost("float8", kFp8),
    lost("mx", kFp8),
    same("comm.train_timeout_seconds", "parallel.timeout"),
    lost("comm.init_timeout_seconds", "set TANDEM_CONNECT_TIMEOUT_S", "300"),
    lost("comm", "collectives always have a label and a timeout"),
    lost("memory_estimation", "use tandem plan"),
    lost("fault_tolerance", "tandem launch restarts all ranks from the last checkpoint"),
    lost("experimental", "models of your own are written in C++: docs/own-model.md"),
    read("validation.enable"),
    read("validation.freq"),
    read("validation.dataset_path"),
    lost("validation.dataset", "make shards of it and set data.eval"),
    lost("validation", "evaluation takes data.eval_samples sequences"),
};

// Where it is from here, or from the file's folder.
std::optional<std::string> find_tokenizer(const Source& source, const std::string& name) {
  for (const std::filesystem::path& path :
       {std::filesystem::path(name), std::filesystem::path(source.file()).parent_path() / name}) {
    if (is_there(path / "tokenizer.json") || (path.extension() == ".json" && is_there(path)))
      return path.string();
  }
  return std::nullopt;
}

void read_model(const Source& source, Draft& draft) {
  const std::string name = source.text("model.name").value_or("llama3"),
                    flavor = source.text("model.flavor").value_or("debugmodel");
  if (!set_torchtitan_model(name, flavor, draft)) {
    draft.lost("model.flavor", name + " " + flavor, "its sizes are not known here");
    draft.hint("model.from", "DIR",
               "give a Hugging Face directory of that model; docs/models.md has the families");
  }
  if (source.is_on("checkpoint.initial_load_in_hf"))
    set_model_directory("checkpoint.initial_load_path",
                        source.text("checkpoint.initial_load_path").value_or(""), source, draft);
  const auto tokenizer = source.text(source.find("model.tokenizer_path") != nullptr ? "model.tokenizer_path"
                                                                                    : "model.hf_assets_path");
  if (!tokenizer) return;
  if (const auto found = find_tokenizer(source, *tokenizer)) return draft.set("data.tokenizer", *found);
  draft.hint(
      "data.tokenizer", "DIR",
      fmt::format(
          "{} has no tokenizer.json here; give its place, or that of shards by tandem prepare in data.train",
          text_of(*tokenizer)));
}

void read_optimizer(const Source& source, Draft& draft) {
  const OptimizerKind optimizer =
      set_optimizer("optimizer.name", source.text("optimizer.name").value_or("AdamW"), draft);
  set_hyper(optimizer, "train.beta1", source.number("optimizer.beta1").value_or(0.9), draft);
  set_hyper(optimizer, "train.beta2", source.number("optimizer.beta2").value_or(0.95), draft);
  set_hyper(optimizer, "train.eps", source.number("optimizer.eps").value_or(1e-8), draft);
}

// With a ratio there is a stable phase; without, the rate falls from the end of warm-up on.
void read_schedule(const Source& source, Draft& draft) {
  const std::string decay = source.text("lr_scheduler.decay_type").value_or("linear");
  const std::optional<double> ratio = source.number("lr_scheduler.decay_ratio");
  if (!ratio && (decay == "linear" || decay == "cosine")) return draft.set("train.schedule", decay);
  const auto steps = static_cast<double>(source.whole("training.steps").value_or(10000));
  const auto warmup = static_cast<double>(source.whole("lr_scheduler.warmup_steps").value_or(200));
  draft.set("train.schedule", "wsd");
  draft.set("train.decay_shape", decay);
  draft.set("train.decay_steps",
            std::llround(ratio ? std::min(*ratio * steps, steps - warmup) : steps - warmup));
}

void read_precision(const Source& source, Draft& draft) {
  draft.set("precision", source.text("training.mixed_precision_param").value_or("bfloat16") == "float32"
                             ? "fp32"
                             : "bf16");
  const Value* converters = source.find("model.converters");
  if (converters == nullptr) return;
  const Value list = converters->is_array() ? *converters : Value::array({*converters});
  for (const Value& converter : list) {
    const std::string name = text_of(converter);
    if (name.find("float8") != std::string::npos || name.find("fp8") != std::string::npos) {
      draft.set("precision", "fp8");
    } else {
      draft.lost("model.converters", converter, "the model is taken as it is");
    }
  }
}

void read_data(const Source& source, Draft& draft) {
  if (const auto path = source.text("training.dataset_path")) {
    draft.lost("training.dataset_path", *path, kData);
  } else {
    draft.lost("training.dataset", source.text("training.dataset").value_or("c4_test"), kData);
  }
  if (const auto path = source.text("validation.dataset_path"))
    draft.lost("validation.dataset_path", *path, "make shards of it and set data.eval");
  draft.set("train.eval_every",
            source.is_on("validation.enable") ? source.whole("validation.freq").value_or(10) : 0);
}

void read_checkpoint(const Source& source, Draft& draft) {
  const bool on = source.is_on("checkpoint.enable") || source.is_on("checkpoint.enable_checkpoint");
  draft.set("checkpoint.every", on ? source.whole("checkpoint.interval").value_or(500) : 0);
  if (!on) return;
  draft.set("checkpoint.keep", source.whole("checkpoint.keep_latest_k").value_or(10));
  draft.set("checkpoint.async", source.text("checkpoint.async_mode").value_or("disabled") != "disabled");
  const auto from = source.text("checkpoint.initial_load_path");
  if (from && !source.is_on("checkpoint.initial_load_in_hf"))
    draft.lost("checkpoint.initial_load_path", *from,
               "make a Hugging Face directory of it and set model.from");
}

void read_recompute(const Source& source, Draft& draft) {
  const std::string mode = source.text("activation_checkpoint.mode").value_or("selective");
  const std::string option = source.text("activation_checkpoint.selective_ac_option").value_or("2");
  if (mode == "none" || mode == "full") {
    draft.set("memory.recompute", mode);
  } else if (mode == "memory_budget") {
    draft.set("memory.recompute", "auto");
  } else if (mode != "selective") {
    draft.lost("activation_checkpoint.mode", mode,
               "memory.recompute is none, full, every:K, selective, all_but_attention or auto");
  } else if (option == "op") {
    draft.set("memory.recompute", "selective");
  } else {
    const int64_t every = source.whole("activation_checkpoint.selective_ac_option").value_or(2);
    if (every < 1)
      throw ConfigError(
          "{}: activation_checkpoint.selective_ac_option: expected op or a number of at least 1, found {}",
          source.file(), every);
    draft.set("memory.recompute", fmt::format("every:{}", every));
  }
}

void read_pipeline(const Source& source, Draft& draft, Sizes& sizes) {
  sizes.pipeline = source.whole("parallelism.pipeline_parallel_degree").value_or(1);
  if (sizes.pipeline <= 1) return;
  std::string name = source.text("parallelism.pipeline_parallel_schedule").value_or("1F1B"), word;
  for (const char c : name) word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "interleaved1f1b") {
    draft.set("parallel.schedule", "interleaved");
    draft.assumed("parallel.chunks", 2, "two parts of the model on each rank of the pipeline");
  } else if (word == "gpipe" || word == "1f1b") {
    draft.set("parallel.schedule", word);
  } else {
    draft.lost("parallelism.pipeline_parallel_schedule", name,
               "1f1b is taken; gpipe and interleaved are the others");
  }
  const int64_t micro_batch = source.whole("parallelism.pipeline_parallel_microbatch_size").value_or(1);
  if (micro_batch < 1 || *sizes.micro_batch % micro_batch != 0)
    throw ConfigError(
        "{}: parallelism.pipeline_parallel_microbatch_size: {} does not divide the local batch of {}",
        source.file(), micro_batch, *sizes.micro_batch);
  sizes.accumulation = *sizes.micro_batch / micro_batch;
  sizes.micro_batch = micro_batch;
}

void read_mesh(const Source& source, Draft& draft, Sizes& sizes) {
  const int64_t replicas = source.whole("parallelism.data_parallel_replicate_degree").value_or(1);
  const int64_t shards = source.whole("parallelism.data_parallel_shard_degree").value_or(-1);
  sizes.tensor = source.whole("parallelism.tensor_parallel_degree").value_or(1);
  const char* local = source.find("training.local_batch_size") != nullptr ? "training.local_batch_size"
                                                                          : "training.batch_size";
  sizes.micro_batch = source.whole(local).value_or(8);
  if (const auto batch = source.whole("training.global_batch_size"); batch && *batch > 0) {
    sizes.batch = batch;
  } else {
    sizes.accumulation = 1;
  }
  read_pipeline(source, draft, sizes);
  if (sizes.batch) sizes.accumulation.reset();
  draft.set("parallel.strategy", shards == 1 ? (replicas > 1 ? "ddp" : "single") : "fsdp");
  if (replicas > 1 && shards != 1)
    draft.lost("parallelism.data_parallel_replicate_degree", replicas,
               "fsdp shards over the whole data axis, replicas and shards together");
  if (shards < 1 || sizes.ranks) return;
  for (const int64_t size : {replicas, shards, sizes.tensor, sizes.pipeline}) {
    constexpr int64_t kMost = 1 << 15;
    if (size < 1 || size > kMost)
      throw ConfigError("{}: parallelism: expected degrees between 1 and {}, found {}", source.file(), kMost,
                        size);
  }
  sizes.ranks = replicas * shards * sizes.tensor * sizes.pipeline;
}

}  // namespace

bool is_torchtitan(const Value& root) {
  int found = 0;
  for (const char* key :
       {"job", "model", "optimizer", "lr_scheduler", "training", "parallelism", "activation_checkpoint"})
    found += root.contains(key) && root[key].is_object() ? 1 : 0;
  return found >= 2 && (root.contains("training") || root.contains("parallelism") || root.contains("job"));
}

void convert_torchtitan(const Source& source, Draft& draft, Sizes& sizes) {
  apply_rules(source, kRules, draft);
  read_model(source, draft);
  read_optimizer(source, draft);
  read_schedule(source, draft);
  read_precision(source, draft);
  read_data(source, draft);
  read_checkpoint(source, draft);
  read_recompute(source, draft);
  read_mesh(source, draft, sizes);
  if (source.is_on("training.enable_cpu_offload")) set_fsdp_offload("training.enable_cpu_offload", draft);
}

}  // namespace tandem::convert
