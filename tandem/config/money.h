// Money as users write it: 500USD, and 12.5USD/h.
#pragma once

namespace tandem {

struct Dollars {
  double usd = 0;
  bool operator==(const Dollars&) const = default;
};

struct HourlyPrice {
  double usd = 0;  // an hour
  bool operator==(const HourlyPrice&) const = default;
};

}  // namespace tandem
