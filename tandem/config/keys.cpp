#include "tandem/config/keys.h"

#include <algorithm>

#include "tandem/base/nearest.h"

namespace tandem {
namespace {

constexpr Limits any() { return {}; }
constexpr Limits at_least(double min) { return {.min = min, .max = kMaxCount}; }
constexpr Limits not_negative() { return {.min = 0}; }
constexpr Limits positive() { return {.min = 0, .above_min = true}; }
constexpr Limits fraction() { return {.min = 0, .max = 1}; }
constexpr Limits below_one() { return {.min = 0, .max = 1, .below_max = true}; }
constexpr Limits seconds() { return {.min = 0, .above_min = true, .in_fp32 = false}; }
constexpr Limits bytes() { return {.min = 0, .in_bytes = true}; }

template <typename... Families>
constexpr unsigned only(Families... families) {
  return ((1u << static_cast<unsigned>(families)) | ...);
}
constexpr unsigned kEveryFamily = ~0u;
constexpr unsigned kText = only(Family::Gpt2, Family::Llama);
constexpr unsigned kImages = only(Family::Resnet, Family::Mlp);
constexpr unsigned kLlama = only(Family::Llama);
constexpr unsigned kResnet = only(Family::Resnet);

template <typename Member>
Key make_key(std::string_view path, Member member, const Limits& limits, std::string_view doc,
             unsigned families = kEveryFamily) {
  static const Config kDefaults;
  return {.path = path,
          .doc = doc,
          .families = families,
          .limits = limits,
          .expects = expects(limits, member(kDefaults)),
          .write = [](Config& config, const RawValue& raw,
                      const Limits& range) { return decode(raw, range, Member{}(config)); },
          .read = [](const Config& config) { return encode(Member{}(config)); }};
}

// The path is spelled by the member itself, so the two cannot disagree.
#define KEY(member, ...) \
  make_key(              \
      #member, [](auto& config) -> auto& { return config.member; }, __VA_ARGS__)

std::vector<Key> make_keys() {
  const unsigned has_layers = kText | only(Family::Mlp);
  const unsigned has_norm = kText | kResnet;
  return {
      KEY(name, any(), "the run's name, and its directory under runs/"),
      KEY(device, any(), "where the step runs"),
      KEY(threads, at_least(0), "CPU threads a rank; 0 = all cores"),

      KEY(model.family, any(), "the architecture"),
      KEY(model.from, any(), "a Hugging Face directory to take the model from"),
      KEY(model.layers, at_least(1), "blocks; for mlp, hidden layers", has_layers),
      KEY(model.width, at_least(1), "features between blocks; for resnet, channels of the first stage"),
      KEY(model.heads, at_least(1), "attention heads; must divide width", kText),
      KEY(model.kv_heads, at_least(0), "key/value heads; must divide heads; 0 = heads", kLlama),
      KEY(model.context, at_least(1), "tokens in a sequence", kText),
      KEY(model.vocab, at_least(2), "tokens in the vocabulary", kText),
      KEY(model.ffn, at_least(0), "hidden width of the feed-forward part; 0 = derived from width", kText),
      KEY(model.rope_theta, positive(), "base of the rotary position angles", kLlama),
      KEY(model.norm_eps, positive(), "added to the variance in normalisation", has_norm),
      KEY(model.tied, any(), "embedding and output projection share one matrix", kText),
      KEY(model.qkv_bias, any(), "biases on the query, key and value projections", kLlama),
      KEY(model.image_size, at_least(1), "height and width of an image", kImages),
      KEY(model.channels, at_least(1), "channels of an image", kImages),
      KEY(model.classes, at_least(2), "labels to tell apart", kImages),
      KEY(model.blocks, at_least(1), "residual blocks of each stage; a stage halves the image", kResnet),
      KEY(model.norm, any(),
          "normalisation over a rank's batch, groups of channels, or every rank's batch (sync)", kResnet),
      KEY(model.groups, at_least(1), "groups of norm: group; must divide width", kResnet),

      KEY(data.train, any(), "training set: builtin:NAME, a text file or prepared shards"),
      KEY(data.eval, any(), "evaluation set"),
      KEY(data.tokenizer, any(), "how text becomes tokens", kText),
      KEY(data.workers, at_least(0), "threads that prepare batches"),
      KEY(data.prefetch, at_least(1), "batches prepared ahead"),
      KEY(data.eval_samples, at_least(1), "sequences or images in one evaluation"),

      KEY(train.steps, at_least(1), "optimizer steps in the run"),
      KEY(train.batch, at_least(1), "global batch in sequences or images"),
      KEY(train.micro_batch, at_least(1), "sequences or images a rank takes in one pass"),
      KEY(train.optimizer, any(), "update rule"),
      KEY(train.lr, not_negative(), "peak learning rate"),
      KEY(train.min_lr, fraction(), "where the schedule ends, as a fraction of lr"),
      KEY(train.schedule, any(), "how the learning rate falls after warm-up"),
      KEY(train.warmup, at_least(0), "steps over which the learning rate rises to lr"),
      KEY(train.beta1, below_one(), "adamw: decay of the gradient's mean"),
      KEY(train.beta2, below_one(), "adamw: decay of the gradient's square"),
      KEY(train.eps, positive(), "adamw: added to the square root"),
      KEY(train.momentum, below_one(), "sgd: momentum"),
      KEY(train.weight_decay, not_negative(), "decay of weight matrices"),
      KEY(train.clip, not_negative(), "largest global norm of the gradient; 0 = never clip"),
      KEY(train.seed, not_negative(), "seed of weights and data order"),
      KEY(train.eval_every, at_least(0), "steps between evaluations; 0 = never"),
      KEY(train.loss_scale, positive(), "fp16: where the loss scale starts"),
      KEY(train.loss_scale_window, at_least(1), "fp16: good steps before the loss scale doubles"),

      KEY(parallel.strategy, any(), "how ranks share the work"),
      KEY(parallel.data, at_least(1), "ranks on the data axis"),
      KEY(parallel.tensor, at_least(1), "ranks on the tensor axis"),
      KEY(parallel.pipeline, at_least(1), "ranks on the pipeline axis"),
      KEY(parallel.schedule, any(), "order of forward and backward passes on the pipeline axis"),
      KEY(parallel.chunks, at_least(1), "parts of the model on each pipeline rank; interleaved: 2 or more"),
      KEY(parallel.sync, any(),
          "reduce gradients after every pass, or once a step (ddp, zero1: less traffic)"),
      KEY(parallel.reduce, any(), "type in which gradients travel between ranks; sums are made in fp32"),
      KEY(parallel.partial, any(),
          "type in which partial sums of activations travel on the tensor axis: fp32, or as activations are "
          "stored"),
      KEY(parallel.timeout, seconds(), "seconds a rank waits for another before it gives up"),

      KEY(precision, any(), "of matrix products and stored activations"),

      KEY(memory.recompute, any(), "activations computed again in the backward pass instead of kept"),
      KEY(memory.gradients, any(),
          "type in which the gradients of blocks' matrices are kept; bf16 on one GPU, where a step is one "
          "pass"),
      KEY(memory.gelu, any(),
          "GELU's output is kept for backward, or made again there; on a GPU in 16 bits the two differ in "
          "bits"),
      KEY(memory.offload, any(), "what lives in host memory"),
      KEY(memory.limit, bytes(), "bytes a rank may use; 0 = what the machine has"),
      KEY(memory.scratch, bytes(),
          "bytes of scratch that the loss and cuDNN's attention gradient aim at; 0 = as they are fastest"),

      KEY(checkpoint.every, at_least(0), "steps between checkpoints; 0 = never"),
      KEY(checkpoint.keep, at_least(0), "newest checkpoints kept; 0 = all"),
      KEY(checkpoint.async, any(), "training goes on while a checkpoint is written"),

      KEY(log.csv, any(), "write metrics.csv"),
      KEY(log.jsonl, any(), "write metrics.jsonl"),
      KEY(log.tensorboard, any(), "write TensorBoard event files"),
      KEY(log.wandb, any(), "write a Weights & Biases offline run"),
      KEY(log.prometheus, any(), "address that serves /metrics; empty = off"),
  };
}

#undef KEY

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> kTable = make_keys();
  return kTable;
}

const Key* find_key(std::string_view path) {
  const auto found =
      std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.path == path; });
  return found == keys().end() ? nullptr : &*found;
}

std::string_view first_key_under(std::string_view path) {
  for (const Key& key : keys()) {
    if (key.path.size() > path.size() && key.path.starts_with(path) && key.path[path.size()] == '.')
      return key.path;
  }
  return {};
}

std::string_view nearest_key(std::string_view path) {
  std::string_view best;
  int best_distance = 0;
  const auto consider = [&](std::string_view candidate, int distance) {
    if (!best.empty() && distance >= best_distance) return;
    best = candidate;
    best_distance = distance;
  };
  for (const Key& key : keys()) {
    const std::string_view section = key.path.substr(0, key.path.find('.'));
    consider(section, edit_distance(path, section));
    consider(key.path, edit_distance(path, key.path));
    // A key under the wrong section or under none: one step further away than a slip of the same size.
    consider(key.path, edit_distance(last_part(path), last_part(key.path)) + 1);
  }
  return best;
}

bool applies(const Key& key, Family family) { return (key.families >> static_cast<unsigned>(family)) & 1u; }

}  // namespace tandem
