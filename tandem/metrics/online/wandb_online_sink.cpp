#include "tandem/metrics/online/wandb_online_sink.h"

#include <fmt/format.h>

namespace tandem {

WandbOnlineSink::WandbOnlineSink(const SinkOptions& options, wandb::Patience patience)
    : tell_(options.tell),
      access_(wandb::access_of_environment()),
      patience_(patience),
      file_(options, /*online=*/true) {}

std::string WandbOnlineSink::resume(int64_t last) {
  const std::string problem = file_.resume(last);
  uploader_.emplace(access_, file_.facts(), file_.path(), last, patience_);
  uploader_->grown(file_.bytes());
  return problem;
}

void WandbOnlineSink::write(const StepRecord& record) {
  file_.write(record);
  uploader_->grown(file_.bytes());
  tell_news();
}

void WandbOnlineSink::sync() {
  file_.sync();
  uploader_->grown(file_.bytes());
}

void WandbOnlineSink::finish() {
  file_.finish();
  uploader_->grown(file_.bytes());
  const bool all = uploader_->end(/*complete=*/true);
  tell_news();
  if (!all && tell_)
    tell_(fmt::format("W&B does not have all rows of run {}; `wandb sync {}` sends them", file_.facts().id,
                      file_.path().parent_path().string()));
}

void WandbOnlineSink::tell_news() {
  for (const std::string& sentence : uploader_->take_news()) {
    if (tell_) tell_(sentence);
  }
}

}  // namespace tandem
