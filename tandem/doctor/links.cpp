#include "tandem/doctor/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/base/system.h"

namespace tandem::doctor {
namespace {

constexpr int64_t kMessageBytes = int64_t{1} << 20;

template <typename Value>
std::span<std::byte> bytes_of(Value& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Between this rank and `peer`; both call the matching functions.
class Pair {
 public:
  Pair(Communicator& comm, int peer, const LinkOptions& options)
      : comm_(comm), peer_(peer), options_(options), chunk_(kMessageBytes) {}

  // The answer is the peer's clock. The shortest round trip tells the most of both.
  void ping(Link& link) {
    double shortest = 1e9;
    for (int i = 0; i < options_.pings; ++i) {
      double question = 0, answer = 0;
      const double begun = steady_s(), date = unix_s();
      comm_.send(bytes_of(question), peer_, "ping");
      comm_.recv(bytes_of(answer), peer_, "ping");
      const double took = steady_s() - begun;
      if (took >= shortest) continue;
      shortest = took;
      link.latency_s = took / 2;
      link.clock_s = answer - (date + took / 2);
    }
  }

  void answer() {
    for (int i = 0; i < options_.pings; ++i) {
      double question = 0;
      comm_.recv(bytes_of(question), peer_, "ping");
      double date = unix_s();
      comm_.send(bytes_of(date), peer_, "ping");
    }
  }

  // The last and longest try counts: what comes before it fills the queues on the way, and what a limiter
  // lets through at once.
  double send() {
    double rate = 0;
    for (int64_t size = options_.first_bytes;; size *= 2) {
      const double begun = steady_s();
      announce(size);
      for (int64_t left = size; left > 0; left -= kMessageBytes) comm_.send(part(left), peer_, "bytes");
      int64_t arrived = 0;
      comm_.recv(bytes_of(arrived), peer_, "arrived");
      const double took = std::max(1e-9, steady_s() - begun);
      rate = static_cast<double>(size) / took;
      if (took >= options_.enough_s || size * 2 > options_.most_bytes) break;
    }
    announce(0);
    return rate;
  }

  void receive() {
    for (;;) {
      int64_t size = 0;
      comm_.recv(bytes_of(size), peer_, "size");
      if (size == 0) return;
      for (int64_t left = size; left > 0; left -= kMessageBytes) comm_.recv(part(left), peer_, "bytes");
      comm_.send(bytes_of(size), peer_, "arrived");
    }
  }

 private:
  void announce(int64_t size) { comm_.send(bytes_of(size), peer_, "size"); }
  std::span<std::byte> part(int64_t left) {
    return std::span(chunk_).first(static_cast<size_t>(std::min(left, kMessageBytes)));
  }

  Communicator& comm_;
  const int peer_;
  const LinkOptions& options_;
  std::vector<std::byte> chunk_;
};

}  // namespace

int num_rounds(int count) { return count + count % 2 - 1; }

// The circle method: one stays, the others move on by one place each round; an odd one out has a free round.
std::vector<std::pair<int, int>> round_of(int count, int round) {
  const int places = count + count % 2;
  std::vector<std::pair<int, int>> pairs;
  const auto at = [&](int place) { return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1); };
  for (int place = 0; place < places / 2; ++place) {
    const int a = at(place), b = at(places - 1 - place);
    if (a < count && b < count) pairs.emplace_back(std::min(a, b), std::max(a, b));
  }
  return pairs;
}

LinkTable measure_links(Communicator& comm, const std::vector<int>& ends, const LinkOptions& options) {
  const auto count = static_cast<int>(ends.size());
  const auto found = std::find(ends.begin(), ends.end(), comm.rank());
  const int own = found == ends.end() ? -1 : static_cast<int>(found - ends.begin());
  LinkTable table(ends.size(), std::vector<Link>(ends.size()));
  for (int round = 0; count > 1 && round < num_rounds(count); ++round) {
    for (const auto& [low, high] : round_of(count, round)) {
      if (own != low && own != high) continue;
      const int other = own == low ? high : low;
      Pair pair(comm, ends[static_cast<size_t>(other)], options);
      Link& link = table[static_cast<size_t>(own)][static_cast<size_t>(other)];
      if (own == low) {
        pair.ping(link);
        pair.answer();
        link.bytes_per_s = pair.send();
        pair.receive();
      } else {
        pair.answer();
        pair.ping(link);
        pair.receive();
        link.bytes_per_s = pair.send();
      }
    }
    comm.barrier("round");
  }
  // Each end knows its own row; together they are the table.
  constexpr size_t kFigures = 3;
  std::vector<double> figures(ends.size() * ends.size() * kFigures);
  const auto at = [&](size_t from, size_t to) {
    return figures.data() + (from * ends.size() + to) * kFigures;
  };
  for (size_t from = 0; from < ends.size(); ++from) {
    for (size_t to = 0; to < ends.size(); ++to) {
      const Link& link = table[from][to];
      const std::array<double, kFigures> row{link.bytes_per_s, link.latency_s, link.clock_s};
      std::copy(row.begin(), row.end(), at(from, to));
    }
  }
  if (!figures.empty()) comm.all_reduce(std::as_writable_bytes(std::span(figures)), DType::F64, "links");
  for (size_t from = 0; from < ends.size(); ++from) {
    for (size_t to = 0; to < ends.size(); ++to)
      table[from][to] = {at(from, to)[0], at(from, to)[1], at(from, to)[2]};
  }
  return table;
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& text) {
  const auto count = static_cast<size_t>(comm.size());
  int64_t own = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(count);
  comm.all_gather(bytes_of(own), std::as_writable_bytes(std::span(sizes)), "sizes");
  const auto longest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::byte> padded(longest), all(longest * count);
  std::memcpy(padded.data(), text.data(), text.size());
  if (longest > 0) comm.all_gather(padded, all, "texts");
  std::vector<std::string> texts;
  for (size_t i = 0; i < count; ++i)
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + i * longest),
                       static_cast<size_t>(sizes[i]));
  return texts;
}

}  // namespace tandem::doctor
