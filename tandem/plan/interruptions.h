// What saving and being interrupted cost. d is how long a save stops training, M the mean time between
// interruptions of the whole cluster, R the time from one to the first new step; all in seconds.
#pragma once

namespace tandem::plan {

struct Interruptions {
  double save = 0;     // d
  double mean = 0;     // M
  double restart = 0;  // R
};

double young_interval(const Interruptions& of);  // sqrt(2 d M)
double daly_interval(const Interruptions& of);   // Daly's higher-order estimate

// Daly's expected wall time for work of so many seconds, saved every `interval` of work. Interruptions come
// at any time, during saves and restarts too.
double expected_seconds(const Interruptions& of, double work, double interval);

// Shares of the work, to first order: what saves, lost work and restarts add.
struct Overhead {
  double saves = 0;
  double lost = 0;
  double restarts = 0;
  double total() const { return saves + lost + restarts; }
};
Overhead first_order(const Interruptions& of, double interval);

// With a notice that is long enough to save, nothing is lost but that save.
Overhead first_order_with_notice(const Interruptions& of, double interval);

}  // namespace tandem::plan
