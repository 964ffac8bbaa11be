#include "tandem/config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tandem/base/nearest.h"
#include "tandem/config/other_names.h"

namespace tandem {
namespace {

constexpr Limits any() { return {}; }
constexpr Limits at_least(double min) { return {.min = min, .max = kMaxCount}; }
// The upper ends are far above anything that was ever trained; they keep products within 64 bits and what
// compiling takes within bounds.
constexpr Limits between(double min, double max) { return {.min = min, .max = max}; }
constexpr double kMillion = 1 << 20;
constexpr double kMaxBlocks = 2048;
constexpr double kMaxThreads = 4096;
constexpr Limits not_negative() { return {.min = 0}; }
constexpr Limits negative() { return {.max = 0, .below_max = true}; }
constexpr Limits positive() { return {.min = 0, .above_min = true}; }
constexpr Limits fraction() { return {.min = 0, .max = 1}; }
constexpr Limits positive_fraction() { return {.min = 0, .max = 1, .above_min = true}; }
constexpr Limits below_one() { return {.min = 0, .max = 1, .below_max = true}; }
constexpr Limits seconds() { return {.min = 0, .above_min = true, .in_fp32 = false}; }
constexpr Limits bytes() { return {.min = 0, .in_bytes = true}; }

constexpr unsigned kEveryFamily = ~0u;
constexpr unsigned kText = families_with(kReadsTokens);
constexpr unsigned kImages = families_with(kReadsImages);
constexpr unsigned kWithRotary = families_with(kRotary);
constexpr unsigned kWithStages = families_with(kStages);

template <typename Member>
Key make_key(std::string_view path, Member member, const Limits& limits, std::string doc,
             unsigned families = kEveryFamily) {
  static const Config kDefaults;
  return {.path = path,
          .doc = std::move(doc),
          .families = families,
          .optimizers = ~0u,
          .schedules = ~0u,
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

Key only_for(ScheduleKind schedule, Key key) {
  key.schedules = 1u << static_cast<unsigned>(schedule);
  return key;
}

Limits limits_of(HyperRange range) {
  switch (range) {
    case HyperRange::BelowOne: return below_one();
    case HyperRange::Positive: return positive();
    case HyperRange::NotNegative: return not_negative();
    case HyperRange::Negative: return negative();
  }
  return any();
}

// " (0.99 by default)" where an optimizer has another default than the key.
std::string other_default(double value, double usual) {
  return value == usual ? "" : fmt::format(" ({} by default)", nlohmann::json(value).dump());
}

std::string other_rates() {
  std::string text;
  for (const OptimizerEntry& entry : kOptimizers) {
    if (entry.lr == TrainConfig().lr) continue;
    text += fmt::format("; of {} {} by default", entry.name, nlohmann::json(entry.lr).dump());
  }
  return text;
}

// A key of the optimizers' own hyper-parameters: what it is in each that has it.
template <size_t kIndex>
Key make_hyper_key() {
  const HyperParam& first = kHyperKeys[kIndex];
  Key key = make_key(
      first.key, [](auto& config) -> auto& { return config.train.hyper[kIndex]; }, limits_of(first.range),
      "");
  key.optimizers = 0;
  for (size_t i = 0; i < kNumOptimizers; ++i) {
    const int own = own_hyper(static_cast<OptimizerKind>(i), first.key);
    if (own < 0) continue;
    const HyperParam& param = kOptimizers[i].hyper[static_cast<size_t>(own)];
    key.doc += fmt::format("{}{}: {}{}", key.doc.empty() ? "" : "; ", kOptimizers[i].name, param.doc,
                           other_default(param.value, first.value));
    key.optimizers |= 1u << i;
  }
  return key;
}

Key only_for(OptimizerKind optimizer, Key key) {
  key.optimizers = 1u << static_cast<unsigned>(optimizer);
  return key;
}

// Of optimizers whose states may be kept in fewer bits.
Key with_packed_states(Key key) {
  key.optimizers = 0;
  for (size_t i = 0; i < kNumOptimizers; ++i)
    key.optimizers |= kOptimizers[i].takes_directions() || kOptimizers[i].averages ? 0 : 1u << i;
  return key;
}

template <size_t... kIndices>
std::vector<Key> make_hyper_keys(std::index_sequence<kIndices...>) {
  return {make_hyper_key<kIndices>()...};
}

std::vector<Key> make_run_and_model_keys() {
  return {
      KEY(name, any(), "the run's name, and its directory under runs/"),
      KEY(device, any(), "where the step runs"),
      KEY(threads, between(0, kMaxThreads), "CPU threads a rank; 0 = all cores"),

      KEY(model.family, any(), "the architecture"),
      KEY(model.from, any(),
          "a Hugging Face directory: config.json gives the keys of the model, safetensors its weights"),
      KEY(model.init, any(), "with model.from: start from its weights, or from random ones of its shape"),
      KEY(model.layers, between(1, kMaxBlocks), "blocks; hidden layers where they are all there is",
          families_with(kEqualBlocks)),
      KEY(model.width, between(1, kMillion),
          "features between blocks; with stages, channels of the first one"),
      KEY(model.heads, between(1, kMillion / 16),
          "attention heads; must divide width, unless model.head is set", kText),
      KEY(model.kv_heads, between(0, kMillion / 16), "key/value heads; must divide heads; 0 = heads",
          kWithRotary),
      KEY(model.head, between(0, kMillion / 16), "features of a head; 0 = width / heads", kWithRotary),
      KEY(model.context, between(1, 16 * kMillion), "tokens in a sequence", kText),
      KEY(model.vocab, between(2, 16 * kMillion), "tokens in the vocabulary; at least those of the tokenizer",
          kText),
      KEY(model.ffn, between(0, 8 * kMillion),
          "hidden width of the feed-forward part; 0 = derived from width", kText),
      KEY(model.rope_theta, positive(), "base of the rotary position angles", kWithRotary),
      KEY(model.rope_local_theta, not_negative(),
          "the base in layers with a window, unscaled; 0 = as in the others", kWithRotary),
      KEY(model.rope_scaling, any(),
          "how the angles are stretched to longer contexts: none, linear, llama3, yarn or longrope with its "
          "numbers",
          kWithRotary),
      KEY(model.rope_dims, between(0, kMillion / 16),
          "features of a head that turn with its position; 0 = all", kWithRotary),
      KEY(model.no_rope_layers, between(0, kMaxBlocks), "layers whose heads know no positions", kWithRotary),
      KEY(model.window, between(0, 16 * kMillion),
          "a token sees itself and the window - 1 tokens before it; 0 = all before it", kWithRotary),
      KEY(model.full_layers, between(0, kMaxBlocks), "layers without the window", kWithRotary),
      KEY(model.attention_scale, not_negative(), "factor of attention's scores; 0 = 1 / sqrt(head)",
          kWithRotary),
      KEY(model.attention_softcap, not_negative(),
          "cap of attention's scores, cap * tanh(score / cap); 0 = none", kWithRotary),
      KEY(model.logit_softcap, not_negative(), "the same for logits", kWithRotary),
      KEY(model.logit_scale, positive(), "factor of the logits", kWithRotary),
      KEY(model.embed_scale, positive(), "factor of the embeddings", kWithRotary),
      KEY(model.residual_scale, positive(), "factor of what attention and feed-forward add", kWithRotary),
      KEY(model.qk_norm, any(), "norm of queries and keys: of each head, or of all heads at once",
          kWithRotary),
      KEY(model.norm_place, any(), "norms before, after, or before and after attention and feed-forward",
          kWithRotary),
      KEY(model.norm_plus_one, any(), "norms multiply by 1 + weight", kWithRotary),
      KEY(model.activation, any(), "of the gate in the feed-forward part", kWithRotary),
      KEY(model.norm_eps, positive(), "added to the variance in normalisation", families_with(kNorms)),
      KEY(model.dropout, below_one(),
          "share of the elements that training drops, of the embedding and of what attention and "
          "feed-forward "
          "add",
          kText),
      KEY(model.tied, any(), "embedding and output projection share one matrix", kText),
      KEY(model.qkv_bias, any(), "biases on the query, key and value projections", kWithRotary),
      KEY(model.out_bias, any(), "bias on attention's output projection", kWithRotary),
      KEY(model.ffn_bias, any(), "biases in the feed-forward part", kWithRotary),
      KEY(model.image_size, between(1, kMillion / 64), "height and width of an image", kImages),
      KEY(model.channels, between(1, 4096), "channels of an image", kImages),
      KEY(model.classes, between(2, 16 * kMillion), "labels to tell apart", kImages),
      KEY(model.blocks, between(1, kMaxBlocks), "residual blocks of each stage; a stage halves the image",
          kWithStages),
      KEY(model.bottleneck, any(),
          "blocks of three convolutions, 1x1 to a quarter of the channels, 3x3, and 1x1 back", kWithStages),
      KEY(model.stem, any(),
          "before the blocks: a 3x3 convolution, or imagenet's 7x7 and pooling, which make images 4 times "
          "smaller",
          kWithStages),
      KEY(model.norm, any(),
          "normalisation over a rank's batch, groups of channels, or every rank's batch (sync)", kWithStages),
      KEY(model.groups, between(1, kMillion), "groups of norm: group; must divide width", kWithStages),
  };
}

std::vector<Key> make_data_keys() {
  return {
      KEY(data.train, any(),
          "training set: builtin:NAME, a text file, a folder of images or prepared shards; of several, "
          "samples are drawn by "
          "weight"),
      KEY(data.eval, any(),
          "evaluation set, or sets, each as a whole; a name, {path: a, name: books}, gives it a loss of its "
          "own"),
      KEY(data.tokenizer, any(),
          "how text becomes tokens: bytes, a tokenizer.json, a sentencepiece .model, or a directory with one",
          kText),
      KEY(data.documents, any(),
          "documents that share a sequence: joined, each sees those before it, or separate, none sees "
          "another",
          kText),
      KEY(data.flip, any(), "half of the training images are turned from left to right", kImages),
      KEY(data.pad, between(0, 4096),
          "zeros around a training image, out of which one of its size is cut at random", kImages),
      KEY(data.crop, fraction(),
          "smallest share of a training image that is cut out at random and resized; 0 = none is", kImages),
      KEY(data.color, below_one(),
          "most by which brightness, contrast and saturation of a training image change", kImages),
      KEY(data.mixup, not_negative(),
          "alpha of the beta distribution by which two training images and their labels are mixed; 0 = never",
          kImages),
      KEY(data.normalize, any(),
          "images from files: channels to mean 0 and deviation 1 over the training set", kImages),
      KEY(data.broken, any(), "images from files: one that cannot be read stops the run, or is left out",
          kImages),
      KEY(data.workers, between(0, kMaxThreads), "threads that prepare batches"),
      KEY(data.prefetch, between(1, kMillion), "batches prepared ahead"),
      KEY(data.eval_samples, at_least(1), "sequences or images in one evaluation"),
  };
}

std::vector<Key> make_train_keys() {
  return {
      KEY(train.steps, at_least(1), "optimizer steps in the run; or give tokens or epochs"),
      KEY(train.tokens, not_negative(), "tokens to train on, from which steps are derived; 0 = steps says",
          kText),
      KEY(train.epochs, not_negative(),
          "times that all of data.train is seen, from which steps are derived; 0 = steps says"),
      KEY(train.batch, between(1, 16 * kMillion), "global batch in sequences or images"),
      KEY(train.batch_ramp, between(1, 16 * kMillion),
          "smaller batches at the beginning: [[100, 8], [200, 16]] is 8 up to step 100, 16 up to step 200, "
          "then "
          "batch"),
      KEY(train.micro_batch, between(1, kMillion), "sequences or images a rank takes in one pass"),
      KEY(train.optimizer, any(), "update rule"),
      KEY(train.lr, not_negative(), "peak learning rate" + other_rates()),
      KEY(train.lr_scaling, any(), "lr is for lr_batch, and grows with batch, or with its square root"),
      KEY(train.lr_batch, between(0, 16 * kMillion), "with lr_scaling: the batch that lr was found with"),
      KEY(train.min_lr, fraction(),
          "where the schedule ends, as a fraction of lr (cosine, linear, wsd; one_cycle: 4e-06 by default)"),
      KEY(train.start_lr, fraction(),
          "where the warm-up begins, as a fraction of lr (one_cycle: 0.04 by default)"),
      KEY(train.schedule, any(), "how the learning rate goes on after warm-up"),
      KEY(train.warmup, at_least(0), "steps over which the learning rate rises to lr"),
      only_for(ScheduleKind::Wsd, KEY(train.decay_steps, at_least(0),
                                      "wsd: steps at the end over which it falls; 0 = a tenth of steps")),
      only_for(ScheduleKind::Wsd, KEY(train.decay_shape, any(), "wsd: how it falls")),
      only_for(ScheduleKind::Step,
               KEY(train.step_every, at_least(0), "step: steps between falls; 0 = a third of steps")),
      only_for(ScheduleKind::Step, KEY(train.step_factor, positive_fraction(), "step: factor of each fall")),
      only_for(ScheduleKind::Points,
               KEY(train.points, fraction(),
                   "points: fractions of lr at steps, straight in between: [[0, 0], [100, 1], [1000, 0.1]]")),
      with_packed_states(
          KEY(train.optimizer_state, any(),
              "type in which the optimizer's states are kept; int8 has a scale for each 64 of them")),
      only_for(OptimizerKind::Muon,
               KEY(train.adjust_lr, any(),
                   "muon: a matrix's rate is lr times 0.2 sqrt(max(rows, cols)), which suits AdamW's lr, or "
                   "times sqrt(max(1, rows / cols))")),
      KEY(train.weight_decay, not_negative(), "decay of weight matrices"),
      KEY(train.groups, not_negative(),
          "parameters by name pattern, with factors of lr and weight_decay, or frozen: not trained, without "
          "gradient, master or optimizer state; the first match counts"),
      KEY(train.ema, below_one(),
          "decay of a moving average of the weights, which is kept and saved beside them; 0 = none"),
      KEY(train.ema_eval, any(), "with ema: evaluations are of that average, too (eval_loss_ema)"),
      KEY(train.clip, not_negative(),
          "largest global norm of the gradient; 0 = never clip, as with clip_value"),
      KEY(train.clip_value, not_negative(), "largest magnitude of a gradient's element; 0 = never clip"),
      KEY(train.label_smoothing, below_one(),
          "share of each target's probability that all classes get alike, in training's loss"),
      KEY(train.z_loss, not_negative(),
          "factor of the squared log of the softmax's sum, which training's loss then has in addition"),
      KEY(train.seed, not_negative(), "seed of weights and data order"),
      KEY(train.eval_every, at_least(0), "steps between evaluations; 0 = never"),
      KEY(train.eval_at_start, any(), "evaluate before the first step, too"),
      KEY(train.patience, at_least(0),
          "evaluations in a row that may bring no better eval_loss before the run ends; 0 = any number"),
      KEY(train.min_delta, not_negative(), "with patience: what a better eval_loss is better by"),
      KEY(train.budget, not_negative(),
          "most that the run may cost, with train.price: it saves and ends with 76 before; 0USD = any"),
      KEY(train.price, not_negative(), "of the whole job, all its machines, for an hour"),
      KEY(train.loss_scale, positive(), "fp16: where the loss scale starts"),
      KEY(train.loss_scale_window, at_least(1), "fp16: good steps before the loss scale doubles"),
  };
}

std::vector<Key> make_parallel_and_memory_keys() {
  return {
      KEY(parallel.strategy, any(), "how ranks share the work; zero3 is taken as fsdp"),
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
      KEY(parallel.elastic, any(),
          "data: when ranks go or come, the data axis shrinks or grows and the run goes on"),
      KEY(parallel.reproducible, any(),
          "what a run's bits depend on: the mesh, or layout: the same bits on any number of data ranks"),
      KEY(parallel.tls, any(),
          "what ranks on several hosts send each other over TCP is encrypted; not with NCCL, which cannot"),
      KEY(parallel.timeout, seconds(), "seconds a rank waits for another before it gives up"),

      KEY(precision, any(), "of matrix products and stored activations"),

      KEY(memory.recompute, any(), "activations computed again in the backward pass instead of kept"),
      KEY(memory.gradients, any(),
          "type in which the gradients of blocks' matrices are made; bf16 on GPUs, where no passes are added "
          "up "
          "in it"),
      KEY(memory.gelu, any(),
          "GELU's output is kept for backward, or made again there; on a GPU in 16 bits the two differ in "
          "bits"),
      KEY(memory.offload, any(), "what lives in host memory"),
      KEY(memory.limit, bytes(), "bytes a rank may use; 0 = what the machine has"),
      KEY(memory.scratch, bytes(),
          "bytes of scratch that the loss and cuDNN's attention gradient aim at; 0 = as they are fastest"),
  };
}

std::vector<Key> make_checkpoint_and_log_keys() {
  return {
      KEY(checkpoint.every, at_least(0),
          "steps between checkpoints; 0 = never; auto = as often as costs the least, from what a save was "
          "seen "
          "to cost and how often the run was interrupted"),
      KEY(checkpoint.minutes, not_negative(), "minutes between checkpoints, beside those of every; 0 = none"),
      KEY(checkpoint.mtbf, positive(),
          "hours between interruptions that every: auto begins with; those of the run itself count from then "
          "on"),
      KEY(checkpoint.on_notice, any(),
          "save when a notice says that the machine will be taken back, where a save fits into it"),
      KEY(checkpoint.keep, at_least(0), "newest checkpoints kept; 0 = all"),
      KEY(checkpoint.async, any(), "training goes on while a checkpoint is written"),
      KEY(checkpoint.memory, at_least(0),
          "steps between copies of each rank's part in its launcher's memory, and in that of another node; 0 "
          "= none"),
      KEY(checkpoint.replay, at_least(0),
          "steps between those that are computed twice and compared, to find broken hardware; 0 = none"),
      KEY(checkpoint.best, any(),
          "what the best checkpoint, kept beside the newest, is best in: none, eval_loss, eval_loss_ema, or "
          "either with /NAME"),
      KEY(checkpoint.store, any(),
          "path or s3://BUCKET/PREFIX where checkpoints are copied behind training; empty = nowhere"),

      KEY(storage.endpoint, any(), "URL of an S3 server; empty = AWS_ENDPOINT_URL, else Amazon's"),
      KEY(storage.region, any(), "of S3; empty = AWS_REGION, else the profile's"),
      KEY(storage.path_style, any(),
          "S3's bucket in the path of a URL instead of the host's name; auto = with an endpoint"),
      KEY(storage.cache, any(),
          "directory that data from S3 is kept in; empty = $XDG_CACHE_HOME/tandem or ~/.cache/tandem"),
      KEY(storage.cache_size, bytes(), "bytes in it at most, for all ranks of a machine together"),

      KEY(spot.watch, any(),
          "whose notices that a machine is taken back are watched; auto = of the cloud that answers"),
      KEY(spot.endpoint, any(), "base URL of the metadata server, http://HOST:PORT; empty = the cloud's own"),
      KEY(spot.file, any(),
          "a file whose appearance is a notice; it may hold the number of seconds that are left; empty = "
          "none"),

      KEY(log.csv, any(), "write metrics.csv"),
      KEY(log.jsonl, any(), "write metrics.jsonl"),
      KEY(log.tensorboard, any(), "write TensorBoard's event files, in the run directory's tensorboard/"),
      KEY(log.wandb, any(),
          "offline: write a run for `wandb sync` into the run directory's wandb/; online: and send it to "
          "WANDB_BASE_URL "
          "with WANDB_API_KEY"),
      KEY(log.comet, any(), "offline: write an archive for `comet upload` into the run directory's comet/"),
      KEY(log.prometheus, any(), "HOST:PORT where rank 0 serves /metrics for Prometheus; empty = off"),
      KEY(log.prometheus_file, any(),
          "a file NAME.prom with the same figures, for the node exporter's textfile collector; empty = off"),
      KEY(log.webhook, any(),
          "http(s) URL that is sent a JSON object at the start, the end, failures, divergence, loss spikes "
          "and stragglers; empty = off"),
      KEY(log.histograms, at_least(0),
          "with tensorboard: steps between histograms of weights and gradients; 0 = never"),
  };
}

#undef KEY

std::vector<Key> make_keys() {
  std::vector<Key> keys = make_run_and_model_keys();
  for (const auto& make :
       {make_data_keys, make_train_keys, make_parallel_and_memory_keys, make_checkpoint_and_log_keys})
    std::ranges::move(make(), std::back_inserter(keys));
  const auto before =
      std::find_if(keys.begin(), keys.end(), [](const Key& key) { return key.path == "train.weight_decay"; });
  const std::vector<Key> hyper = make_hyper_keys(std::make_index_sequence<kNumHyperKeys>());
  keys.insert(before, hyper.begin(), hyper.end());
  return keys;
}

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
  if (const std::string_view ours = key_for_other_name(path); !ours.empty()) return ours;
  std::string_view best;
  int best_slip = 0;
  const auto consider = [&](std::string_view candidate, std::string_view word, std::string_view name,
                            int extra) {
    const int distance = slip(word, name);
    if (!is_likely(word, name, distance) || (!best.empty() && distance + extra >= best_slip)) return;
    best = candidate;
    best_slip = distance + extra;
  };
  for (const Key& key : keys()) {
    const std::string_view section = key.path.substr(0, key.path.find('.'));
    consider(section, path, section, 0);
    consider(key.path, path, key.path, 0);
  }
  // A key under the wrong section or under none: one step further away than a slip of the same size.
  for (const Key& key : keys()) consider(key.path, last_part(path), last_part(key.path), 1);
  return best;
}

std::vector<std::string_view> keys_named(std::string_view name) {
  std::vector<std::string_view> found;
  for (const Key& key : keys()) {
    if (last_part(key.path) == name || key.path == name) found.push_back(key.path);
  }
  if (const std::string_view ours = key_for_other_name(name); found.empty() && !ours.empty())
    found.push_back(ours);
  return found;
}

bool applies(const Key& key, Family family) { return (key.families >> static_cast<unsigned>(family)) & 1u; }

bool applies(const Key& key, OptimizerKind optimizer) {
  return (key.optimizers >> static_cast<unsigned>(optimizer)) & 1u;
}

bool applies(const Key& key, ScheduleKind schedule) {
  return (key.schedules >> static_cast<unsigned>(schedule)) & 1u;
}

bool applies(const Key& key, const Config& config) {
  return applies(key, config.model.family) && applies(key, config.train.optimizer) &&
         applies(key, config.train.schedule);
}

}  // namespace tandem
