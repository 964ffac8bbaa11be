#include "tandem/metrics/webhook.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/http/client.h"
#include "tandem/http/url.h"
#include "tandem/metrics/offline/run_name.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kTold[] = {
    "start",      "resume",         "end",   "interrupt", "failure",
    "diverged",   "diverging",      "spike", "straggler", "checkpoint_failed",
    "early_stop", "bad_checkpoint", "budget"};

}  // namespace

bool Webhook::is_told(std::string_view type) {
  return std::find(std::begin(kTold), std::end(kTold), type) != std::end(kTold);
}

Webhook::Webhook(std::string url, const std::filesystem::path& run_dir, Patience patience)
    : url_(std::move(url)), run_(run_name(run_dir)), host_(hostname()), patience_(patience), thread_([this] {
        work();
      }) {}

Webhook::~Webhook() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    give_up_ = Clock::now() + patience_.at_end;
  }
  changed_.notify_all();
}

void Webhook::tell(std::string_view type, std::string_view message, const nlohmann::json& fields) {
  nlohmann::json object = {
      {"run", run_},        {"host", host_},
      {"time", utc_time()}, {"type", type},
      {"message", message}, {"text", fmt::format("{} on {}: {}: {}", run_, host_, type, message)}};
  if (fields.is_object()) object.update(fields);
  const std::lock_guard lock(mutex_);
  waiting_.push_back(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (waiting_.size() > patience_.most) waiting_.pop_front();
  changed_.notify_all();
}

std::vector<std::string> Webhook::take_troubles() {
  const std::lock_guard lock(mutex_);
  return std::exchange(troubles_, {});
}

// Between tries it waits, but not longer than the run.
std::string Webhook::deliver(const std::string& body) {
  std::string trouble;
  for (int attempt = 1; attempt <= patience_.tries; ++attempt) {
    auto limit = patience_.call;
    {
      std::unique_lock lock(mutex_);
      if (attempt > 1) changed_.wait_for(lock, patience_.between, [this] { return ending_; });
      if (give_up_ != Clock::time_point::max())
        limit = std::min(limit, std::chrono::ceil<std::chrono::milliseconds>(give_up_ - Clock::now()));
    }
    if (limit.count() <= 0) return trouble.empty() ? "the run has ended meanwhile" : trouble;
    trouble = client_.post_json(url_, body, limit).trouble;
    if (trouble.empty()) return "";
  }
  return trouble;
}

void Webhook::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::string body = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const std::string trouble = deliver(body);
    lock.lock();
    if (trouble.empty()) {
      failing_ = false;
    } else if (!std::exchange(failing_, true)) {
      troubles_.push_back(
          fmt::format("log.webhook: {} is not told: {}; training goes on", http::host_of(url_), trouble));
    }
    if (ending_ && Clock::now() >= give_up_) return;
  }
}

}  // namespace tandem
