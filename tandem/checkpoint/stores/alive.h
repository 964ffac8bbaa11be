// Whether the run that has claimed a store (claim.h) still lives. While it does, it puts the object alive-RUN
// again every few seconds. Whoever wants the store waits until that has been put again, which is a life, or
// is 30 s old, which is a death. Both by the store's clock alone: its "now" is the time that it gives to an
// object that is put for the purpose, so the clocks of two machines are never compared.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/checkpoint/stores/claim.h"

namespace tandem {

struct AliveTimes {
  double again_s = 10;  // between two signs
  double dead_s = 30;   // without one
  double look_s = 2;    // between two looks at another's
};

// The owner's: put from here on until it goes, and then taken back.
class AliveSign {
 public:
  // Throws IoError where the first one cannot be put. `store` is for this alone. What goes wrong later is
  // said, and tried again.
  AliveSign(StoreRef store, const std::string& run, std::function<void(const std::string&)> say,
            AliveTimes times = {});
  ~AliveSign();
  AliveSign(const AliveSign&) = delete;
  AliveSign& operator=(const AliveSign&) = delete;

 private:
  void put_again();

  StoreRef store_;
  std::string name_;
  std::function<void(const std::string&)> say_;
  AliveTimes times_;
  std::mutex mutex_;  // of the flags
  std::condition_variable ended_;
  bool is_over_ = false, in_trouble_ = false;
  std::thread thread_;
};

enum class Life { Dead, Alive, Unknown };

// Whether `run` lives, as seen by another.
class LifeWatch {
 public:
  LifeWatch(StoreRef store, const std::string& run, AliveTimes times = {});
  ~LifeWatch();
  LifeWatch(const LifeWatch&) = delete;
  LifeWatch& operator=(const LifeWatch&) = delete;

  // Unknown: look again in look_s. That comes to an end dead_s after the first look.
  Life look();
  int64_t age_s() const { return age_s_; }  // of the sign at the last look, as far as is known

 private:
  StoreRef store_;
  std::string sign_, probe_;
  AliveTimes times_;
  std::optional<int64_t> first_;  // when the sign was put that was seen first
  double end_s_ = 0;
  int64_t age_s_ = 0;
};

// "... is writing checkpoints there, and lives ..."
[[noreturn]] void throw_alive(const StoreRef& store, const Claim& owner);

// Signs of runs that do not have the newest claim: they are nobody's.
std::vector<std::string> old_signs(const StoreRef& store);

}  // namespace tandem
