// The settings of one run as plain values, and their defaults: the only place that holds a default.
// Keys are the member names joined by dots (`train.micro_batch`); keys.h maps them to these members.
// A Config from load_config or from_json is valid: ranges, divisibility and enum values were checked,
// and what "0 = derived" stands for was filled in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/config/data_sources.h"
#include "tandem/config/families.h"
#include "tandem/config/money.h"
#include "tandem/config/step_values.h"
#include "tandem/config/train_group.h"
#include "tandem/optimizers/optimizers.h"

namespace tandem {

enum class DeviceKind { Auto, Cpu, Cuda };
enum class ImageNorm { Batch, Group, Sync };
enum class ImageStem { Small, Imagenet };
enum class BrokenImages { Stop, Skip };
enum class GatedActivation { Silu, Gelu };
enum class QkNorm { None, Head, All };
enum class NormPlace { Before, After, Both };
enum class ModelInit { Weights, Random };
enum class Documents { Joined, Separate };
enum class ScheduleKind { Cosine, Linear, Constant, Wsd, OneCycle, Step, InverseSqrt, Points };
enum class DecayShape { Linear, Cosine, Sqrt };
enum class LrScaling { None, Linear, Sqrt };
enum class Strategy { Single, Dp, Ddp, Zero1, Zero2, Fsdp };
enum class ReduceType { Fp32, Bf16 };
enum class PartialSums { Fp32, Stored };
enum class GeluOutput { Kept, Again };
enum class GradientSync { Pass, Step };
enum class Elastic { None, Data };
enum class Reproducible { Mesh, Layout };
enum class PipelineSchedule { GPipe, OneFOneB, Interleaved };
enum class Precision { Fp32, Bf16, Fp16, Fp8 };
enum class RecomputeKind { None, Full, Every, Selective, AllButAttention, Auto };
enum class OffloadKind { Params, Optimizer, Activations };
enum class PathStyle { Auto, No, Yes };
enum class WandbMode { None, Offline, Online };
enum class CometMode { None, Offline };

struct Recompute {
  RecomputeKind kind = RecomputeKind::None;
  int64_t every = 0;  // K of every:K, else 0
  bool operator==(const Recompute&) const = default;
};

struct ModelConfig {
  Family family = Family::Gpt2;
  std::string from;                     // a Hugging Face directory instead of the keys below
  ModelInit init = ModelInit::Weights;  // with from
  int64_t layers = 6;                   // equal blocks
  int64_t width = 384;                  // derived from family; with stages: channels of the first one
  int64_t heads = 6;
  int64_t kv_heads = 0;  // derived: heads
  int64_t head = 0;      // features of a head; derived: width / heads
  int64_t context = 256;
  int64_t vocab = 256;
  int64_t ffn = 0;  // derived from family and width
  double rope_theta = 10000.0;
  double rope_local_theta = 0;          // of layers with a window; 0 = rope_theta, scaled like the others
  std::string rope_scaling = "none";    // see base/rope_frequencies.h
  int64_t rope_dims = 0;                // features of a head that turn; derived: all
  std::vector<int64_t> no_rope_layers;  // layers whose heads know no positions
  int64_t window = 0;                   // a token sees itself and window - 1 before it; 0 = all before it
  std::vector<int64_t> full_layers;     // layers without the window
  double attention_scale = 0;           // of scores; 0 = 1 / sqrt(head)
  double attention_softcap = 0;         // scores become cap * tanh(score / cap); 0 = they stay
  double logit_softcap = 0;             // likewise the logits
  double logit_scale = 1;
  double embed_scale = 1;
  double residual_scale = 1;  // of what a block's halves add to the stream
  QkNorm qk_norm = QkNorm::None;
  NormPlace norm_place = NormPlace::Before;
  bool norm_plus_one = false;  // norms multiply by 1 + weight
  GatedActivation activation = GatedActivation::Silu;
  double norm_eps = 1e-5;
  double dropout = 0;    // rate, in training: of the embedding and of what a block's halves add
  bool tied = true;      // derived from family
  bool qkv_bias = true;  // derived from family
  bool out_bias = false, ffn_bias = false;
  int64_t image_size = 32;  // images are channels x image_size x image_size
  int64_t channels = 3;
  int64_t classes = 10;
  std::vector<int64_t> blocks = {2, 2, 2};  // residual blocks of each stage
  bool bottleneck = false;                  // blocks of three convolutions, narrow in the middle
  ImageStem stem = ImageStem::Small;        // what comes before the blocks
  ImageNorm norm = ImageNorm::Batch;
  int64_t groups = 8;  // of norm: group
  bool operator==(const ModelConfig&) const = default;

  bool has(unsigned trait) const { return info_of(family).has(trait); }
  bool is_language_model() const { return has(kReadsTokens); }
  // The derived values also hold for a ModelConfig that was written in code and never loaded.
  int64_t head_width() const { return head != 0 ? head : width / heads; }
  int64_t num_kv_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  int64_t ffn_width() const { return ffn != 0 ? ffn : info_of(family).ffn_of(width); }
};

struct DataConfig {
  DataSources train = "builtin:stories";  // derived: builtin:shapes for images
  DataSources eval = "builtin:stories";   // derived: like train; weights mean nothing here
  std::string tokenizer = "bytes";
  Documents documents = Documents::Joined;  // those that share a sequence
  bool flip = false;                        // images from left to right, half of them
  int64_t pad = 0;                          // zeros around an image, out of which one of its size is cut
  double crop = 0;        // smallest share of an image that is cut out and resized; 0 = all of it
  double color = 0;       // most that brightness, contrast and saturation change by
  double mixup = 0;       // alpha of the distribution that two images are mixed by; 0 = they are not
  bool normalize = true;  // channels to the mean 0 and the deviation 1 of the training set
  BrokenImages broken = BrokenImages::Stop;  // what an image that cannot be read does
  int64_t workers = 2;
  int64_t prefetch = 4;        // batches made ahead of the one in use
  int64_t eval_samples = 256;  // sequences or images per evaluation
  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  int64_t steps = 300;
  int64_t tokens = 0;                 // instead of steps, which are derived; 0 = not given
  double epochs = 0;                  // likewise
  int64_t batch = 32;                 // global, in sequences or images
  std::vector<StepValue> batch_ramp;  // up to and with a step, a smaller batch
  int64_t micro_batch = 8;            // per rank and pass
  OptimizerKind optimizer = OptimizerKind::AdamW;
  double lr = 1e-3;  // derived: what the optimizer's entry says
  LrScaling lr_scaling = LrScaling::None;
  int64_t lr_batch = 0;  // the batch that lr was found with
  double min_lr = 0.1;   // where the schedule ends, as a fraction of lr
  double start_lr = 0;   // where the warm-up begins, likewise
  ScheduleKind schedule = ScheduleKind::Cosine;
  int64_t warmup = 30;                          // steps
  int64_t decay_steps = 0;                      // wsd: at the end; derived: a tenth of steps
  DecayShape decay_shape = DecayShape::Linear;  // wsd
  int64_t step_every = 0;                       // step: steps between falls; derived: a third of steps
  double step_factor = 0.1;                     // step: of each fall
  std::vector<StepValue> points;                // points: of lr, as fractions
  StateType optimizer_state = StateType::Fp32;
  MuonScale adjust_lr = MuonScale::MatchAdamW;  // muon: how a matrix's rate goes with its shape
  HyperValues hyper = default_hyper_values();   // train.beta1 and the like, in the order of kHyperKeys
  double weight_decay = 0.1;
  std::vector<TrainGroup> groups;  // of parameters, by their names
  double ema = 0;                  // decay of the weights' moving average; 0 = none is kept
  bool ema_eval = false;           // evaluations are of that average, too
  double clip = 1.0;               // global norm; 0 = never
  double clip_value = 0;           // each element of the gradient; 0 = never
  int64_t seed = 1;
  int64_t eval_every = 50;  // steps; 0 = never
  bool eval_at_start = false;
  int64_t patience = 0;              // evaluations without a better one after which the run ends; 0 = never
  double min_delta = 0;              // that a better one is better by
  double label_smoothing = 0;        // share of the target's probability that all classes get
  double z_loss = 0;                 // factor of the squared log of the softmax's sum
  Dollars budget;                    // the run ends before it has cost more; 0 = no bound
  HourlyPrice price;                 // of the whole job
  double loss_scale = 65536.0;       // fp16: where the loss scale starts
  int64_t loss_scale_window = 2000;  // fp16: good steps before it doubles
  bool operator==(const TrainConfig&) const = default;
};

struct ParallelConfig {
  Strategy strategy = Strategy::Single;
  int64_t data = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  PipelineSchedule schedule = PipelineSchedule::OneFOneB;
  int64_t chunks = 1;                      // parts of the model a pipeline rank holds; interleaved: 2 or more
  GradientSync sync = GradientSync::Pass;  // when gradients are reduced
  ReduceType reduce = ReduceType::Fp32;    // how gradients travel; they are summed in fp32
  PartialSums partial = PartialSums::Fp32;         // how those of the tensor axis travel; likewise
  Elastic elastic = Elastic::None;                 // whether the data axis goes with the ranks that are there
  Reproducible reproducible = Reproducible::Mesh;  // what the bits of a run depend on
  bool tls = false;                                // traffic between nodes is encrypted
  double timeout = 300;                            // seconds a collective may wait for its peers
  bool operator==(const ParallelConfig&) const = default;
};

struct MemoryConfig {
  Recompute recompute;
  ReduceType gradients = ReduceType::Fp32;  // of weights in blocks, between the pass and the update
  GeluOutput gelu = GeluOutput::Kept;       // for backward, or made again there
  std::vector<OffloadKind> offload;
  int64_t limit = 0;    // bytes a rank may use; 0 = what the machine has
  int64_t scratch = 0;  // bytes that kernels with a choice should work in; 0 = as they are fastest
  bool operator==(const MemoryConfig&) const = default;

  bool offloads(OffloadKind kind) const {
    return std::find(offload.begin(), offload.end(), kind) != offload.end();
  }
};

// Steps between checkpoints: a number, 0 for never, or what costs the least.
struct SaveEvery {
  int64_t steps = 100;
  bool automatic = false;  // by the clock: see train/saving/save_clock.h

  SaveEvery(int64_t number = 100) : steps(number) {}
  bool saves() const { return automatic || steps > 0; }
  bool operator==(const SaveEvery&) const = default;
};

struct CheckpointConfig {
  SaveEvery every;
  double minutes = 0;     // between checkpoints, by the clock; 0 = only as `every` says
  double mtbf = 24;       // hours between failures, until the run has seen some
  bool on_notice = true;  // save when a notice comes, where there is time
  int64_t keep = 3;       // newest ones kept; 0 = all
  bool async = true;
  int64_t memory = 0;         // steps between copies of a rank's part at another one; 0 = none
  int64_t replay = 0;         // steps between those that are computed twice and compared; 0 = none
  std::string best = "none";  // metric whose best checkpoint is kept, too
  std::string store;  // where they go behind the run directory: a path or s3://bucket/prefix; empty = nowhere
  bool operator==(const CheckpointConfig&) const = default;
};

enum class SpotWatch { None, Auto, Aws, Gcp, Azure };

struct SpotConfig {
  SpotWatch watch = SpotWatch::None;
  std::string endpoint;  // base URL of the metadata server; empty = the cloud's own
  std::string file;      // whose appearance is a notice; empty = none
  bool operator==(const SpotConfig&) const = default;
};

// How stores over a network are reached; what is empty comes from the environment.
struct StorageConfig {
  std::string endpoint;
  std::string region;
  PathStyle path_style = PathStyle::Auto;
  std::string cache;                      // directory for what is read from there; empty = the user's
  int64_t cache_size = int64_t{8} << 30;  // bytes in it at most
  bool operator==(const StorageConfig&) const = default;
};

struct LogConfig {
  bool csv = true;
  bool jsonl = true;
  bool tensorboard = false;
  WandbMode wandb = WandbMode::None;
  CometMode comet = CometMode::None;
  std::string prometheus;       // address to listen on; empty = off
  std::string prometheus_file;  // the same figures for the node exporter; empty = off
  std::string webhook;          // URL that is told of what happens; empty = off
  int64_t histograms = 0;       // steps between histograms of gradients and weights; 0 = never
  bool operator==(const LogConfig&) const = default;
};

struct Config {
  std::string name = "run";
  DeviceKind device = DeviceKind::Auto;
  int64_t threads = 0;  // CPU threads a rank; 0 = all cores
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  ParallelConfig parallel;
  Precision precision = Precision::Fp32;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  SpotConfig spot;
  StorageConfig storage;
  LogConfig log;
  bool operator==(const Config&) const = default;

  // Passes over the model per step: every rank's share of the batch in micro-batches. At the end of a ramp,
  // which is what memory is planned for.
  int64_t accumulation() const { return train.batch / (train.micro_batch * parallel.data); }
};

}  // namespace tandem
