// The names users type for the enums of config.h, each list in the order of its enum.
#pragma once

#include <span>
#include <string_view>

#include "tandem/config/config.h"

namespace tandem {

inline constexpr std::string_view kDeviceNames[] = {"auto", "cpu", "cuda"};
inline constexpr std::string_view kImageNormNames[] = {"batch", "group", "sync"};
inline constexpr std::string_view kImageStemNames[] = {"small", "imagenet"};
inline constexpr std::string_view kBrokenImagesNames[] = {"stop", "skip"};
inline constexpr std::string_view kGatedActivationNames[] = {"silu", "gelu"};
inline constexpr std::string_view kQkNormNames[] = {"none", "head", "all"};
inline constexpr std::string_view kNormPlaceNames[] = {"before", "after", "both"};
inline constexpr std::string_view kModelInitNames[] = {"weights", "random"};
inline constexpr std::string_view kDocumentsNames[] = {"joined", "separate"};
#define TANDEM_NAME(type, name) #name,
inline constexpr std::string_view kOptimizerNames[] = {TANDEM_OPTIMIZERS(TANDEM_NAME)};
#undef TANDEM_NAME
inline constexpr std::string_view kStateTypeNames[] = {"fp32", "bf16", "int8"};
inline constexpr std::string_view kMuonScaleNames[] = {"match_rms_adamw", "original"};
inline constexpr std::string_view kScheduleNames[] = {"cosine",    "linear", "constant",     "wsd",
                                                      "one_cycle", "step",   "inverse_sqrt", "points"};
inline constexpr std::string_view kDecayShapeNames[] = {"linear", "cosine", "sqrt"};
inline constexpr std::string_view kLrScalingNames[] = {"none", "linear", "sqrt"};
inline constexpr std::string_view kStrategyNames[] = {"single", "dp", "ddp", "zero1", "zero2", "fsdp"};
inline constexpr std::string_view kPathStyleNames[] = {"auto", "false", "true"};
inline constexpr std::string_view kGradientSyncNames[] = {"pass", "step"};
inline constexpr std::string_view kReduceTypeNames[] = {"fp32", "bf16"};
inline constexpr std::string_view kPartialSumsNames[] = {"fp32", "stored"};
inline constexpr std::string_view kGeluOutputNames[] = {"kept", "again"};
inline constexpr std::string_view kElasticNames[] = {"none", "data"};
inline constexpr std::string_view kReproducibleNames[] = {"mesh", "layout"};
inline constexpr std::string_view kPipelineScheduleNames[] = {"gpipe", "1f1b", "interleaved"};
inline constexpr std::string_view kPrecisionNames[] = {"fp32", "bf16", "fp16", "fp8"};
inline constexpr std::string_view kRecomputeNames[] = {
    "none", "full", "every", "selective", "all_but_attention", "auto"};
inline constexpr std::string_view kSpotWatchNames[] = {"none", "auto", "aws", "gcp", "azure"};
inline constexpr std::string_view kOffloadNames[] = {"params", "optimizer", "activations"};
inline constexpr std::string_view kWandbNames[] = {"none", "offline", "online"};
inline constexpr std::string_view kCometNames[] = {"none", "offline"};

using Names = std::span<const std::string_view>;
constexpr Names names_of(DeviceKind) { return kDeviceNames; }
constexpr Names names_of(Family) { return kFamilyNames; }
constexpr Names names_of(ImageNorm) { return kImageNormNames; }
constexpr Names names_of(ImageStem) { return kImageStemNames; }
constexpr Names names_of(BrokenImages) { return kBrokenImagesNames; }
constexpr Names names_of(GatedActivation) { return kGatedActivationNames; }
constexpr Names names_of(QkNorm) { return kQkNormNames; }
constexpr Names names_of(NormPlace) { return kNormPlaceNames; }
constexpr Names names_of(ModelInit) { return kModelInitNames; }
constexpr Names names_of(Documents) { return kDocumentsNames; }
constexpr Names names_of(OptimizerKind) { return kOptimizerNames; }
constexpr Names names_of(StateType) { return kStateTypeNames; }
constexpr Names names_of(MuonScale) { return kMuonScaleNames; }
constexpr Names names_of(ScheduleKind) { return kScheduleNames; }
constexpr Names names_of(DecayShape) { return kDecayShapeNames; }
constexpr Names names_of(LrScaling) { return kLrScalingNames; }
constexpr Names names_of(Strategy) { return kStrategyNames; }
constexpr Names names_of(PathStyle) { return kPathStyleNames; }
constexpr Names names_of(GradientSync) { return kGradientSyncNames; }
constexpr Names names_of(ReduceType) { return kReduceTypeNames; }
constexpr Names names_of(PartialSums) { return kPartialSumsNames; }
constexpr Names names_of(GeluOutput) { return kGeluOutputNames; }
constexpr Names names_of(Elastic) { return kElasticNames; }
constexpr Names names_of(Reproducible) { return kReproducibleNames; }
constexpr Names names_of(PipelineSchedule) { return kPipelineScheduleNames; }
constexpr Names names_of(Precision) { return kPrecisionNames; }
constexpr Names names_of(RecomputeKind) { return kRecomputeNames; }
constexpr Names names_of(SpotWatch) { return kSpotWatchNames; }
constexpr Names names_of(OffloadKind) { return kOffloadNames; }
constexpr Names names_of(WandbMode) { return kWandbNames; }
constexpr Names names_of(CometMode) { return kCometNames; }

// Other names that are taken for one of these.
struct Alias {
  std::string_view name, ours;
};
inline constexpr Alias kStrategyAliases[] = {{"zero3", "fsdp"}};
inline constexpr Alias kWandbAliases[] = {{"false", "none"}};  // as runs of 0.1 have it
using Aliases = std::span<const Alias>;
template <typename E>
constexpr Aliases aliases_of(E) {
  return {};
}
constexpr Aliases aliases_of(Strategy) { return kStrategyAliases; }
constexpr Aliases aliases_of(WandbMode) { return kWandbAliases; }

template <typename E>
concept NamedEnum = requires(E value) {
  names_of(value);
};

template <NamedEnum E>
constexpr std::string_view name_of(E value) {
  return names_of(value)[static_cast<size_t>(value)];
}

}  // namespace tandem
