#include "tandem/comm/places/place_page.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "tandem/base/error.h"
#include "tandem/comm/shared_region.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, kNumPlaceStates> kStateNames = {
    "starting", "connecting", "compiling", "restoring", "running", "saving", "done"};

std::shared_ptr<SharedRegion> g_region;
std::atomic<PlacePage*> g_page{nullptr};
MainRecord g_main;  // what the page says; written by the thread that trains

template <size_t N>
void copy_text(char (&to)[N], std::string_view text) {
  const size_t size = std::min(text.size(), N);
  std::memset(to, 0, N);
  std::memcpy(to, text.data(), size);
}

// Changes what the page says of the whole rank. Ranks that are threads have none, and nothing to write here.
template <typename Change>
void change_main(Change&& change) {
  PlacePage* page = place_page();
  if (page == nullptr) return;
  change(g_main);
  page->main.write(g_main);
}

}  // namespace

std::string_view state_name(PlaceState state) {
  return kStateNames[std::min<size_t>(static_cast<size_t>(state), kStateNames.size() - 1)];
}

void LineRecord::set_name(std::string_view text) { copy_text(name, text); }

void PlacePage::write_board(std::string_view text) {
  if (text.size() > static_cast<size_t>(kBoardBytes)) text = {};
  const uint64_t next = board_version.load(std::memory_order_relaxed) + 1;
  board_version.store(next, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(board, text.data(), text.size());
  board_bytes.store(static_cast<uint32_t>(text.size()), std::memory_order_relaxed);
  board_version.store(next + 1, std::memory_order_release);
}

std::string PlacePage::read_board() const {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const uint64_t before = board_version.load(std::memory_order_acquire);
    const uint32_t size = std::min<uint32_t>(board_bytes.load(std::memory_order_relaxed), kBoardBytes);
    std::string text(board, size);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && board_version.load(std::memory_order_relaxed) == before) return text;
  }
  return {};
}

void open_place(int rank, const MeshShape& shape) {
  const char* ticket = std::getenv(kPlaceVariable);
  if (ticket == nullptr || *ticket == '\0' || g_page.load() != nullptr) return;
  try {
    g_region = SharedRegion::open(ticket, sizeof(PlacePage));
  } catch (const CommError&) {
    return;  // the launcher then knows less of this rank, and its peers all that they need
  }
  auto* page = std::launder(reinterpret_cast<PlacePage*>(g_region->data()));
  page->rank = rank;
  page->data = shape.data;
  page->tensor = shape.tensor;
  page->pipeline = shape.pipeline;
  g_main = {};
  page->main.write(g_main);
  page->magic.store(PlacePage::kMagic, std::memory_order_release);
  g_page.store(page, std::memory_order_release);
}

void close_place() {
  g_page.store(nullptr);
  g_region.reset();
}

PlacePage* place_page() { return g_page.load(std::memory_order_relaxed); }

void tell_run_directory(std::string_view path) {
  PlacePage* page = place_page();
  if (page != nullptr && path.size() < PlacePage::kRunBytes) copy_text(page->run_dir, path);
}

void tell_state(PlaceState state, std::string_view what) {
  change_main([&](MainRecord& main) {
    main.state = state;
    copy_text(main.what, what);
  });
}

void tell_step(int64_t step) {
  change_main([&](MainRecord& main) {
    main.state = PlaceState::Running;
    main.step = step;
    main.pass = main.passes = 0;
    copy_text(main.what, "");
  });
}

void tell_pass(int64_t pass, int64_t passes) {
  change_main([&](MainRecord& main) {
    main.pass = static_cast<int32_t>(pass);
    main.passes = static_cast<int32_t>(passes);
  });
}

void tell_program(std::string_view name, int64_t commands) {
  change_main([&](MainRecord& main) {
    copy_text(main.program, name);
    main.commands = static_cast<int32_t>(commands);
  });
}

void tell_what(std::string_view what) {
  change_main([&](MainRecord& main) { copy_text(main.what, what); });
}

void tell_moved() {
  if (PlacePage* page = place_page()) page->moved.fetch_add(1, std::memory_order_relaxed);
}

void tell_busy(int64_t step, double busy_s) {
  PlacePage* page = place_page();
  if (page == nullptr) return;
  const uint64_t done = page->steps_done.load(std::memory_order_relaxed);
  const auto micros = static_cast<uint64_t>(std::max(busy_s, 0.0) * 1e6);
  page->busy_us[done % PlacePage::kSteps].store(static_cast<uint64_t>(step) << 40 | (micros & 0xffffffffff),
                                                std::memory_order_relaxed);
  page->steps_done.store(done + 1, std::memory_order_release);
}

PlacedState::PlacedState(PlaceState state)
    : before_(place_page() != nullptr ? g_main.state : PlaceState::Starting) {
  tell_state(state);
}
PlacedState::~PlacedState() { tell_state(before_, "host"); }

PlacedCall::PlacedCall(std::string_view axis, CallKind kind, std::string_view operation,
                       std::string_view label, int peer) {
  PlacePage* page = place_page();
  if (page == nullptr) return;
  const auto number = static_cast<size_t>(parse_axis(axis));
  line_ = &page->calls[number][static_cast<size_t>(kind)];
  record_ = line_->read();
  ++record_.index;
  record_.doing = Doing::Communicates;
  record_.axis = static_cast<uint8_t>(number);
  record_.peer = static_cast<int16_t>(peer);
  record_.set_name(operation);
  const size_t used = std::min(operation.size() + 1, sizeof(record_.name));
  std::memcpy(record_.name + used, label.data(), std::min(label.size(), sizeof(record_.name) - used));
  line_->write(record_);
}

PlacedCall::~PlacedCall() {
  if (line_ == nullptr) return;
  record_.doing = Doing::Nothing;
  line_->write(record_);
}

}  // namespace tandem
