#include "tandem/plan/simulate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "tandem/base/error.h"

namespace tandem::plan {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kRunAhead = 4;  // items that the CPU may be ahead of the GPU
bool is_known(double time) { return time == time; }

// A message from one stage to another: both sides come to it, then it takes its time.
struct Message {
  double send_ready = kUnknown;
  double recv_ready = kUnknown;
  double seconds = 0;
  double begin() const { return std::max(send_ready, recv_ready); }
  bool is_complete() const { return is_known(send_ready) && is_known(recv_ready); }
};

// Messages of each pair of stages, in order.
class Mail {
 public:
  std::vector<Message>& between(int from, int to) { return channels_[{from, to}]; }
  Message& at(int from, int to, size_t index) {
    std::vector<Message>& channel = between(from, to);
    if (channel.size() <= index) channel.resize(index + 1);
    return channel[index];
  }

 private:
  std::map<std::pair<int, int>, std::vector<Message>> channels_;
};

// An all-reduce of all stages.
struct Meeting {
  int arrived = 0;
  double begin = 0;
};

class Rank {
 public:
  Rank(int stage, int stages, const Program& program, const SimulationOptions& options, Mail& mail,
       std::vector<Meeting>& meetings)
      : stage_(stage),
        stages_(stages),
        program_(program),
        options_(options),
        mail_(mail),
        meetings_(meetings) {}

  bool is_done() const { return run_ == program_.size(); }
  double now() const { return now_; }
  RankTime& time() { return time_; }

  // As far as it gets without the others; whether it got anywhere.
  bool advance() {
    bool moved = false;
    while (!is_done()) {
      const std::vector<Item>& items = *program_[run_].items;
      if (next_ == items.size()) {
        if (!finish_run()) return moved;
      } else if (step(items[next_])) {
        ++next_;
      } else {
        return moved;
      }
      moved = true;
    }
    return moved;
  }

 private:
  struct Ended {
    double end = kUnknown;  // of a send that waits for its recv
    int peer = -1;          // where the send goes, and which one it is
    size_t index = 0;
  };

  // When an earlier item of a stream ended; kUnknown while its peer has not come.
  double end_of(int stream, int back) {
    std::vector<Ended>& history = history_[static_cast<size_t>(stream)];
    const auto size = static_cast<int>(history.size());
    if (back >= size) return 0;  // of an earlier run, which has ended
    Ended& item = history[static_cast<size_t>(size - 1 - back)];
    if (!is_known(item.end)) {
      const Message& message = mail_.at(stage_, item.peer, item.index);
      if (message.is_complete()) item.end = message.begin() + message.seconds;
    }
    return item.end;
  }
  double end_of_stream(int stream) { return end_of(stream, 0); }

  double& part_of(Axis axis) {
    TimeParts& parts = time_.parts;
    if (axis == Axis::Tensor) return parts.comm_tensor;
    return axis == Axis::Pipeline ? parts.comm_pipeline : parts.comm_data;
  }
  double& part_of_stream(int stream) {
    if (stream == kSendStream) return time_.parts.comm_pipeline;
    return stream == kCopyStream ? time_.parts.host : time_.parts.comm_data;
  }

  // False where it has to wait for another rank first.
  bool step(const Item& item) {
    double ready = item.stream == kComputeStream ? now_ : std::max(now_, end_of_stream(item.stream));
    if (!is_known(ready)) return false;
    int cause = item.stream;
    for (const Wait& wait : item.waits) {
      const double end = end_of(wait.stream, wait.back);
      if (!is_known(end)) return false;
      if (end > ready) {
        ready = end;
        cause = wait.stream;
      }
    }
    if (item.stream == kComputeStream) {
      double issued = std::max(issued_, now_ - kRunAhead * options_.issue);
      if (item.kind == Kind::Kernel) issued += options_.issue;
      if (issued > ready) {
        ready = issued;
        cause = kCopyStream;  // the host's part
      }
      if (!compute(item, ready, cause)) return false;
      issued_ = issued;
      return true;
    }
    beside(item, ready);
    return true;
  }

  void beside(const Item& item, double ready) {
    count(item);
    std::vector<Ended>& history = history_[static_cast<size_t>(item.stream)];
    if (item.kind == Kind::Send) {
      const size_t index = sends_[item.peer]++;
      Message& message = mail_.at(stage_, item.peer, index);
      message.send_ready = ready;
      message.seconds = item.seconds;
      history.push_back({kUnknown, item.peer, index});
      observe(item, ready, ready + item.seconds);
      return;
    }
    history.push_back({ready + item.seconds, -1, 0});
    observe(item, ready, ready + item.seconds);
  }

  // On the stream of computation, which everything else is measured by.
  bool compute(const Item& item, double ready, int cause) {
    double begin = ready, end = ready;
    TimeParts& parts = time_.parts;
    TimeParts spent;  // only if it can run now
    switch (item.kind) {
      case Kind::Recv: {
        const size_t index = recvs_[item.peer];
        Message& message = mail_.at(item.peer, stage_, index);
        message.recv_ready = ready;
        if (!is_known(message.send_ready)) return false;
        ++recvs_[item.peer];
        begin = message.begin();
        end = begin + message.seconds;
        spent.bubble = begin - ready;
        spent.comm_pipeline = message.seconds;
        break;
      }
      case Kind::World: {
        if (meetings_.size() <= met_) meetings_.resize(met_ + 1);
        Meeting& meeting = meetings_[met_];
        if (!arrived_) {
          ++meeting.arrived;
          meeting.begin = std::max(meeting.begin, ready);
          arrived_ = true;
        }
        if (meeting.arrived < stages_) return false;
        arrived_ = false;
        ++met_;
        begin = meeting.begin;
        end = begin + item.seconds;
        spent.bubble = begin - ready;
        spent.comm_pipeline = item.seconds;
        break;
      }
      case Kind::Send: TANDEM_CHECK(false, "sends have a stream of their own"); break;
      case Kind::Collective: end = begin + item.seconds; break;
      case Kind::Kernel: end = begin + options_.launch + slowed(begin, item.seconds); break;
      case Kind::Host:
      case Kind::Copy: end = begin + item.seconds; break;
    }
    part_of_stream_or_compute(cause) += ready - now_;
    parts.bubble += spent.bubble;
    parts.comm_pipeline += spent.comm_pipeline;
    if (item.kind == Kind::Collective) part_of(item.axis) += end - begin;
    if (item.kind == Kind::Host || item.kind == Kind::Copy) parts.host += end - begin;
    if (item.kind == Kind::Kernel) {
      parts.host += options_.launch;
      parts.compute += end - begin - options_.launch;
    }
    now_ = end;
    history_[kComputeStream].push_back({end, -1, 0});
    count(item);
    observe(item, begin, end);
    return true;
  }

  // Of a gap before computation: what it waited for. There is none where nothing was waited for.
  double& part_of_stream_or_compute(int stream) {
    return stream == kComputeStream ? time_.parts.compute : part_of_stream(stream);
  }

  // Collectives of the data axis take their share of memory and multiprocessors while they last.
  double slowed(double begin, double seconds) {
    const double busy_until = end_of_stream(kDataStream);
    if (!is_known(busy_until) || busy_until <= begin || options_.slowdown <= 0) return seconds;
    const double slow = seconds * (1 + options_.slowdown);
    if (begin + slow <= busy_until) return slow;
    const double beside = busy_until - begin;
    return beside + seconds - beside / (1 + options_.slowdown);
  }

  void count(const Item& item) {
    (item.between ? time_.sent.between_nodes : time_.sent.within_node) += item.bytes;
  }
  void observe(const Item& item, double begin, double end) {
    if (options_.observe) options_.observe(stage_, item, begin, end);
  }

  // The next run begins when all streams are done.
  bool finish_run() {
    if (!program_[run_].joins) {
      begin_next();
      return true;
    }
    std::array<double, kNumStreams> ends;
    for (int stream = 0; stream < kNumStreams; ++stream) {
      ends[static_cast<size_t>(stream)] = end_of_stream(stream);
      if (!is_known(ends[static_cast<size_t>(stream)])) return false;
    }
    for (int stream = 1; stream < kNumStreams; ++stream) {
      const double gap = ends[static_cast<size_t>(stream)] - now_;
      if (gap <= 0) continue;
      part_of_stream(stream) += gap;
      now_ += gap;
    }
    for (std::vector<Ended>& history : history_) history.clear();
    begin_next();
    return true;
  }

  void begin_next() {
    next_ = 0;
    if (++times_ < program_[run_].times) return;
    times_ = 0;
    ++run_;
  }

  const int stage_, stages_;
  const Program& program_;
  const SimulationOptions& options_;
  Mail& mail_;
  std::vector<Meeting>& meetings_;
  size_t run_ = 0, next_ = 0, met_ = 0;
  int times_ = 0;
  bool arrived_ = false;
  double issued_ = 0;  // when the CPU had issued all before
  double now_ = 0;     // when computation is done with all before
  std::array<std::vector<Ended>, kNumStreams> history_;
  std::map<int, size_t> sends_, recvs_;  // to and from each stage so far
  RankTime time_;
};

}  // namespace

Simulation simulate(std::span<const Program> programs, const SimulationOptions& options) {
  Mail mail;
  std::vector<Meeting> meetings;
  std::vector<Rank> ranks;
  ranks.reserve(programs.size());
  const auto stages = static_cast<int>(programs.size());
  for (int stage = 0; stage < stages; ++stage)
    ranks.emplace_back(stage, stages, programs[static_cast<size_t>(stage)], options, mail, meetings);
  bool moved = true;
  while (moved) {
    moved = false;
    for (Rank& rank : ranks) moved = rank.advance() || moved;
  }
  Simulation result;
  for (Rank& rank : ranks) {
    TANDEM_CHECK(rank.is_done(), "the ranks of this plan wait for each other");
    result.seconds = std::max(result.seconds, rank.now());
  }
  for (Rank& rank : ranks) {
    rank.time().parts.bubble += result.seconds - rank.now();
    rank.time().parts.host += options.step_overhead;
    result.ranks.push_back(rank.time());
  }
  result.seconds += options.step_overhead;
  return result;
}

}  // namespace tandem::plan
