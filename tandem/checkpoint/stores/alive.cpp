#include "tandem/checkpoint/stores/alive.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

constexpr std::string_view kAlivePrefix = "alive-";

std::string sign_name(const std::string& run) { return std::string(kAlivePrefix) + run; }

struct Look {
  std::optional<int64_t> sign;  // when it was put
  std::optional<int64_t> now;
};

Look look_at(const StoreRef& store, const std::string& sign, const std::string& probe) {
  Look look;
  for (const StoredObject& object : store->list(std::string(kAlivePrefix))) {
    if (object.name == sign) look.sign = object.modified;
    if (object.name == probe) look.now = object.modified;
  }
  return look;
}

}  // namespace

AliveSign::AliveSign(StoreRef store, const std::string& run, std::function<void(const std::string&)> say,
                     AliveTimes times)
    : store_(std::move(store)), name_(sign_name(run)), say_(std::move(say)), times_(times) {
  store_->put(name_, utc_time());
  thread_ = std::thread([this] { put_again(); });
}

AliveSign::~AliveSign() {
  bool in_trouble = false;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    in_trouble = in_trouble_;
  }
  ended_.notify_all();
  if (in_trouble) store_->give_up();
  thread_.join();
  if (in_trouble) return;
  try {
    store_->remove(name_);
  } catch (const Error&) {  // it will be 30 s old one day
  }
}

void AliveSign::put_again() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(times_.again_s), [this] { return is_over_; })) {
    lock.unlock();
    std::string trouble;
    try {
      store_->put(name_, utc_time());
    } catch (const Error& error) {
      trouble = error.what();
    }
    lock.lock();
    const bool is_new = !trouble.empty() && !in_trouble_ && !is_over_;
    in_trouble_ = !trouble.empty();
    if (is_new && say_) say_(fmt::format("the sign of life cannot be put, and is tried again: {}", trouble));
  }
}

LifeWatch::LifeWatch(StoreRef store, const std::string& run, AliveTimes times)
    : store_(std::move(store)), sign_(sign_name(run)), times_(times) {}

LifeWatch::~LifeWatch() {
  if (probe_.empty()) return;
  try {
    store_->remove(probe_);
  } catch (const Error&) {  // then it is an old sign
  }
}

Life LifeWatch::look() {
  if (!look_at(store_, sign_, {}).sign) return Life::Dead;
  if (probe_.empty()) {
    std::random_device random;
    probe_ = sign_name(fmt::format("probe-{:08x}{:08x}", random(), random()));
    end_s_ = steady_s() + times_.dead_s;
  }
  store_->put(probe_, utc_time());
  const Look look = look_at(store_, sign_, probe_);
  if (!look.sign) return Life::Dead;
  if (first_ && *look.sign != *first_) return Life::Alive;
  first_ = look.sign;
  if (look.now) age_s_ = std::max<int64_t>(0, *look.now - *look.sign);  // the owner tidies probes away
  // Whoever watched all that time and saw nothing needs no clock: a store may have none.
  if (static_cast<double>(age_s_) >= times_.dead_s || steady_s() >= end_s_) return Life::Dead;
  return Life::Unknown;
}

void throw_alive(const StoreRef& store, const Claim& owner) {
  throw DataError(
      "{}: {} is writing checkpoints there, and lives; name another checkpoint.store, or stop that run and "
      "go on from its newest with --resume-from-checkpoint {}",
      store->description(""), describe(owner), store->description(""));
}

std::vector<std::string> old_signs(const StoreRef& store) {
  std::vector<std::string> names;
  for (const StoredObject& object : store->list(std::string(kAlivePrefix))) {
    if (object.name.find('/') == std::string::npos) names.push_back(object.name);
  }
  if (names.empty()) return names;
  if (const std::optional<Claim> claim = newest_claim(store)) std::erase(names, sign_name(claim->run));
  return names;
}

}  // namespace tandem
