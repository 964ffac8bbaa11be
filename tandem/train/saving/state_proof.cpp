#include "tandem/train/saving/state_proof.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

// What a step begins with and leaves: gradients and activations mean nothing between steps.
bool is_state(const Persistent& item) {
  return item.slice.arena != Arena::Activations && item.slice.arena != Arena::Gradients &&
         !item.name.starts_with("grad:");
}

uint64_t short_digest(std::span<const std::byte> bytes) {
  return std::stoull(digest_hex(bytes).substr(0, 16), nullptr, 16);
}

uint64_t key_of(const std::string& text) { return short_digest(std::as_bytes(std::span(text))); }

// Scales of states in 8 bits are tensors of their own, on each rank: what they are of says whether ranks have
// the same ones. By their place, the first element that they scale.
std::map<std::pair<Arena, int64_t>, std::string> first_scaled(const CompiledStep& step) {
  std::map<std::pair<Arena, int64_t>, std::string> found;
  for (const Persistent& codes : step.persistents) {
    if (!codes.packed || codes.packed->rounded || codes.slice.type.dtype != DType::U8) continue;
    const Slice& scales = codes.packed->scales;
    const std::string first =
        codes.pieces.empty()
            ? ""
            : fmt::format("{} from {}, {}", codes.pieces.front().tensor, codes.pieces.front().box.row_begin,
                          codes.pieces.front().box.col_begin);
    found[{scales.arena, scales.offset}] = first;
  }
  return found;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return text;
}

}  // namespace

int64_t StateProof::memory_bytes(const CompiledStep& step) {
  int64_t bytes = 0;
  for (const Persistent& item : step.persistents) {
    if (is_state(item)) bytes += item.slice.type.bytes();
  }
  return bytes;
}

StateProof::StateProof(Session& session, const World& world, Loader& loader, StepRunner& runner,
                       int64_t every, std::filesystem::path run_dir)
    : session_(session),
      world_(world),
      loader_(loader),
      runner_(runner),
      every_(every),
      run_dir_(std::move(run_dir)) {
  for (const Persistent& buffer : session.step().persistents) {
    if (every == 0 || !is_state(buffer)) continue;
    const int64_t elem = dtype_bytes(buffer.slice.type.dtype);
    for (const Piece& piece : buffer.pieces) {
      Item item;
      item.name = fmt::format("{} in {}", piece.tensor, buffer.name);
      item.slice = buffer.slice;
      item.offset = piece.offset * elem;
      item.bytes = piece.box.elems() * elem;
      item.first = fmt::format("{} from {}, {}", item.name, piece.box.row_begin, piece.box.col_begin);
      // A rank cuts what it holds at the borders of its own part; the others cut elsewhere.
      Item* const last = items_.empty() ? nullptr : &items_.back();
      const bool goes_on =
          last != nullptr && last->name == item.name && last->offset + last->bytes == item.offset;
      if (goes_on) {
        last->bytes += item.bytes;
      } else if (item.bytes > 0) {
        items_.push_back(std::move(item));
      }
    }
  }
  // Units are the same on all ranks that hold them whole; running statistics may be each rank's own.
  const std::map<std::pair<Arena, int64_t>, std::string> scaled = first_scaled(session.step());
  for (Item& item : items_) {
    const auto of = scaled.find({item.slice.arena, item.slice.offset});
    if (item.name.rfind(':') != std::string::npos)
      item.key = key_of(
          fmt::format("{} {} {}", item.first, item.bytes, of == scaled.end() ? std::string() : of->second));
    // The weights of averaging optimizers are others for an evaluation.
    item.sealed = item.key != 0 && session.reaches(item.slice) &&
                  (item.slice.arena != Arena::Weights || !session.averages());
  }
}

uint64_t StateProof::digest(const Item& item) const {
  const auto offset = static_cast<size_t>(item.offset), bytes = static_cast<size_t>(item.bytes);
  if (session_.reaches(item.slice)) return short_digest(session_.buffer(item.slice).subspan(offset, bytes));
  std::vector<std::byte> copy(bytes);
  session_.read_buffer(item.slice, item.offset, copy);
  return short_digest(copy);
}

std::vector<uint64_t> StateProof::digests() const {
  std::vector<uint64_t> found;
  for (const Item& item : items_) found.push_back(digest(item));
  return found;
}

void StateProof::seal() {
  seals_.clear();
  for (const Item& item : items_) {
    if (item.sealed) seals_.push_back(digest(item));
  }
}

void StateProof::require_sealed(int64_t step) const {
  auto seal = seals_.begin();
  for (const Item& item : items_) {
    if (!item.sealed) continue;
    const uint64_t left = *seal++, found = digest(item);
    if (found == left) continue;
    keep(step, item, fmt::format("left there: {:016x}, found: {:016x}", left, found));
    throw TrainError(
        "step {}: rank {} ({}, process {}) finds other bits in {} than the update before has left there: its "
        "memory is not to be trusted; corruption/ has the evidence, and the run goes on from its last "
        "checkpoint",
        step, world_.at().rank(), hostname(), ::getpid(), item.name);
  }
}

std::function<void()> StateProof::before_update(int64_t step, std::function<void()> then) const {
  if (every_ == 0) return then;
  return [this, step, then = std::move(then)] {
    require_sealed(step);
    if (then) then();
  };
}

void StateProof::copy_state(std::span<std::byte> memory, bool back) const {
  TANDEM_CHECK(static_cast<int64_t>(memory.size()) >= memory_bytes(session_.step()));
  for (const Persistent& item : session_.step().persistents) {
    if (!is_state(item)) continue;
    const std::span<std::byte> part = memory.first(static_cast<size_t>(item.slice.type.bytes()));
    if (back) {
      session_.write_buffer(item.slice, 0, part);
    } else {
      session_.read_buffer(item.slice, 0, part);
    }
    memory = memory.subspan(part.size());
  }
}

StepResult StateProof::take(int64_t step, std::span<std::byte> memory,
                            const std::function<StepResult()>& run) {
  if (every_ == 0) return run();
  if (seals_.empty()) seal();
  if (!is_due(step)) {
    StepResult result = run();
    seal();
    return result;
  }
  const int64_t position = loader_.position(), updates = runner_.updates();
  const LossScaler scaler = runner_.scaler();
  SentDigests sent[2];
  const auto run_and_note = [&](SentDigests& digests) {
    // Ranks that are threads share what a process has one of.
    const Communicator* world = world_.comms() != nullptr ? world_.comms()->get(Axis::World) : nullptr;
    if (world != nullptr && world->description() != "threads") ask_for_sent_digests(&digests);
    struct Asked {
      ~Asked() { ask_for_sent_digests(nullptr); }
    } asked;
    return run();
  };
  copy_state(memory, /*back=*/false);
  run_and_note(sent[0]);
  const std::vector<uint64_t> first = digests();
  copy_state(memory, /*back=*/true);
  loader_.seek(position, std::nullopt, step - 1);
  runner_.set_updates(updates);
  runner_.scaler() = scaler;
  StepResult result = run_and_note(sent[1]);
  seal();
  require_same_twice(step, first, digests(), sent[0].first_difference(sent[1]));
  require_same_replicas(step);
  return result;
}

// A wrong number spreads with the collectives: whoever sent one first has made it. Where none was sent, it is
// whoever has other bits.
void StateProof::require_same_twice(int64_t step, const std::vector<uint64_t>& first,
                                    const std::vector<uint64_t>& second,
                                    const std::optional<SentDigests::Difference>& sent) const {
  const auto differ = std::mismatch(first.begin(), first.end(), second.begin());
  const bool same = differ.first == first.end();
  const auto size = static_cast<size_t>(world_.size()), own = static_cast<size_t>(world_.at().rank());
  std::vector<double> facts(2 * size);
  facts[2 * own] = same ? 0 : 1;
  facts[2 * own + 1] = sent ? sent->time_s : 0;
  world_.sum(facts, "replayed step");
  std::vector<int> guilty;
  double earliest = 0;
  for (size_t rank = 0; rank < size; ++rank) {
    const double time_s = facts[2 * rank + 1];
    if (time_s == 0 || (earliest > 0 && time_s >= earliest)) continue;
    earliest = time_s;
    guilty = {static_cast<int>(rank)};
  }
  for (size_t rank = 0; rank < size && earliest == 0; ++rank) {
    if (facts[2 * rank] != 0) guilty.push_back(static_cast<int>(rank));
  }
  if (guilty.empty()) return;
  if (std::find(guilty.begin(), guilty.end(), world_.at().rank()) == guilty.end())
    throw TrainError(
        "step {}: {} took the step twice from the same state and got other bits; its own output says where",
        step, rank_list(guilty));
  const std::string where = same ? std::string("no tensor that stays")
                                 : items_[static_cast<size_t>(differ.first - first.begin())].name;
  size_t others = 0;
  for (size_t i = 0; i < first.size(); ++i) others += first[i] != second[i] ? 1 : 0;
  const std::string first_sent = sent ? fmt::format(", first seen in {}", sent->what) : "";
  if (!same)
    keep(step, items_[static_cast<size_t>(differ.first - first.begin())],
         fmt::format("taken twice: {:016x}, then {:016x}{}", *differ.first, *differ.second, first_sent));
  throw TrainError(
      "step {}: rank {} ({}, process {}) took the step twice from the same state and got other bits in {} "
      "({} of {} tensors differ{}): its processor or memory is not to be trusted; corruption/ has the "
      "evidence, "
      "and the run goes on from its last checkpoint",
      step, world_.at().rank(), hostname(), ::getpid(), where, others, first.size(), first_sent);
}

void StateProof::require_same_replicas(int64_t step) const {
  Communicator* data = every_ > 0 && world_.comms() != nullptr ? world_.comms()->get(Axis::Data) : nullptr;
  if (data == nullptr) return;
  const auto size = static_cast<size_t>(data->size());
  const std::vector<uint64_t> own = digests();
  std::vector<uint64_t> counts(size);
  const uint64_t count = own.size();
  data->all_gather(std::as_bytes(std::span(&count, 1)), std::as_writable_bytes(std::span(counts)), "proof");
  const uint64_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<uint64_t> sent(2 * most), all(2 * most * size);
  for (size_t i = 0; i < own.size(); ++i) {
    sent[2 * i] = items_[i].key;
    sent[2 * i + 1] = own[i];
  }
  data->all_gather(std::as_bytes(std::span(sent)), std::as_writable_bytes(std::span(all)), "proof");
  const std::vector<int> group = world_.at().group(Axis::Data);
  std::map<uint64_t, std::map<uint64_t, std::vector<int>>> holders;  // by key and digest
  for (size_t member = 0; member < size; ++member) {
    for (uint64_t i = 0; i < counts[member]; ++i) {
      const uint64_t* entry = &all[2 * (member * most + i)];
      holders[entry[0]][entry[1]].push_back(group[member]);
    }
  }
  for (const Item& item : items_) {
    const auto& by_digest = holders[item.key];
    if (item.key == 0 || by_digest.size() < 2) continue;
    const auto largest =
        std::max_element(by_digest.begin(), by_digest.end(),
                         [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::vector<int> odd;
    std::string list;
    for (const auto& [digest, ranks] : by_digest) {
      list += fmt::format("{}{}: {:016x}", list.empty() ? "" : "; ", rank_list(ranks), digest);
      if (digest != largest->first) odd.insert(odd.end(), ranks.begin(), ranks.end());
    }
    const bool tie = 2 * largest->second.size() <= group.size();
    if (tie) odd = group;
    keep(step, item, "replicas: " + list);
    throw TrainError(
        "step {}: {} not the bits of {} that the others have ({}){}; corruption/ has the evidence, and the "
        "run "
        "goes on from its last checkpoint",
        step, fmt::format("{} {}", rank_list(odd), odd.size() == 1 ? "has" : "have"), item.name, list,
        tie ? ": as many have the one as the other" : "");
  }
}

void StateProof::keep(int64_t step, const Item& item, const std::string& what) const {
  const std::filesystem::path directory = run_dir_ / "corruption";
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::string name = fmt::format("step-{}-rank-{}", step, world_.at().rank());
  std::ofstream(directory / (name + ".json"))
      << nlohmann::json{{"step", step},       {"rank", world_.at().rank()}, {"tensor", item.name},
                        {"what", what},       {"host", hostname()},         {"pid", ::getpid()},
                        {"time", utc_time()}, {"bytes", name + ".bin"}}
             .dump(1)
      << "\n";
  std::vector<std::byte> bytes(static_cast<size_t>(item.bytes));
  session_.read_buffer(item.slice, item.offset, bytes);
  std::ofstream(directory / (name + ".bin"), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace tandem
