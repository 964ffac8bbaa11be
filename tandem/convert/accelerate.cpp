#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/convert/formats.h"
#include "tandem/convert/rules.h"

namespace tandem::convert {
namespace {

constexpr std::string_view kUnits = "each block is a unit of its own, whatever its class";
constexpr std::string_view kPlanned = "gathers run one block ahead, as the compiled step says";
constexpr std::string_view kSaving = "every rank writes its part, and any mesh reads any checkpoint";
constexpr std::string_view kLaunch = "give it to tandem launch: docs/launch.md";
constexpr std::string_view kLoading = "each rank reads only its own pieces";

// Keys of fsdp_config are here without their "fsdp_", which files may leave out.
constexpr Rule kFsdpRules[] = {
    read("version"),
    read("sharding_strategy"),
    read("reshard_after_forward"),
    read("offload_params"),
    read("activation_checkpointing"),
    lost("auto_wrap_policy", kUnits, "\"TRANSFORMER_BASED_WRAP\""),
    lost("transformer_layer_cls_to_wrap", kUnits),
    lost("min_num_params", kUnits, "0"),
    lost("backward_prefetch", kPlanned, "\"BACKWARD_PRE\""),
    lost("backward_prefetch_policy", kPlanned, "\"BACKWARD_PRE\""),
    lost("forward_prefetch", kPlanned),
    lost("state_dict_type", kSaving, "\"SHARDED_STATE_DICT\""),
    lost("use_orig_params", "parameters keep their names", "true"),
    lost("sync_module_states", kLoading, "true"),
    lost("cpu_ram_efficient_loading", kLoading, "true"),
    lost("ignored_modules", "every parameter is sharded"),
};

constexpr Rule kDeepspeedRules[] = {
    read("zero_stage"),
    read("deepspeed_config_file"),
    read("gradient_accumulation_steps"),
    read("gradient_clipping"),
    read("offload_optimizer_device"),
    read("offload_param_device"),
    lost("zero3_init_flag", kLoading),
    lost("zero3_save_16bit_model", "tandem export writes whole weights of any mesh"),
    lost("deepspeed_multinode_launcher", kLaunch, "\"standard\""),
    lost("deepspeed_hostfile", kLaunch),
    lost("offload_optimizer_nvme_path", "nothing is offloaded to disks"),
    lost("offload_param_nvme_path", "nothing is offloaded to disks"),
};

constexpr Rule kRules[] = {
    read("distributed_type"),
    read("mixed_precision"),
    read("num_processes"),
    read("use_cpu"),
    read("gradient_accumulation_steps"),
    same("gradient_clipping", "train.clip"),
    read("fsdp_config"),
    read("deepspeed_config"),
    read("parallelism_config.parallelism_config_dp_replicate_size"),
    read("parallelism_config.parallelism_config_dp_shard_size"),
    read("parallelism_config.parallelism_config_tp_size"),
    lost("parallelism_config.parallelism_config_cp_size",
         "a sequence is not split over ranks except by the tensor axis", "1"),
    lost("parallelism_config.parallelism_config_sp_size",
         "a sequence is not split over ranks except by the tensor axis", "1"),
    lost("parallelism_config", "the mesh is parallel.data * parallel.tensor * parallel.pipeline"),
    lost("fp8_config", "scales are made of the largest value seen; precision: fp8 has no other setting"),
    lost("compute_environment", "tandem launch starts ranks on machines that are there", "\"LOCAL_MACHINE\""),
    lost("num_machines", "give it to tandem launch: --nnodes", "1"),
    lost("machine_rank", kLaunch, "0"),
    lost("main_process_ip", kLaunch),
    lost("main_process_port", kLaunch),
    lost("rdzv_backend", kLaunch, "\"static\""),
    lost("rdzv_conf", kLaunch),
    lost("same_network", kLaunch, "true"),
    lost("gpu_ids", "set CUDA_VISIBLE_DEVICES", "\"all\""),
    lost("main_training_function", "there is no script: tandem train is the program", "\"main\""),
    lost("dynamo_config", "every step is compiled"),
    lost("megatron_lm_config", "set parallel.tensor, parallel.pipeline and memory.recompute"),
    lost("mpirun_config", "ranks understand Open MPI's variables; docs/launch.md"),
    lost("ipex_config", "the CPU's kernels use what the CPU has"),
    lost("tpu_name", "there are CPUs and NVIDIA GPUs"),
    lost("tpu_zone", "there are CPUs and NVIDIA GPUs"),
    lost("downcast_bf16", "there are CPUs and NVIDIA GPUs"),
    lost("enable_cpu_affinity", "use numactl around tandem"),
    lost("debug", "collectives always have a label and a timeout"),
};

// The same table whose keys all begin without `prefix`.
Value without_prefix(const Value& table, std::string_view prefix) {
  Value out = Value::object();
  for (const auto& [key, value] : table.items())
    out[key.starts_with(prefix) ? key.substr(prefix.size()) : key] = value;
  return out;
}

// A table of DeepSpeed's own keys, made of accelerate's names for some of them.
void read_deepspeed(const Source& source, Draft& draft, Sizes& sizes) {
  const Value* given = source.find("deepspeed_config");
  const Value table = given != nullptr && given->is_object() ? *given : Value::object();
  const Source own(source.file(), table, source.full("deepspeed_config"));
  apply_rules(own, kDeepspeedRules, draft);
  if (own.find("deepspeed_config_file") != nullptr)
    return convert_named_deepspeed(own, "deepspeed_config_file", draft, sizes);
  Value zero = {{"stage", own.whole("zero_stage").value_or(2)}};
  zero["offload_optimizer"] = {{"device", own.text("offload_optimizer_device").value_or("none")}};
  zero["offload_param"] = {{"device", own.text("offload_param_device").value_or("none")}};
  Value root = {{"zero_optimization", zero}};
  if (const auto clip = own.number("gradient_clipping")) root["gradient_clipping"] = *clip;
  if (const auto passes = own.whole("gradient_accumulation_steps"))
    root["gradient_accumulation_steps"] = *passes;
  convert_deepspeed(Source(source.file(), root, source.full("deepspeed_config")), draft, sizes);
}

void read_mesh(const Source& source, Draft& draft, Sizes& sizes) {
  const auto size = [&](const char* name) {
    return source.whole(fmt::format("parallelism_config.parallelism_config_{}_size", name)).value_or(1);
  };
  if (!sizes.ranks) {
    if (const auto ranks = source.whole("num_processes"); ranks && *ranks > 0) sizes.ranks = ranks;
  }
  sizes.tensor = size("tp");
  if (size("dp_replicate") > 1 && size("dp_shard") > 1)
    draft.lost("parallelism_config.parallelism_config_dp_replicate_size", size("dp_replicate"),
               "fsdp shards over the whole data axis, replicas and shards together");
}

}  // namespace

void set_fsdp_strategy(const std::string& key, const std::string& word, Draft& draft) {
  std::string name;
  for (const char c : word) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const bool hybrid = name.starts_with("HYBRID_SHARD") || name == "4" || name == "5";
  if (name == "FULL_SHARD" || name == "1" || name == "YES" || name == "TRUE" || name == "HYBRID_SHARD" ||
      name == "4") {
    draft.set("parallel.strategy", "fsdp");
  } else if (name == "SHARD_GRAD_OP" || name == "2" || name == "NO" || name == "FALSE" ||
             name == "HYBRID_SHARD_ZERO2" || name == "5") {
    draft.set("parallel.strategy", "zero2");
  } else if (name == "NO_SHARD" || name == "3") {
    draft.set("parallel.strategy", "ddp");
  } else {
    draft.set("parallel.strategy", "fsdp");
    draft.lost(key, word, "no strategy of FSDP that is known here; fsdp is taken");
  }
  if (hybrid)
    draft.lost(key, word, "shards lie on the whole data axis, not within a node; the results are the same");
}

void set_fsdp_offload(const std::string& key, Draft& draft) {
  if (*draft.get("parallel.strategy") == "fsdp")
    return draft.set("memory.offload", Value::array({"params", "optimizer"}));
  draft.lost(key, true, "only fsdp offloads parameters; the optimizer's states are");
  draft.set("memory.offload", Value::array({"optimizer"}));
}

void read_fsdp_config(const Source& source, Draft& draft) {
  const Value* given = source.find("fsdp_config");
  const Value table =
      given != nullptr && given->is_object() ? without_prefix(*given, "fsdp_") : Value::object();
  const Source fsdp(source.file(), table, source.full("fsdp_config"));
  apply_rules(fsdp, kFsdpRules, draft);
  const char* key = fsdp.find("sharding_strategy") != nullptr ? "sharding_strategy" : "reshard_after_forward";
  if (fsdp.find(key) != nullptr || !draft.has("parallel.strategy"))
    set_fsdp_strategy(fsdp.full(key), fsdp.text(key).value_or("yes"), draft);
  if (fsdp.is_on("offload_params")) set_fsdp_offload(fsdp.full("offload_params"), draft);
  if (fsdp.is_on("activation_checkpointing")) draft.set("memory.recompute", "full");
}

bool is_accelerate(const Value& root) {
  return root.contains("distributed_type") || root.contains("compute_environment");
}

void convert_accelerate(const Source& source, Draft& draft, Sizes& sizes) {
  apply_rules(source, kRules, draft);
  const std::string precision = source.text("mixed_precision").value_or("no");
  if (precision == "bf16" || precision == "fp16" || precision == "fp8") {
    draft.set("precision", precision);
  } else if (precision != "no") {
    draft.lost("mixed_precision", precision, "precision is fp32, bf16, fp16 or fp8");
  }
  if (source.is_on("use_cpu")) draft.set("device", "cpu");
  sizes.accumulation = source.whole("gradient_accumulation_steps");
  read_mesh(source, draft, sizes);
  const std::string type = source.text("distributed_type").value_or("NO");
  if (type == "FSDP") {
    read_fsdp_config(source, draft);
  } else if (type == "DEEPSPEED") {
    read_deepspeed(source, draft, sizes);
  } else if (type == "MULTI_GPU" || type == "MULTI_CPU") {
    draft.set("parallel.strategy", "ddp");
    if (type == "MULTI_CPU") draft.set("device", "cpu");
  } else if (type != "NO" && type != "no") {
    draft.set("parallel.strategy", "ddp");
    draft.lost("distributed_type", type, "ddp is taken; docs/strategies.md has the choices");
  }
  if (!draft.has("train.lr") && type != "DEEPSPEED")
    draft.hint("train.lr", "0.001",
               "the file is about how ranks share the work; give train.lr, train.schedule, train.steps of "
               "your script");
}

}  // namespace tandem::convert
