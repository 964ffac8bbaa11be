#include "tandem/hub/rope_json.h"

#include <fmt/ranges.h>

#include <charconv>

#include "tandem/base/error.h"

namespace tandem::hub {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kOriginal = "original_max_position_embeddings";
constexpr std::string_view kPositions = "max_position_embeddings";
constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

enum class Given { Needed, MayBe, List };
struct RopeNumber {
  std::string_view name;
  Given given;
};
struct RopeKind {
  std::string_view name;
  std::vector<RopeNumber> numbers;  // in the order of the text
};

const std::vector<RopeKind>& rope_kinds() {
  static const std::vector<RopeKind> kKinds = {
      {"linear", {{"factor", Given::Needed}}},
      {"llama3",
       {{"factor", Given::Needed},
        {"low_freq_factor", Given::Needed},
        {"high_freq_factor", Given::Needed},
        {kOriginal, Given::Needed}}},
      {"yarn",
       {{"factor", Given::Needed},
        {kOriginal, Given::Needed},
        {"attention_factor", Given::MayBe},
        {"beta_fast", Given::MayBe},
        {"beta_slow", Given::MayBe},
        {"mscale", Given::MayBe},
        {"mscale_all_dim", Given::MayBe},
        {"truncate", Given::MayBe}}},
      {"longrope",
       {{"short_factor", Given::List},
        {"long_factor", Given::List},
        {"factor", Given::MayBe},
        {"attention_factor", Given::MayBe},
        {kOriginal, Given::Needed},
        {kPositions, Given::Needed}}},
  };
  return kKinds;
}

const RopeKind* find_kind(std::string_view name) {
  for (const RopeKind& kind : rope_kinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

class ScalingReader {
 public:
  // `original` is what the file says beside the object, if anything.
  ScalingReader(const HubFamily& family, int64_t positions, std::optional<double> original)
      : family_(family), positions_(static_cast<double>(positions)), original_(original) {}

  // The text of model.rope_scaling.
  std::string read(JsonKeys& keys) const {
    std::string kind = keys.text("rope_type", keys.text("type", "default"));
    for (std::string_view key : {"rope_theta", "partial_rotary_factor", "finetuned"}) keys.ignore(key);
    if (family_.has(kPartialRotary) && (kind == "su" || kind == "yarn")) kind = "longrope";
    if (kind == "default") {
      for (std::string_view key : {"factor", "original_max_position_embeddings"}) keys.ignore(key);
      check_unread(keys);
      return "none";
    }
    const RopeKind* known = find_kind(kind);
    if (known == nullptr)
      keys.refuse(
          keys.find("rope_type") != nullptr ? "rope_type" : "type",
          "expected default, linear, llama3, yarn or longrope: other rotary positions cannot be built");
    std::vector<std::string> parts;
    for (const RopeNumber& number : known->numbers) {
      const std::string value = read_number(keys, kind, number);
      if (!value.empty()) parts.push_back(fmt::format("{}={}", number.name, value));
    }
    check_unread(keys);
    return fmt::format("{}:{}", kind, fmt::join(parts, ","));
  }

 private:
  std::string read_number(JsonKeys& keys, std::string_view kind, const RopeNumber& number) const {
    if (number.given == Given::List) {
      const auto list = keys.reals(number.name);
      if (!list || list->empty()) keys.refuse(number.name, fmt::format("{} needs a list of numbers", kind));
      return fmt::format("{}", fmt::join(*list, " "));
    }
    const json* value = keys.find(number.name);
    std::optional<double> found;
    if (value != nullptr && value->is_boolean()) {
      found = value->get<bool>() ? 1 : 0;
    } else if (number.name == kPositions) {
      found = positions_;
    } else {
      found = keys.real_or_none(number.name, std::nullopt);
    }
    if (!found && number.name == kOriginal) found = original_ ? original_ : positions_;
    if (!found && number.name == "factor" && kind == "yarn") {
      const std::optional<double> original = keys.real_or_none(kOriginal, original_);
      if (original && *original > 0) found = positions_ / *original;
    }
    if (!found && number.given == Given::Needed) keys.refuse(number.name, fmt::format("{} needs it", kind));
    return found ? fmt::format("{}", *found) : "";
  }

  static void check_unread(const JsonKeys& keys) {
    if (const auto key = keys.first_unread())
      keys.refuse(*key, "a number of rotary positions that is not known here");
  }

  const HubFamily& family_;
  double positions_;
  std::optional<double> original_;
};

class RopeReader {
 public:
  RopeReader(JsonKeys& keys, const HubFamily& family, int64_t positions)
      : keys_(keys),
        family_(family),
        theta_(keys.real_or_none("rope_theta", std::nullopt).value_or(family.theta)),
        scaling_(family, positions,
                 family.has(kPartialRotary) ? keys.real_or_none(kOriginal, std::nullopt) : std::nullopt) {
    if (family.has(kPartialRotary)) partial_ = keys.real("partial_rotary_factor", 1);
    if (family.local_theta != 0) local_theta_ = keys.real("rope_local_base_freq", family.local_theta);
  }

  RopeNumbers read() {
    const json* scaling = object("rope_scaling");
    const json* parameters = object("rope_parameters");
    const bool old_spelling = scaling != nullptr || keys_.find("rope_theta") != nullptr;
    if (parameters == nullptr) return from_scaling(scaling);
    const RopeNumbers now = from_parameters(*parameters);
    if (old_spelling && from_scaling(scaling) != now)
      keys_.refuse("rope_parameters", "says something else than rope_theta and rope_scaling do");
    return now;
  }

 private:
  const json* object(std::string_view key) {
    const json* value = keys_.find(key);
    if (value == nullptr || value->is_null()) return nullptr;
    if (!value->is_object()) keys_.refuse(key, "expected an object or null");
    return value;
  }

  std::string text_of(const json& scaling, std::string_view key) const {
    JsonKeys keys(scaling, fmt::format("{}: {}", keys_.origin(), key));
    return scaling_.read(keys);
  }

  RopeNumbers from_scaling(const json* scaling) const {
    RopeNumbers rope{theta_, scaling == nullptr ? "none" : text_of(*scaling, "rope_scaling"), local_theta_,
                     partial_};
    settle(rope, rope.theta);
    return rope;
  }

  RopeNumbers from_parameters(const json& parameters) const {
    const bool nested = parameters.contains(kFull) || parameters.contains(kSliding);
    if (nested && !family_.has(kLocalRope))
      keys_.refuse("rope_parameters",
                   "types of layers with rotary positions of their own, which this family has not");
    if (!nested) {
      RopeNumbers rope = flat(parameters, "rope_parameters", theta_);
      rope.local_theta = local_theta_;
      settle(rope, rope.theta);
      return rope;
    }
    const json none = json::object();
    const auto part = [&](const char* name) -> const json& {
      const auto found = parameters.find(name);
      if (found == parameters.end() || found->is_null()) return none;
      if (!found->is_object())
        keys_.refuse("rope_parameters", fmt::format("expected an object for {}", name));
      return *found;
    };
    RopeNumbers rope = flat(part(kFull), kFull, theta_);
    const RopeNumbers local = flat(part(kSliding), kSliding, local_theta_ != 0 ? local_theta_ : theta_);
    if (local.scaling != "none")
      keys_.refuse("rope_parameters", "layers with a window have scaled positions, which cannot be built");
    rope.local_theta = local_theta_ != 0 ? local.theta : 0;
    settle(rope, local.theta);
    return rope;
  }

  RopeNumbers flat(const json& object, std::string_view key, double theta) const {
    JsonKeys keys(object, fmt::format("{}: {}", keys_.origin(), key));
    RopeNumbers rope{keys.real("rope_theta", theta), scaling_.read(keys), 0, partial_};
    const double partial = keys.real_or_none("partial_rotary_factor", partial_).value_or(partial_);
    if (!family_.has(kPartialRotary) && partial != 1)
      keys.refuse("partial_rotary_factor", "heads of this family turn as a whole");
    rope.partial = partial;
    return rope;
  }

  // Where layers with a window have the same angles as the others, nothing is said of them.
  void settle(RopeNumbers& rope, double local_theta) const {
    if (!family_.has(kLocalRope) || rope.local_theta != 0) return;
    if (rope.scaling != "none" || local_theta != rope.theta) rope.local_theta = local_theta;
  }

  JsonKeys& keys_;
  const HubFamily& family_;
  double theta_, local_theta_ = 0, partial_ = 1;
  ScalingReader scaling_;
};

// "linear:factor=8" back to an object; empty for "none".
ordered_json object_of(const std::string& text) {
  ordered_json object = ordered_json::object();
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return object;
  object["rope_type"] = text.substr(0, colon);
  for (size_t at = colon + 1; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const size_t equals = text.find('=', at);
    TANDEM_CHECK(equals < end, "model.rope_scaling '{}'", text);
    const std::string name = text.substr(at, equals - at);
    ordered_json values = ordered_json::array();
    for (size_t item = equals + 1; item < end;) {
      double value = 0;
      const auto [last, error] = std::from_chars(text.data() + item, text.data() + end, value);
      TANDEM_CHECK(error == std::errc(), "model.rope_scaling '{}'", text);
      const bool whole =
          value == std::floor(value) && std::fabs(value) < 1e15 && (name == kOriginal || name == kPositions);
      values.push_back(whole ? ordered_json(static_cast<int64_t>(value)) : ordered_json(value));
      item = static_cast<size_t>(last - text.data()) + 1;
    }
    const bool is_list = name == "short_factor" || name == "long_factor";
    if (name == "truncate") values[0] = values[0] != 0.0;
    if (name != kPositions) object[name] = is_list ? values : values[0];
    at = end + 1;
  }
  return object;
}

}  // namespace

RopeNumbers read_rope(JsonKeys& keys, const HubFamily& family, int64_t positions) {
  return RopeReader(keys, family, positions).read();
}

void write_rope(ordered_json& json, const HubFamily& family, const RopeNumbers& rope) {
  const ordered_json scaling = object_of(rope.scaling);
  json["rope_theta"] = rope.theta;
  json["rope_scaling"] = scaling.empty() ? ordered_json(nullptr) : scaling;
  ordered_json parameters = scaling;
  if (scaling.empty()) parameters["rope_type"] = "default";
  parameters["rope_theta"] = rope.theta;
  if (family.has(kPartialRotary)) {
    json["partial_rotary_factor"] = parameters["partial_rotary_factor"] = rope.partial;
    if (scaling.contains(std::string(kOriginal)))
      json[std::string(kOriginal)] = scaling[std::string(kOriginal)];
  }
  if (family.has(kLocalRope)) {
    const double local = rope.local_theta != 0 ? rope.local_theta : rope.theta;
    if (family.local_theta != 0) json["rope_local_base_freq"] = local;
    parameters = {{kFull, parameters}, {kSliding, {{"rope_type", "default"}, {"rope_theta", local}}}};
  }
  json["rope_parameters"] = parameters;
}

}  // namespace tandem::hub
