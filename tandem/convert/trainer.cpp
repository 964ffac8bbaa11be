#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/convert/formats.h"
#include "tandem/convert/optimizer.h"
#include "tandem/convert/rules.h"

namespace tandem::convert {
namespace {

constexpr std::string_view kEveryStep = "metrics.jsonl has every step";
constexpr std::string_view kCompiled = "every step is compiled, its kernels are Tandem's own";
constexpr std::string_view kHub = "use tandem export, and the hub's own tools";
constexpr std::string_view kData = "make shards with tandem prepare --out DIR FILES and set data.train";
constexpr std::string_view kLoader = "token shards are memory-mapped; data.workers and data.prefetch";
constexpr std::string_view kDdp = "communication is planned when the step is compiled";
constexpr std::string_view kSum = "losses are summed over all tokens of all ranks";
constexpr std::string_view kLoss = "evaluation gives the loss; Tandem has no other metric for text";

constexpr Rule kRules[] = {
    read("per_device_train_batch_size"),
    read("gradient_accumulation_steps"),
    read("max_steps"),
    read("num_train_epochs"),
    same("learning_rate", "train.lr", "5e-05"),
    same("weight_decay", "train.weight_decay", "0"),
    same("max_grad_norm", "train.clip", "1"),
    same("seed", "train.seed", "42"),
    same("ddp_timeout", "parallel.timeout"),
    same("max_seq_length", "model.context"),
    same("max_length", "model.context"),
    same("block_size", "model.context"),
    read("optim"),
    read("adam_beta1"),
    read("adam_beta2"),
    read("adam_epsilon"),
    read("lr_scheduler_type"),
    read("lr_scheduler_kwargs.min_lr"),
    read("lr_scheduler_kwargs.min_lr_rate"),
    read("lr_scheduler_kwargs.min_lr_ratio"),
    read("lr_scheduler_kwargs.num_decay_steps"),
    read("lr_scheduler_kwargs.decay_type"),
    lost("lr_scheduler_kwargs", "train.schedule has no such number"),
    read("warmup_steps"),
    read("warmup_ratio"),
    read("bf16"),
    read("fp16"),
    read("use_cpu"),
    read("no_cuda"),
    read("gradient_checkpointing"),
    read("save_strategy"),
    read("save_steps"),
    read("save_total_limit"),
    read("eval_strategy"),
    read("evaluation_strategy"),
    read("eval_steps"),
    read("logging_steps"),
    read("output_dir"),
    read("run_name"),
    read("report_to"),
    read("fsdp"),
    read("fsdp_config"),
    read("deepspeed"),
    read("dataloader_num_workers"),
    read("model_name_or_path"),
    read("do_train"),
    read("do_eval"),
    lost("optim_args", "Tandem's optimizers have no such number"),
    lost("optim_target_modules", "the optimizer trains every parameter"),
    same("label_smoothing_factor", "train.label_smoothing"),
    lost("neftune_noise_alpha", "embeddings get no noise"),
    lost("average_tokens_across_devices", kSum, "true"),
    lost("tf32", "fp32 products are exact on a CPU; on a GPU precision: bf16 is faster"),
    lost("fp16_opt_level", "precision: fp16 is mixed, with fp32 masters", "\"O1\""),
    lost("half_precision_backend", kCompiled, "\"auto\""),
    lost("bf16_full_eval", "evaluation runs in the precision of training"),
    lost("fp16_full_eval", "evaluation runs in the precision of training"),
    lost("gradient_checkpointing_kwargs",
         "memory.recompute: full, every:K, selective, all_but_attention or auto"),
    lost("torch_compile", kCompiled),
    lost("torch_compile_backend", kCompiled),
    lost("torch_compile_mode", kCompiled),
    lost("use_liger_kernel", kCompiled),
    lost("liger_kernel_config", kCompiled),
    lost("attn_implementation", kCompiled),
    lost("torch_empty_cache_steps", "arenas are allocated once, as planned"),
    lost("auto_find_batch_size", "tandem plan says what fits before the run"),
    lost("logging_strategy", kEveryStep, "\"steps\""),
    lost("logging_first_step", kEveryStep),
    lost("logging_dir", "the run directory is runs/<name>"),
    lost("logging_nan_inf_filter", "a run without a finite loss ends, and says which checkpoint was good",
         "true"),
    lost("log_level", "messages are the same always", "\"passive\""),
    lost("log_level_replica", "messages are the same always", "\"warning\""),
    lost("log_on_each_node", "rank 0 writes metrics", "true"),
    lost("disable_tqdm", "progress is one line, on a terminal only"),
    lost("include_num_input_tokens_seen", "metrics.jsonl has tokens"),
    lost("include_tokens_per_second", "metrics.jsonl has tokens_per_s"),
    lost("project", "metrics stay in the run directory", "\"huggingface\""),
    lost("trackio_space_id", "metrics stay in the run directory", "\"trackio\""),
    lost("eval_delay", "evaluations come every train.eval_every steps", "0"),
    lost("per_device_eval_batch_size", "evaluation takes train.micro_batch; data.eval_samples says how many",
         "8"),
    same("eval_on_start", "train.eval_at_start"),
    same("early_stopping_patience", "train.patience"),
    same("early_stopping_threshold", "train.min_delta"),
    lost("eval_accumulation_steps", kLoss),
    lost("eval_do_concat_batches", kLoss, "true"),
    lost("eval_use_gather_object", kLoss),
    lost("prediction_loss_only", kLoss),
    lost("include_for_metrics", kLoss),
    lost("batch_eval_metrics", kLoss),
    lost("save_only_model", "checkpoints always resume; tandem export writes the model alone"),
    lost("save_on_each_node", "every rank writes its part of a checkpoint"),
    lost("save_safetensors", "tandem export writes safetensors", "true"),
    lost("enable_jit_checkpoint", "SIGTERM saves a checkpoint and ends with 75, always"),
    lost("push_to_hub", kHub),
    lost("hub_token", kHub, "\"<HUB_TOKEN>\""),
    lost("hub_model_id", kHub),
    lost("hub_private_repo", kHub),
    lost("hub_strategy", kHub, "\"every_save\""),
    lost("hub_always_push", kHub),
    lost("hub_revision", kHub),
    lost("push_to_hub_token", kHub, "\"<PUSH_TO_HUB_TOKEN>\""),
    lost("push_to_hub_model_id", kHub),
    lost("push_to_hub_organization", kHub),
    read("load_best_model_at_end"),
    read("metric_for_best_model"),
    read("greater_is_better"),
    lost("ignore_data_skip", "a resume goes on at the data's exact position"),
    lost("resume_from_checkpoint", "give it to tandem train: --resume-from-checkpoint"),
    lost("full_determinism", "runs are the same bit for bit always"),
    lost("data_seed", "train.seed is for weights and the data's order"),
    lost("accelerator_config.even_batches", kLoader, "true"),
    lost("accelerator_config.use_seedable_sampler", "the order follows from train.seed", "true"),
    lost("accelerator_config", "set the keys of docs/config.md"),
    lost("parallelism_config", "set parallel.data, parallel.tensor and parallel.pipeline"),
    lost("dataloader_drop_last", "sequences are cut from one stream: none is incomplete"),
    lost("dataloader_pin_memory", kLoader, "true"),
    lost("dataloader_persistent_workers", kLoader),
    lost("dataloader_prefetch_factor", kLoader),
    lost("remove_unused_columns", kData, "true"),
    lost("label_names", kData),
    lost("group_by_length", "sequences all have model.context tokens"),
    lost("train_sampling_strategy", "sequences are drawn in an order of train.seed", "\"random\""),
    lost("length_column_name", kData, "\"length\""),
    lost("ddp_find_unused_parameters", kDdp),
    lost("ddp_bucket_cap_mb", kDdp),
    lost("ddp_broadcast_buffers", kDdp),
    lost("ddp_backend", "ranks talk by NCCL on GPUs, by shared memory and tcp on CPUs"),
    lost("debug", "overflows are events of the run"),
    lost("skip_memory_metrics", "tandem plan has the memory to the byte", "true"),
    lost("do_predict", "use tandem sample"),
    lost("past_index", "the model sees one sequence at a time", "-1"),
    read("local_rank"),
    lost("dataset_name", kData),
    lost("dataset_config_name", kData),
    lost("train_file", kData),
    lost("validation_file", "make shards of it too and set data.eval"),
};

struct Schedule {
  std::string_view theirs, ours;
  bool exact;  // else the nearest
};
constexpr Schedule kSchedules[] = {
    {"linear", "linear", true},
    {"cosine", "cosine", true},
    {"constant", "constant", true},
    {"constant_with_warmup", "constant", true},
    {"cosine_with_min_lr", "cosine", true},
    {"polynomial", "linear", false},
    {"cosine_with_restarts", "cosine", false},
    {"cosine_warmup_with_min_lr", "cosine", false},
    {"inverse_sqrt", "inverse_sqrt", true},
    {"warmup_stable_decay", "wsd", true},
    {"reduce_lr_on_plateau", "constant", false},
};

void read_schedule(const Source& source, Draft& draft) {
  const std::string name = source.text("lr_scheduler_type").value_or("linear");
  const auto found = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                  [&](const Schedule& s) { return s.theirs == name; });
  const std::string_view ours = found == std::end(kSchedules) ? "cosine" : found->ours;
  draft.set("train.schedule", std::string(ours));
  if (found == std::end(kSchedules) || !found->exact)
    draft.lost(source.full("lr_scheduler_type"), name,
               fmt::format("{} is the nearest that train.schedule has", ours));
  if (ours == "inverse_sqrt") return;
  double end = source.number("lr_scheduler_kwargs.min_lr_rate").value_or(0);
  const double lr = source.number("learning_rate").value_or(5e-5);
  if (const auto least = source.number("lr_scheduler_kwargs.min_lr"); least && lr > 0) end = *least / lr;
  if (ours == "wsd") {
    end = source.number("lr_scheduler_kwargs.min_lr_ratio").value_or(0);
    if (const auto steps = source.whole("lr_scheduler_kwargs.num_decay_steps"))
      draft.set("train.decay_steps", *steps);
    const std::string shape = source.text("lr_scheduler_kwargs.decay_type").value_or("cosine");
    draft.set("train.decay_shape", shape == "1-sqrt" ? "sqrt" : shape);
  }
  if (ours != "constant") draft.set("train.min_lr", *as_number(end));
}

// A number of steps, or below 1 a share of all of them; nothing where it is not known of how many.
std::optional<int64_t> steps_of(double given, std::optional<int64_t> steps) {
  if (given <= 0) return 0;
  if (given >= 1) return std::llround(given);
  if (!steps) return std::nullopt;
  return static_cast<int64_t>(std::ceil(given * static_cast<double>(*steps)));
}

std::optional<int64_t> read_duration(const Source& source, Draft& draft) {
  const int64_t most = source.whole("max_steps").value_or(-1);
  std::optional<int64_t> steps;
  if (most > 0) steps = most;
  if (steps) {
    draft.set("train.steps", *steps);
  } else {
    const double epochs = source.number("num_train_epochs").value_or(3);
    draft.set("train.epochs", *as_number(epochs));
  }
  const double ratio = source.number("warmup_ratio").value_or(0),
               given = source.number("warmup_steps").value_or(0);
  const double warmup = given > 0 ? given : ratio;
  if (const auto whole = steps_of(warmup, steps)) {
    draft.set("train.warmup", *whole);
  } else {
    draft.hint("train.warmup", fmt::format("{} * steps", warmup),
               "warm-up counts steps; it is that share of train.steps");
  }
  return steps;
}

void read_intervals(const Source& source, std::optional<int64_t> steps, Draft& draft) {
  const std::string save = source.text("save_strategy").value_or("steps");
  if (save == "no") {
    draft.set("checkpoint.every", 0);
  } else if (save == "steps") {
    const auto every = steps_of(source.number("save_steps").value_or(500), steps);
    if (every) draft.set("checkpoint.every", *every);
    if (!every)
      draft.hint("checkpoint.every", "100", "save_steps is a share of all steps; give their number");
  } else {
    draft.lost("save_strategy", save, "checkpoint.every counts steps; it stays 100");
  }
  draft.set("checkpoint.keep", source.whole("save_total_limit").value_or(0));
  const char* key = source.find("eval_strategy") != nullptr ? "eval_strategy" : "evaluation_strategy";
  const std::string evaluate = source.text(key).value_or("no");
  if (evaluate == "steps") {
    const double every = source.number("eval_steps").value_or(source.number("logging_steps").value_or(500));
    const auto whole = steps_of(every, steps);
    if (whole) draft.set("train.eval_every", *whole);
    if (!whole) draft.hint("train.eval_every", "50", "eval_steps is a share of all steps; give their number");
  } else {
    draft.set("train.eval_every", 0);
    if (evaluate != "no") draft.lost(key, evaluate, "train.eval_every counts steps; 0 is never");
  }
}

// The checkpoint that it would load at the end is kept, and called `best`.
void read_best(const Source& source, Draft& draft) {
  if (!source.is_on("load_best_model_at_end")) return;
  const std::string metric = source.text("metric_for_best_model").value_or("loss");
  const Value* every = draft.get("train.eval_every");
  if ((metric != "loss" && metric != "eval_loss") || source.is_on("greater_is_better")) {
    draft.lost("metric_for_best_model", metric, "checkpoint.best is found by eval_loss, the lowest");
  } else if (every != nullptr && *every == 0) {
    draft.lost("load_best_model_at_end", true,
               "checkpoint.best is found by evaluations; set train.eval_every");
  } else {
    draft.set("checkpoint.best", "eval_loss");
  }
}

void read_optimizer(const Source& source, Draft& draft) {
  const OptimizerKind optimizer = set_optimizer("optim", source.text("optim").value_or("adamw_torch"), draft);
  set_hyper(optimizer, "train.beta1", source.number("adam_beta1").value_or(0.9), draft);
  set_hyper(optimizer, "train.beta2", source.number("adam_beta2").value_or(0.999), draft);
  set_hyper(optimizer, "train.eps", source.number("adam_epsilon").value_or(1e-8), draft);
  set_hyper(optimizer, "train.momentum", 0, draft);
}

std::string run_name(const Source& source) {
  const std::string given = source.text("run_name").value_or("");
  std::filesystem::path path = given.empty() ? source.text("output_dir").value_or("") : given;
  if (!path.has_filename()) path = path.parent_path();
  return as_run_name(path.filename().string());
}

void read_fsdp(const Source& source, Draft& draft) {
  const Value* given = source.find("fsdp");
  if (given == nullptr || says_nothing(*given)) return;
  std::string words = given->is_array() ? "" : source.text("fsdp").value_or("");
  if (given->is_array()) {
    for (const Value& word : *given)
      words += " " + (word.is_string() ? word.get<std::string>() : text_of(word));
  }
  bool offload = false;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find_first_of(" ,", at), words.size());
    const std::string word = words.substr(at, end - at);
    at = end + 1;
    offload |= word == "offload";
    if (!word.empty() && word != "offload" && word != "auto_wrap") set_fsdp_strategy("fsdp", word, draft);
  }
  read_fsdp_config(source, draft);
  if (offload) set_fsdp_offload("fsdp", draft);
}

void read_reports(const Source& source, Draft& draft) {
  const Value* reports = source.find("report_to");
  if (reports == nullptr || says_nothing(*reports) || *reports == Value::array({"none"})) return;
  draft.lost(
      "report_to", *reports,
      "metrics.jsonl and metrics.csv are written; set log.tensorboard, log.wandb or log.comet for more");
}

}  // namespace

void set_model_directory(const std::string& key, const std::string& name, const Source& source,
                         Draft& draft) {
  for (const std::filesystem::path& path :
       {std::filesystem::path(name), std::filesystem::path(source.file()).parent_path() / name}) {
    if (is_there(path / "config.json")) return draft.set("model.from", path.string());
  }
  draft.hint("model.from", "DIR",
             fmt::format("{} = {} is no directory with a config.json here; download it and give its place",
                         key, text_of(name)));
}

bool is_trainer(const Value& root) {
  for (const char* key : {"per_device_train_batch_size", "num_train_epochs", "learning_rate",
                          "lr_scheduler_type", "output_dir"}) {
    if (root.contains(key)) return true;
  }
  return false;
}

void convert_trainer(const Source& source, Draft& draft, Sizes& sizes) {
  apply_rules(source, kRules, draft);
  if (const std::string name = run_name(source); !name.empty()) draft.set("name", name);
  read_optimizer(source, draft);
  read_schedule(source, draft);
  read_intervals(source, read_duration(source, draft), draft);
  read_best(source, draft);
  if (source.is_on("bf16") && source.is_on("fp16"))
    throw ConfigError("{}: bf16 and fp16 are both true; turn one off", source.file());
  if (source.is_on("bf16")) draft.set("precision", "bf16");
  if (source.is_on("fp16")) draft.set("precision", "fp16");
  if (source.is_on("use_cpu") || source.is_on("no_cuda")) draft.set("device", "cpu");
  if (source.is_on("gradient_checkpointing")) draft.set("memory.recompute", "full");
  if (const auto workers = source.whole("dataloader_num_workers"); workers && *workers > 0)
    draft.set("data.workers", *workers);
  if (const auto model = source.text("model_name_or_path"))
    set_model_directory("model_name_or_path", *model, source, draft);
  read_reports(source, draft);
  read_fsdp(source, draft);
  sizes.micro_batch = source.whole("per_device_train_batch_size").value_or(8);
  sizes.accumulation = source.whole("gradient_accumulation_steps").value_or(1);
  if (const Value* precision = draft.get("precision"); precision == nullptr) draft.set("precision", "fp32");
  convert_named_deepspeed(source, "deepspeed", draft, sizes);
}

}  // namespace tandem::convert
