#include "tandem/config/other_names.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

namespace tandem {
namespace {

struct OtherName {
  std::string_view name;  // lower case, without - and _
  std::string_view ours;
};

constexpr OtherName kKeys[] = {
    {"learningrate", "train.lr"},
    {"maxlr", "train.lr"},
    {"batchsize", "train.batch"},
    {"globalbatchsize", "train.batch"},
    {"trainbatchsize", "train.batch"},
    {"microbatchsize", "train.micro_batch"},
    {"perdevicetrainbatchsize", "train.micro_batch"},
    {"perdevicebatchsize", "train.micro_batch"},
    {"gradientaccumulation", "train.micro_batch"},
    {"gradientaccumulationsteps", "train.micro_batch"},
    {"gradaccum", "train.micro_batch"},
    {"gradaccumsteps", "train.micro_batch"},
    {"maxsteps", "train.steps"},
    {"maxiters", "train.steps"},
    {"numsteps", "train.steps"},
    {"iterations", "train.steps"},
    {"iters", "train.steps"},
    {"epochs", "train.epochs"},
    {"epoch", "train.epochs"},
    {"numepochs", "train.epochs"},
    {"maxepochs", "train.epochs"},
    {"numtrainepochs", "train.epochs"},
    {"traintokens", "train.tokens"},
    {"maxtokens", "train.tokens"},
    {"rampupbatchsize", "train.batch_ramp"},
    {"batchsizewarmup", "train.batch_ramp"},
    {"warmupsteps", "train.warmup"},
    {"warmupiters", "train.warmup"},
    {"gradclip", "train.clip"},
    {"clipgrad", "train.clip"},
    {"maxgradnorm", "train.clip"},
    {"labelsmoothingfactor", "train.label_smoothing"},
    {"zlossweight", "train.z_loss"},
    {"gradientclipval", "train.clip"},
    {"gradientclipping", "train.clip"},
    {"wd", "train.weight_decay"},
    {"decay", "train.weight_decay"},
    {"betas", "train.beta1"},
    {"optim", "train.optimizer"},
    {"optimiser", "train.optimizer"},
    {"scheduler", "train.schedule"},
    {"lrscheduler", "train.schedule"},
    {"lrschedulertype", "train.schedule"},
    {"randomseed", "train.seed"},
    {"evalinterval", "train.eval_every"},
    {"evalsteps", "train.eval_every"},
    {"valinterval", "train.eval_every"},
    {"evalonstart", "train.eval_at_start"},
    {"earlystoppingpatience", "train.patience"},
    {"earlystopping", "train.patience"},
    {"earlystoppingthreshold", "train.min_delta"},
    {"hiddensize", "model.width"},
    {"hiddendim", "model.width"},
    {"dmodel", "model.width"},
    {"nembd", "model.width"},
    {"embeddim", "model.width"},
    {"dim", "model.width"},
    {"numlayers", "model.layers"},
    {"nlayer", "model.layers"},
    {"nlayers", "model.layers"},
    {"numhiddenlayers", "model.layers"},
    {"depth", "model.layers"},
    {"numheads", "model.heads"},
    {"nhead", "model.heads"},
    {"nheads", "model.heads"},
    {"numattentionheads", "model.heads"},
    {"numkeyvalueheads", "model.kv_heads"},
    {"numkvheads", "model.kv_heads"},
    {"nkvheads", "model.kv_heads"},
    {"seqlen", "model.context"},
    {"seqlength", "model.context"},
    {"sequencelength", "model.context"},
    {"maxseqlen", "model.context"},
    {"maxlength", "model.context"},
    {"contextlength", "model.context"},
    {"blocksize", "model.context"},
    {"maxpositionembeddings", "model.context"},
    {"npositions", "model.context"},
    {"nctx", "model.context"},
    {"vocabsize", "model.vocab"},
    {"intermediatesize", "model.ffn"},
    {"dff", "model.ffn"},
    {"ffndim", "model.ffn"},
    {"ffnhiddensize", "model.ffn"},
    {"rmsnormeps", "model.norm_eps"},
    {"layernormepsilon", "model.norm_eps"},
    {"tiewordembeddings", "model.tied"},
    {"numclasses", "model.classes"},
    {"arch", "model.family"},
    {"architecture", "model.family"},
    {"modeltype", "model.family"},
    {"dtype", "precision"},
    {"torchdtype", "precision"},
    {"mixedprecision", "precision"},
    {"amp", "precision"},
    {"bf16", "precision"},
    {"fp16", "precision"},
    {"fp8", "precision"},
    {"dataset", "data.train"},
    {"datasetname", "data.train"},
    {"datapath", "data.train"},
    {"datadir", "data.train"},
    {"traindata", "data.train"},
    {"trainfile", "data.train"},
    {"evaldata", "data.eval"},
    {"valdata", "data.eval"},
    {"validationfile", "data.eval"},
    {"numworkers", "data.workers"},
    {"dataloadernumworkers", "data.workers"},
    {"saveevery", "checkpoint.every"},
    {"saveinterval", "checkpoint.every"},
    {"savesteps", "checkpoint.every"},
    {"checkpointinterval", "checkpoint.every"},
    {"savetotallimit", "checkpoint.keep"},
    {"loadbestmodelatend", "checkpoint.best"},
    {"metricforbestmodel", "checkpoint.best"},
    {"savetopk", "checkpoint.best"},
    {"gradientcheckpointing", "memory.recompute"},
    {"activationcheckpointing", "memory.recompute"},
    {"cpuoffload", "memory.offload"},
    {"tp", "parallel.tensor"},
    {"tpsize", "parallel.tensor"},
    {"tensorparallel", "parallel.tensor"},
    {"tensorparallelsize", "parallel.tensor"},
    {"pp", "parallel.pipeline"},
    {"ppsize", "parallel.pipeline"},
    {"pipelineparallel", "parallel.pipeline"},
    {"pipelineparallelsize", "parallel.pipeline"},
    {"dp", "parallel.data"},
    {"dpsize", "parallel.data"},
    {"dataparallel", "parallel.data"},
    {"gpus", "parallel.data"},
    {"numgpus", "parallel.data"},
    {"runname", "name"},
    {"numthreads", "threads"},
};

constexpr OtherName kValues[] = {
    {"float32", "fp32"},
    {"float", "fp32"},
    {"f32", "fp32"},
    {"tf32", "fp32"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"f16", "fp16"},
    {"16mixed", "fp16"},
    {"bfloat16", "bf16"},
    {"bf16mixed", "bf16"},
    {"float8", "fp8"},
    {"e4m3", "fp8"},
    {"gpu", "cuda"},
    {"cuda:0", "cuda"},
    {"nvidia", "cuda"},
    {"gpt", "gpt2"},
    {"gptneox", "gpt2"},
    {"transformer", "gpt2"},
    {"mistral", "llama"},
    {"qwen", "llama"},
    {"qwen2", "llama"},
    {"cnn", "resnet"},
    {"adam", "adamw"},
    {"momentum", "sgd"},
    {"fullshard", "fsdp"},
    {"fsdp2", "fsdp"},
    {"shardgradop", "zero2"},
    {"deepspeed", "fsdp"},
    {"none", "single"},
    {"noshard", "ddp"},
    {"batchnorm", "batch"},
    {"groupnorm", "group"},
    {"syncbn", "sync"},
    {"syncbatchnorm", "sync"},
    {"cosineannealing", "cosine"},
    {"warmupstabledecay", "wsd"},
    {"onecycle", "one_cycle"},
    {"onecyclelr", "one_cycle"},
    {"steplr", "step"},
    {"inversesqrt", "inverse_sqrt"},
    {"constantwithwarmup", "constant"},
    {"parameters", "params"},
    {"weights", "params"},
};

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 64)) {
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

template <size_t kSize>
std::string_view look_up(const OtherName (&names)[kSize], std::string_view text) {
  const std::string word = folded(text);
  const auto found =
      std::find_if(std::begin(names), std::end(names), [&](const auto& n) { return n.name == word; });
  return found == std::end(names) ? std::string_view() : found->ours;
}

}  // namespace

std::string_view key_for_other_name(std::string_view name) {
  return look_up(kKeys, name.substr(name.rfind('.') + 1));
}

std::string_view value_for_other_name(std::string_view word) { return look_up(kValues, word); }

}  // namespace tandem
