#include "tandem/base/rope_frequencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>

#include "tandem/base/error.h"

namespace tandem {
namespace {

struct Kind {
  std::string_view name;
  std::vector<std::string_view> required, optional;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = {
      {"linear", {"factor"}, {}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}, {}},
      {"yarn",
       {"factor", "original_max_position_embeddings"},
       {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}},
      {"longrope",
       {"short_factor", "long_factor", "original_max_position_embeddings"},
       {"factor", "attention_factor", "max_position_embeddings"}},
  };
  return kKinds;
}

bool holds(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string_view take_until(std::string_view& text, char end) {
  const size_t at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return taken;
}

struct Scaling {
  std::string_view kind;
  std::map<std::string_view, std::vector<double>> numbers;
  std::string complaint;

  bool has(std::string_view name) const { return numbers.contains(name); }
  double number(std::string_view name) const { return numbers.at(name).front(); }
  double number_or(std::string_view name, double fallback) const {
    return has(name) ? number(name) : fallback;
  }
};

std::string complain_of_numbers(const Scaling& scaling, const Kind& kind, int64_t dims) {
  for (std::string_view name : kind.required) {
    if (!scaling.has(name)) return fmt::format("expected {} to have {}", kind.name, name);
  }
  for (const auto& [name, numbers] : scaling.numbers) {
    const bool list = name == "short_factor" || name == "long_factor";
    const auto expected = static_cast<size_t>(list ? dims / 2 : 1);
    if (numbers.size() != expected)
      return fmt::format("expected {} numbers of {}, found {}", expected, name, numbers.size());
    const bool flag = name == "truncate";
    const bool right = std::all_of(numbers.begin(), numbers.end(), [&](double number) {
      return std::isfinite(number) && (flag ? number == 0 || number == 1 : number > 0);
    });
    if (!right) return fmt::format("expected {} of {}", flag ? "0 or 1" : "positive numbers", name);
  }
  if (kind.name == "llama3" && scaling.number("high_freq_factor") <= scaling.number("low_freq_factor"))
    return "expected high_freq_factor above low_freq_factor";
  const bool has_factor =
      scaling.has("factor") || scaling.has("attention_factor") || scaling.has("max_position_embeddings");
  if (kind.name == "longrope" && !has_factor)
    return "expected longrope to have factor, attention_factor or max_position_embeddings";
  return "";
}

// One of a kind's names and its numbers, from NAME=NUMBER or NAME=NUMBER NUMBER.
std::string read_item(std::string_view item, const Kind& kind, Scaling& scaling) {
  const std::string_view name = take_until(item, '=');
  if (!holds(kind.required, name) && !holds(kind.optional, name)) {
    return fmt::format("expected {} to have {}{}{} only, found '{}'", kind.name,
                       fmt::join(kind.required, ", "), kind.optional.empty() ? "" : ", ",
                       fmt::join(kind.optional, ", "), name);
  }
  std::vector<double>& numbers = scaling.numbers[name];
  if (!numbers.empty()) return fmt::format("expected {} once", name);
  do {
    const std::string_view text = take_until(item, ' ');
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
      return fmt::format("expected a number of {}, found '{}'", name, text);
    numbers.push_back(number);
  } while (!item.empty());
  return "";
}

Scaling parse(std::string_view text, int64_t dims) {
  Scaling scaling;
  scaling.kind = take_until(text, ':');
  const auto kind = std::find_if(kinds().begin(), kinds().end(),
                                 [&](const Kind& known) { return known.name == scaling.kind; });
  if (kind == kinds().end()) {
    scaling.complaint = fmt::format(
        "expected none, or linear, llama3, yarn or longrope, then ':' and NAME=NUMBER,..., found '{}'",
        scaling.kind);
    return scaling;
  }
  while (!text.empty() && scaling.complaint.empty())
    scaling.complaint = read_item(take_until(text, ','), *kind, scaling);
  if (scaling.complaint.empty()) scaling.complaint = complain_of_numbers(scaling, *kind, dims);
  return scaling;
}

// theta to the power of 2 i / dims, in fp32.
std::vector<float> periods(double theta, int64_t dims) {
  std::vector<float> result;
  for (int64_t i = 0; i < dims; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dims);
    result.push_back(std::pow(static_cast<float>(theta), exponent));
  }
  return result;
}

// Waves that are long beside the original context are stretched, short ones stay, others lie between.
float llama3_frequency(const Scaling& s, float frequency) {
  const auto factor = static_cast<float>(s.number("factor"));
  const auto low = static_cast<float>(s.number("low_freq_factor"));
  const auto high = static_cast<float>(s.number("high_freq_factor"));
  const auto original = static_cast<float>(s.number("original_max_position_embeddings"));
  const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wave < original / high) return frequency;
  if (wave > original / low) return frequency / factor;
  const float smooth = (original / wave - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// The features between which yarn goes over from frequencies that stay to stretched ones.
std::pair<double, double> yarn_range(const Scaling& s, double theta, int64_t dims) {
  const auto feature = [&](double rotations) {
    const double original = s.number("original_max_position_embeddings");
    return static_cast<double>(dims) * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = feature(s.number_or("beta_fast", 32)), high = feature(s.number_or("beta_slow", 1));
  if (s.number_or("truncate", 1) != 0) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dims - 1));
  return {low, low == high ? high + 0.001 : high};
}

double yarn_factor(const Scaling& s) {
  if (s.has("attention_factor")) return s.number("attention_factor");
  const auto of = [&](double scale) {
    const double factor = s.number("factor");
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
  };
  if (!s.has("mscale") || !s.has("mscale_all_dim")) return of(1);
  return of(s.number("mscale")) / of(s.number("mscale_all_dim"));
}

RopeFrequencies yarn(const Scaling& s, double theta, int64_t dims) {
  const auto [low, high] = yarn_range(s, theta, dims);
  const auto factor = static_cast<float>(s.number("factor"));
  RopeFrequencies result{.values = {}, .factor = yarn_factor(s)};
  float i = 0;
  for (float period : periods(theta, dims)) {
    const float ramp = (i++ - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1 - std::clamp(ramp, 0.0f, 1.0f);
    result.values.push_back(1 / (factor * period) * (1 - kept) + 1 / period * kept);
  }
  return result;
}

double longrope_factor(const Scaling& s) {
  if (s.has("attention_factor")) return s.number("attention_factor");
  const double original = s.number("original_max_position_embeddings");
  const double factor = s.has("factor") ? s.number("factor") : s.number("max_position_embeddings") / original;
  return factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
}

RopeFrequencies longrope(const Scaling& s, double theta, int64_t dims, int64_t context) {
  const bool is_long = static_cast<double>(context) > s.number("original_max_position_embeddings");
  const std::vector<double>& factors = s.numbers.at(is_long ? "long_factor" : "short_factor");
  RopeFrequencies result{.values = {}, .factor = longrope_factor(s)};
  size_t i = 0;
  for (float period : periods(theta, dims))
    result.values.push_back(1 / (static_cast<float>(factors[i++]) * period));
  return result;
}

RopeFrequencies plain(double theta, int64_t dims) {
  RopeFrequencies result;
  const auto half = static_cast<double>(dims / 2);
  for (int64_t i = 0; i < dims / 2; ++i)
    result.values.push_back(std::pow(theta, -static_cast<double>(i) / half));
  return result;
}

}  // namespace

std::string rope_scaling_complaint(std::string_view scaling, int64_t dims) {
  return scaling == "none" ? "" : parse(scaling, dims).complaint;
}

RopeFrequencies rope_frequencies(double theta, int64_t dims, std::string_view scaling, int64_t context) {
  if (scaling == "none") return plain(theta, dims);
  const Scaling s = parse(scaling, dims);
  if (!s.complaint.empty()) throw ConfigError("rope scaling '{}': {}", scaling, s.complaint);
  if (s.kind == "yarn") return yarn(s, theta, dims);
  if (s.kind == "longrope") return longrope(s, theta, dims, context);
  RopeFrequencies result;
  for (float period : periods(theta, dims)) {
    const float frequency = 1 / period;
    const bool linear = s.kind == "linear";
    result.values.push_back(linear ? frequency / static_cast<float>(s.number("factor"))
                                   : llama3_frequency(s, frequency));
  }
  return result;
}

}  // namespace tandem
