// log.wandb: online. The rows go into the run directory as they do offline, and from there to W&B's server:
// what the server has not taken by the run's end, `wandb sync` or the run's next start sends.
#pragma once

#include <optional>

#include "tandem/metrics/offline/wandb_sink.h"
#include "tandem/metrics/online/wandb_uploader.h"

namespace tandem {

class WandbOnlineSink final : public Sink {
 public:
  // Throws ConfigError where the environment has no key.
  explicit WandbOnlineSink(const SinkOptions& options) : WandbOnlineSink(options, wandb::Patience{}) {}
  WandbOnlineSink(const SinkOptions& options, wandb::Patience patience);

  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override;
  void finish() override;

 private:
  void tell_news();

  std::function<void(const std::string& sentence)> tell_;
  wandb::Access access_;
  wandb::Patience patience_;
  WandbSink file_;
  std::optional<wandb::Uploader> uploader_;  // last: it reads the file
};

}  // namespace tandem
