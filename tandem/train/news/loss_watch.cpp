#include "tandem/train/news/loss_watch.h"

#include <fmt/format.h>

#include "tandem/base/quantity.h"
#include "tandem/train/news/batch_facts.h"

namespace tandem {

void tell_news(const std::optional<LossWatch::News>& news, int64_t step, const StepResult& result,
               const Loader& loader, Journal& journal) {
  if (!news) return;
  const bool spike = news->kind == LossWatch::News::Kind::Spike;
  const std::string what = fmt::format(
      "loss {} at step {}, where {} was usual{}", format_loss(result.loss), step, format_loss(news->usual),
      spike ? "" : fmt::format("; it has not come down since step {}", news->since));
  journal.message("warning: " + what);
  nlohmann::json fields = {
      {"step", step}, {"loss", result.loss}, {"usual", news->usual}, {"since", news->since}};
  fields.update(batch_facts(loader, result));
  if (spike) {
    journal.event("spike", what, fields);
  } else {
    journal.event("diverging", what, fields);
  }
}

}  // namespace tandem
