// A set of training samples, each a pure function of its index: no order, no cursor, no state. Order comes
// from the Sampler, batches and threads from the Loader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

enum class SampleKind { Tokens, Images };
enum class Split { Train, Eval };

struct SampleSpec {
  SampleKind kind = SampleKind::Tokens;
  int64_t context = 0;                          // tokens a sample; 0 for images
  int64_t height = 0, width = 0, channels = 0;  // 0 for tokens
  int64_t num_classes = 0;                      // every target is below this: the vocabulary, or the labels
  bool documents = false;  // of tokens: segments and positions, too, and no target across documents
  bool mixed = false;      // of images: partner and share, too

  int64_t input_elems() const { return kind == SampleKind::Tokens ? context : height * width * channels; }
  int64_t num_targets() const { return kind == SampleKind::Tokens ? context : 1; }
};

constexpr int32_t kNoTarget = -1;  // a position that counts in no loss

// Where a sample is written: `tokens` or `image`, as its kind says, and `targets`. With SampleSpec::documents
// `segments` and `positions` are there and hold one document from position 0 on; a set that knows where
// documents begin writes over them.
struct SampleBuffers {
  int32_t* tokens = nullptr;    // [context]
  float* image = nullptr;       // [height, width, channels]
  int32_t* targets = nullptr;   // [context]: the next tokens; or [1]: the label
  int32_t* segments = nullptr;  // [context]: the number of the document within the sample: 0, 0, 1, 1, 1
  int32_t* positions =
      nullptr;  // [context]: of the token within its document, or the part of it that is here
  // With SampleSpec::mixed: the label of the other image in it, and the share of its own, at least a half.
  int32_t* partner = nullptr;
  float* share = nullptr;
  // In training the number of the sample in the order of all ranks, over all epochs: with the seed, the key
  // of all that is changed at random. Below 0 nothing is.
  int64_t draw = -1;
};

// A part of a set that is drawn from by weight.
struct DatasetPart {
  int64_t num_samples = 0;
  double weight = 1.0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual SampleSpec spec() const = 0;
  virtual int64_t num_samples() const = 0;
  virtual void fill(int64_t index, const SampleBuffers& out) const = 0;  // from any thread
  virtual int64_t num_valid_targets(int64_t /*index*/) const { return spec().num_targets(); }
  // Will be asked for soon. What comes from far away is on its way then; from any thread.
  virtual void expect(int64_t /*index*/) const {}

  // Whether it knows where documents begin; where it does not, it is all one.
  virtual bool knows_documents() const { return false; }

  // One behind the other; training draws from each by its weight.
  virtual std::vector<DatasetPart> parts() const { return {{num_samples(), 1.0}}; }

  // Whether samples next to each other come from the same place, so that the first ones do not stand for all.
  virtual bool is_in_order() const { return false; }

  // What a user should know of it at the start; empty: nothing.
  virtual std::string note() const { return {}; }
  // Samples found so far that cannot be read and were left out.
  virtual int64_t num_left_out() const { return 0; }

  // What no model can beat in expectation, where the set knows it: nats a target, and a share of targets.
  virtual std::optional<double> loss_floor() const { return std::nullopt; }
  virtual std::optional<double> best_accuracy() const { return std::nullopt; }
};

}  // namespace tandem
