// Where a rank is in its step, in memory that its launcher made and reads: which command runs on each of its
// streams, which collectives it stands in, what the launcher knows of all ranks.
//
// A rank writes a cache line for each command, with plain stores and without a look at the clock: the
// launcher reads a few times a second, and how long a line stays as it is tells it how long a command takes.
// The launcher names the memory in TANDEM_PLACE_PAGE. Where it does not, nothing is written.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "tandem/base/mesh.h"

namespace tandem {

inline constexpr const char* kPlaceVariable = "TANDEM_PLACE_PAGE";

enum class PlaceState : uint8_t { Starting, Connecting, Compiling, Restoring, Running, Saving, Done };
inline constexpr int kNumPlaceStates = 7;
std::string_view state_name(PlaceState state);  // "running"

enum class Doing : uint8_t { Nothing, Computes, WaitsForStream, Communicates, WaitsForDevice };

// What one thread does.
struct LineRecord {
  int32_t index = 0;     // of the command in its program; of a call, how many were made on its axis so far
  int32_t block = -1;    // -1: outside blocks
  float expected_s = 0;  // a generous guess for a command that was never seen before
  Doing doing = Doing::Nothing;
  uint8_t axis = 0;   // of a call
  int16_t peer = -1;  // of a message, in its group
  char name[40] = {};

  void set_name(std::string_view text);
  std::string_view get_name() const { return {name, strnlen(name, sizeof(name))}; }
  // Of a call: what its communicator was told about it, behind the operation's name.
  std::string_view get_label() const {
    const size_t begin = std::min(get_name().size() + 1, sizeof(name));
    return {name + begin, strnlen(name + begin, sizeof(name) - begin)};
  }
};

// What the rank as a whole does.
struct MainRecord {
  int64_t step = 0;  // 0: none yet
  int32_t pass = 0;  // of `passes`, from 1
  int32_t passes = 0;
  int32_t commands = 0;  // of the program
  PlaceState state = PlaceState::Starting;
  char program[16] = {};
  char what[16] = {};  // where no command runs: "data"
};

// One writer, any number of readers, in one cache line: the first word is odd while the others are written.
template <typename Record>
struct alignas(64) PlaceLine {
  static constexpr size_t kWords = 7;
  static_assert(sizeof(Record) <= kWords * 8 && std::is_trivially_copyable_v<Record>);

  void write(const Record& record) {
    uint64_t copy[kWords] = {};
    std::memcpy(copy, &record, sizeof(record));
    const uint64_t next = version.load(std::memory_order_relaxed) + 1;
    version.store(next, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t i = 0; i < kWords; ++i) words[i].store(copy[i], std::memory_order_relaxed);
    version.store(next + 1, std::memory_order_release);
  }

  // Who was stopped in the middle of writing is read as it stands.
  Record read(uint64_t* seen = nullptr) const {
    uint64_t copy[kWords] = {}, before = 0;
    for (int attempt = 0; attempt < 1000; ++attempt) {
      before = version.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) copy[i] = words[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && version.load(std::memory_order_relaxed) == before) break;
    }
    if (seen != nullptr) *seen = before;
    Record record;
    std::memcpy(static_cast<void*>(&record), copy, sizeof(record));
    return record;
  }

  std::atomic<uint64_t> version;
  std::atomic<uint64_t> words[kWords];
};

// Collectives of an axis are made by one thread at a time; messages may go beside them.
enum class CallKind : uint8_t { Collective, Send, Recv };
inline constexpr int kNumCallKinds = 3;

struct PlacePage {
  static constexpr uint64_t kMagic = 0x3165676150656361;
  static constexpr int kStreams = 4;
  static constexpr int kSteps = 32;  // whose times are kept
  static constexpr int kRunBytes = 1024;
  static constexpr int kBoardBytes = 256 << 10;

  std::atomic<uint64_t> magic;  // last to be written
  int32_t rank, data, tensor, pipeline;
  char run_dir[kRunBytes];
  PlaceLine<MainRecord> main;
  PlaceLine<LineRecord> streams[kStreams];
  PlaceLine<LineRecord> calls[kNumAxes][kNumCallKinds];
  std::atomic<uint64_t> moved;       // counts, while calls are under way: bytes go over the network
  std::atomic<uint64_t> steps_done;  // in this process
  std::atomic<uint64_t> busy_us[kSteps];
  // By the launcher, for the rank that keeps status.json: what it knows of all ranks, as JSON.
  std::atomic<uint64_t> board_version;
  std::atomic<uint32_t> board_bytes;
  char board[kBoardBytes];

  bool is_used() const { return magic.load(std::memory_order_acquire) == kMagic; }
  std::string run_path() const { return {run_dir, strnlen(run_dir, kRunBytes)}; }
  void write_board(std::string_view text);  // shortened to nothing where it has no room
  std::string read_board() const;           // empty where there is none
};

// --- For the rank. A process has one page, and is one rank.

// Before anything else is told. Does nothing where no launcher asks, or its memory cannot be reached.
void open_place(int rank, const MeshShape& shape);
void close_place();
PlacePage* place_page();  // null: nobody reads

void tell_run_directory(std::string_view path);
void tell_state(PlaceState state, std::string_view what = "");
void tell_step(int64_t step);
void tell_pass(int64_t pass, int64_t passes);
void tell_program(std::string_view name, int64_t commands);
void tell_what(std::string_view what);        // where no command runs
void tell_moved();                            // bytes of a call, over a network
void tell_busy(int64_t step, double busy_s);  // a step is done; the time in which no peer was waited for

// While one lives, the rank is in that state; then again in the one before.
class PlacedState {
 public:
  explicit PlacedState(PlaceState state);
  ~PlacedState();
  PlacedState(const PlacedState&) = delete;
  PlacedState& operator=(const PlacedState&) = delete;

 private:
  PlaceState before_;
};

// While one lives, this rank is in a call of an axis.
class PlacedCall {
 public:
  PlacedCall(std::string_view axis, CallKind kind, std::string_view operation, std::string_view label,
             int peer = -1);
  ~PlacedCall();
  PlacedCall(const PlacedCall&) = delete;
  PlacedCall& operator=(const PlacedCall&) = delete;

 private:
  PlaceLine<LineRecord>* line_ = nullptr;
  LineRecord record_;
};

}  // namespace tandem
