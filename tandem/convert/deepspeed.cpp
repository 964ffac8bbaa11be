#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/convert/formats.h"
#include "tandem/convert/optimizer.h"
#include "tandem/convert/rules.h"

namespace tandem::convert {
namespace {

constexpr std::string_view kPlanned =
    "sizes and order of communication are planned when the step is compiled";
constexpr std::string_view kMetrics = "metrics.jsonl has every step; tandem profile shows where time goes";
constexpr std::string_view kHost =
    "what is offloaded lies in host memory; Tandem pins and moves it by its plan";

constexpr Rule kRules[] = {
    read("train_batch_size"),
    read("train_micro_batch_size_per_gpu"),
    read("gradient_accumulation_steps"),
    same("gradient_clipping", "train.clip", "0"),
    same("seed", "train.seed"),
    read("zero_optimization.stage"),
    read("zero_optimization.offload_optimizer.device"),
    read("zero_optimization.offload_param.device"),
    read("zero_optimization.cpu_offload"),
    lost("zero_optimization.offload_optimizer", kHost),
    lost("zero_optimization.offload_param", kHost),
    lost("zero_optimization.stage3_gather_16bit_weights_on_model_save",
         "tandem export writes whole weights of any mesh"),
    lost("zero_optimization.zero_quantized_weights", "weights travel as they are stored"),
    lost("zero_optimization.zero_quantized_gradients", "parallel.reduce: bf16 halves what travels"),
    lost("zero_optimization.zero_hpz_partition_size", "fsdp shards over the whole data axis"),
    lost("zero_optimization.mics_shard_size", "fsdp shards over the whole data axis", "-1"),
    lost("zero_optimization", kPlanned),
    read("fp16.enabled"),
    read("fp16.loss_scale"),
    read("fp16.initial_scale_power"),
    read("fp16.loss_scale_window"),
    lost("fp16.auto_cast", "inputs are tokens or images, which need no cast"),
    lost("fp16", "the scale halves at each overflow and doubles after train.loss_scale_window good steps"),
    read("bf16.enabled"),
    read("bfloat16.enabled"),
    lost("bf16", "masters are fp32; memory.gradients chooses how gradients are stored"),
    lost("amp", "set precision: bf16 or fp16 instead"),
    read("communication_data_type"),
    read("optimizer.type"),
    read("optimizer.params.lr"),
    read("optimizer.params.betas"),
    read("optimizer.params.eps"),
    read("optimizer.params.momentum"),
    read("optimizer.params.weight_decay"),
    read("optimizer.params.adam_w_mode"),
    lost("optimizer", "Tandem's rule has no such number"),
    read("scheduler.type"),
    read("scheduler.params.warmup_num_steps"),
    read("scheduler.params.warmup_max_lr"),
    read("scheduler.params.warmup_type"),
    read("scheduler.params.total_num_steps"),
    read("scheduler.params.cos_min_ratio"),
    read("scheduler.params.warmup_min_lr"),
    same("scheduler.params.warmup_min_ratio", "train.start_lr"),
    lost("scheduler", "train.schedule has no such number"),
    read("activation_checkpointing.number_checkpoints"),
    lost("activation_checkpointing",
         "memory.recompute: full keeps the input of each block only; `auto` by what fits"),
    lost("steps_per_print", kMetrics),
    lost("wall_clock_breakdown", kMetrics),
    lost("dump_state", "tandem explain shows every setting"),
    lost("flops_profiler", "use tandem profile"),
    lost("comms_logger", "tandem plan has the bytes each rank sends, tandem profile --trace their times"),
    lost("monitor_config", "metrics.jsonl and metrics.csv are written"),
    lost("tensorboard", "set log.tensorboard: true; the files are in the run's directory"),
    lost("wandb", "set log.wandb: offline; `wandb sync` takes the run's wandb/"),
    lost("csv_monitor", "metrics.csv is always written"),
    lost("prescale_gradients", "gradients are summed in fp32 and divided once"),
    lost("gradient_predivide_factor", "gradients are summed in fp32 and divided once", "1.0"),
    lost("zero_allow_untested_optimizer", "every optimizer works with every strategy"),
    lost("zero_force_ds_cpu_optimizer", "an offloaded optimizer runs on the CPU"),
    lost("checkpoint", "any mesh reads any checkpoint; see checkpoint.every"),
    lost("data_types", "gradients are summed in fp32"),
    lost("tensor_parallel", "set parallel.tensor"),
    lost("pipeline", "set parallel.pipeline and parallel.schedule"),
    lost("sparse_attention", "attention is dense, or a window: model.window"),
    lost("compression_training", "weights are trained as they are"),
    lost("data_efficiency", "batches are drawn as data.train says"),
    lost("curriculum_learning", "the context is fixed"),
    lost("elasticity",
         "tandem launch --nnodes MIN:MAX restarts with the nodes that are there; the batch stays"),
    lost("autotuning", "tandem plan shows what fits before a run"),
    lost("aio", "offload goes to host memory, not to disks"),
};

// Whether the file leaves a key to another file; told where no other has given it.
bool tell_auto(const Source& source, std::string_view key, std::string_view ours, Draft& draft) {
  if (!source.is_left_to_others(key)) return false;
  if (!draft.has(ours) && !draft.hinted(ours))
    draft.lost(source.full(key), "auto", fmt::format("another file gives it; set {}", ours));
  return true;
}

constexpr std::string_view kStrategies[] = {"ddp", "zero1", "zero2", "fsdp"};

void read_zero(const Source& source, Draft& draft) {
  const int64_t stage = source.whole("zero_optimization.stage").value_or(0);
  if (stage < 0 || stage > 3)
    throw ConfigError("{}: {}: expected 0, 1, 2 or 3, found {}", source.file(),
                      source.full("zero_optimization.stage"), stage);
  draft.set("parallel.strategy", kStrategies[stage]);
  Value offload = Value::array();
  const auto wants = [&](std::string_view key) {
    const std::string device = source.text(key).value_or("none");
    if (device == "nvme")
      draft.lost(source.full(key), device, "host memory is used; nothing is offloaded to disks");
    return device != "none" && device != "no";
  };
  const bool optimizer =
      wants("zero_optimization.offload_optimizer.device") || source.is_on("zero_optimization.cpu_offload");
  if (wants("zero_optimization.offload_param.device")) {
    if (stage == 3) {
      offload.push_back("params");
    } else {
      draft.lost(source.full("zero_optimization.offload_param.device"), "cpu",
                 "only fsdp (stage 3) offloads parameters");
    }
  }
  if (optimizer) offload.push_back("optimizer");
  if (!offload.empty()) draft.set("memory.offload", offload);
}

void read_fp16(const Source& source, Draft& draft) {
  draft.set("precision", "fp16");
  const double fixed = source.number("fp16.loss_scale").value_or(0);
  if (fixed > 0) {
    draft.lost(source.full("fp16.loss_scale"), fixed, "the scale starts there, and then follows overflows");
    draft.set("train.loss_scale", fixed);
  } else {
    const int64_t power = source.whole("fp16.initial_scale_power").value_or(16);
    if (power < 0 || power > 120)
      throw ConfigError("{}: {}: expected 0 to 120, found {}", source.file(),
                        source.full("fp16.initial_scale_power"), power);
    draft.set("train.loss_scale", *as_number(std::ldexp(1.0, static_cast<int>(power))));
  }
  draft.set("train.loss_scale_window", source.whole("fp16.loss_scale_window").value_or(1000));
}

void read_precision(const Source& source, Draft& draft) {
  const bool fp16 = source.is_on("fp16.enabled");
  const bool bf16 = source.is_on("bf16.enabled") || source.is_on("bfloat16.enabled");
  if (fp16 && bf16) throw ConfigError("{}: fp16 and bf16 are both enabled; turn one off", source.file());
  const bool fp16_is_left = source.is_left_to_others("fp16.enabled");
  const Value* known = draft.get("precision");  // where another file gave it
  if (fp16 || (fp16_is_left && known != nullptr && *known == "fp16")) read_fp16(source, draft);
  if (bf16) draft.set("precision", "bf16");
  if (!draft.has("precision") && (fp16_is_left || source.is_left_to_others("bf16.enabled")))
    draft.assumed("precision", "bf16", "the file says auto; fp32 and fp16 are the others");
  const std::string travels = source.text("communication_data_type").value_or("fp32");
  if (travels == "bfp16" || travels == "bf16") {
    draft.set("parallel.reduce", "bf16");
  } else if (travels != "fp32") {
    draft.lost(source.full("communication_data_type"), travels,
               "gradients travel in fp32; parallel.reduce may be bf16");
  }
}

void read_optimizer(const Source& source, Draft& draft) {
  const std::optional<std::string> name = source.text("optimizer.type");
  if (!name) {
    if (!draft.has("train.optimizer"))
      draft.hint(
          "train.optimizer", "adamw",
          "the file has no optimizer; give train.optimizer, train.lr and train.weight_decay of your script");
    return;
  }
  const OptimizerKind optimizer = set_optimizer(source.full("optimizer.type"), *name, draft);
  const auto put = [&](std::string_view key, std::string_view ours, double absent) {
    const std::string path = fmt::format("optimizer.params.{}", key);
    if (tell_auto(source, path, ours, draft)) return;
    const double number = source.number(path).value_or(absent);
    if (ours == "train.lr" || ours == "train.weight_decay") {
      draft.set(ours, *as_number(number));
    } else {
      set_hyper(optimizer, ours, number, draft);
    }
  };
  put("lr", "train.lr", 1e-3);
  put("weight_decay", "train.weight_decay", 0);
  put("eps", "train.eps", 1e-8);
  put("momentum", "train.momentum", 0);
  if (const Value* betas = source.find("optimizer.params.betas")) {
    const bool two =
        betas->is_array() && betas->size() == 2 && as_number((*betas)[0]) && as_number((*betas)[1]);
    if (!two)
      throw ConfigError("{}: {}: expected two numbers, found {}", source.file(),
                        source.full("optimizer.params.betas"), text_of(*betas));
    set_hyper(optimizer, "train.beta1", as_number((*betas)[0])->get<double>(), draft);
    set_hyper(optimizer, "train.beta2", as_number((*betas)[1])->get<double>(), draft);
  } else if (optimizer == OptimizerKind::AdamW && !draft.has("train.beta2")) {
    set_hyper(optimizer, "train.beta2", 0.999, draft);
  }
  if (source.flag("optimizer.params.adam_w_mode") == false)
    draft.lost(source.full("optimizer.params.adam_w_mode"), false,
               "weight decay is apart from the gradient, as AdamW has it");
}

void read_scheduler(const Source& source, Draft& draft) {
  const std::optional<std::string> name = source.text("scheduler.type");
  if (!name) {
    if (!draft.has("train.schedule"))
      draft.hint(
          "train.schedule", "cosine",
          "the file has no scheduler; give train.schedule, train.warmup and train.steps of your script");
    return;
  }
  if (*name == "WarmupLR") {
    draft.set("train.schedule", "constant");
  } else if (*name == "WarmupDecayLR") {
    draft.set("train.schedule", "linear");
    draft.set("train.min_lr", 0);
  } else if (*name == "WarmupCosineLR") {
    draft.set("train.schedule", "cosine");
    draft.set("train.min_lr", source.number("scheduler.params.cos_min_ratio").value_or(1e-4));
  } else {
    return draft.lost(source.full("scheduler.type"), *name,
                      "train.schedule is that of docs/config.md, after train.warmup steps");
  }
  if (!tell_auto(source, "scheduler.params.warmup_num_steps", "train.warmup", draft))
    draft.set("train.warmup", source.whole("scheduler.params.warmup_num_steps").value_or(1000));
  tell_auto(source, "scheduler.params.warmup_max_lr", "train.lr", draft);
  tell_auto(source, "scheduler.params.total_num_steps", "train.steps", draft);
  const auto lr = source.number("scheduler.params.warmup_max_lr");
  if (lr) draft.set("train.lr", *as_number(*lr));
  if (const auto low = source.number("scheduler.params.warmup_min_lr"); low && *low > 0) {
    if (lr && *lr > 0) {
      draft.set("train.start_lr", *as_number(*low / *lr));
    } else {
      draft.hint("train.start_lr", "0", "warmup_min_lr is a rate; here it is a fraction of train.lr");
    }
  }
  if (const auto steps = source.whole("scheduler.params.total_num_steps")) draft.set("train.steps", *steps);
  if (source.text("scheduler.params.warmup_type").value_or("log") == "log")
    draft.lost(source.full("scheduler.params.warmup_type"), "log",
               "DeepSpeed's default; warm-up here is linear");
}

}  // namespace

bool is_deepspeed(const Value& root) {
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization"}) {
    if (root.contains(key)) return true;
  }
  return (root.contains("fp16") && root["fp16"].is_object()) ||
         (root.contains("bf16") && root["bf16"].is_object());
}

void convert_deepspeed(const Source& source, Draft& draft, Sizes& sizes) {
  apply_rules(source, kRules, draft);
  read_zero(source, draft);
  read_precision(source, draft);
  read_optimizer(source, draft);
  read_scheduler(source, draft);
  if (source.root().contains("activation_checkpointing") && !draft.has("memory.recompute"))
    draft.assumed("memory.recompute", "full",
                  "the file sets how activations are checkpointed; none if the model never asked for it");
  if (const auto batch = source.whole("train_batch_size")) sizes.batch = batch;
  if (const auto micro = source.whole("train_micro_batch_size_per_gpu")) sizes.micro_batch = micro;
  if (const auto passes = source.whole("gradient_accumulation_steps")) sizes.accumulation = passes;
}

void convert_named_deepspeed(const Source& source, std::string_view key, Draft& draft, Sizes& sizes) {
  const Value* named = source.find(key);
  if (named == nullptr || says_nothing(*named)) return;
  if (named->is_object())
    return convert_deepspeed(Source(source.file(), *named, source.full(key)), draft, sizes);
  const std::filesystem::path name(source.text(key).value_or(""));
  for (const std::filesystem::path& path :
       {std::filesystem::path(source.file()).parent_path() / name, name}) {
    if (!is_there(path)) continue;
    const Value root = read_document(path);
    return convert_deepspeed(Source(path.string(), root), draft, sizes);
  }
  draft.set("parallel.strategy", "ddp");
  draft.lost(source.full(key), *named, "no such file here; put it beside this one and convert again");
}

}  // namespace tandem::convert
