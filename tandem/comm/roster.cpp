#include "tandem/comm/roster.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

constexpr size_t kMaxRanksNamed = 16;
constexpr std::chrono::seconds kGrace{1};
constexpr std::chrono::milliseconds kLinger{500};
constexpr std::chrono::milliseconds kLook{200};

std::string link_text(const char* path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

// The boot, and the namespaces outside of which neither loopback addresses nor process numbers mean the same.
std::string host_key() {
  return fmt::format("{} {} {} {}", hostname(), read_text("/proc/sys/kernel/random/boot_id"),
                     link_text("/proc/self/ns/net"), link_text("/proc/self/ns/pid"));
}

std::string encode(const Member& member) {
  const std::string rank = std::to_string(member.rank), world_size = std::to_string(member.world_size),
                    pid = std::to_string(member.pid);
  return encode_frame({rank, world_size, member.mesh, member.host_key, member.hostname, pid, member.address,
                       member.master_address});
}

Member decode_member(std::string bytes) {
  const auto fields = take_frame(bytes);
  if (!fields || fields->size() != 8)
    throw CommError("the store holds what is no member's; are all ranks of one version?");
  const auto number = [](const std::string& text) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 ||
        value > std::numeric_limits<int>::max())
      throw CommError("the store holds what is no member's; are all ranks of one version?");
    return static_cast<int>(value);
  };
  const auto& f = *fields;
  return {number(f[0]), number(f[1]), f[2], f[3], f[4], number(f[5]), f[6], f[7]};
}

std::string missing_ranks(TcpKeyStore& store, const std::string& prefix, int world_size,
                          std::chrono::milliseconds limit) {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!store.try_get(fmt::format("{}member/{}", prefix, rank))) missing.push_back(rank);
  }
  const size_t named = std::min(missing.size(), kMaxRanksNamed);
  return fmt::format(
      "{} {}{} of {} did not appear within {} s; start them with the same MASTER_ADDR and MASTER_PORT",
      missing.size() == 1 ? "rank" : "ranks",
      fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(named), ", "),
      named < missing.size() ? fmt::format(" and {} more", missing.size() - named) : "", world_size,
      static_cast<double>(limit.count()) / 1000);
}

// The store goes with rank 0, which leaves the others a moment to read the outcome.
[[noreturn]] void give_up(const Member& own, const std::string& error) {
  if (own.rank == 0) std::this_thread::sleep_for(kLinger);
  throw CommError("{}", error);
}

}  // namespace

std::string Member::name() const { return fmt::format("rank {} ({}, pid {})", rank, hostname, pid); }

Member this_member(const WorldInfo& world, const MeshPosition& position, const TcpKeyStore& store) {
  const MeshShape& shape = position.shape;
  return {world.rank,
          world.world_size,
          fmt::format("data {} x tensor {} x pipeline {}", shape.data, shape.tensor, shape.pipeline),
          host_key(),
          hostname(),
          getpid(),
          store.local_address(),
          store.server_address()};
}

// Keys: "shape" is what the first to come believes of the world; "member/<rank>"; "arrived" counts them; and
// "ready" holds the outcome, an error ("E...") or the roster ("R..."), whoever comes to it first.
std::vector<Member> gather_roster(TcpKeyStore& store, const std::string& prefix, const Member& own,
                                  std::chrono::milliseconds left, const ConnectOptions& options) {
  const std::string ready_key = prefix + "ready";
  const std::string first_bytes = store.set_if_missing(prefix + "shape", encode(own));
  const Member first = decode_member(first_bytes);
  const std::string key = fmt::format("{}member/{}", prefix, own.rank);
  std::string error;
  if (first.world_size != own.world_size || first.mesh != own.mesh) {
    error = fmt::format(
        "{} has world size {} and mesh {}, but {} has world size {} and mesh {}; all ranks need the same "
        "config and WORLD_SIZE",
        own.name(), own.world_size, own.mesh, first.name(), first.world_size, first.mesh);
  } else if (const std::string taken = store.set_if_missing(key, encode(own)); taken != encode(own)) {
    error = fmt::format("rank {} is there twice: {} and {}; RANK must differ", own.rank,
                        decode_member(taken).name(), own.name());
  }
  if (!error.empty()) {
    try {
      store.set_if_missing(ready_key, "E" + error);
    } catch (const CommError&) {  // rank 0 has read it and gone
    }
    give_up(own, error);
  }
  if (store.add(prefix + "arrived", 1) == own.world_size) {
    std::vector<std::string> members;
    for (int rank = 0; rank < own.world_size; ++rank) {
      members.push_back(store.get(fmt::format("{}member/{}", prefix, rank), left));
    }
    store.set_if_missing(ready_key, "R" + encode_frame({members.begin(), members.end()}));
  }
  // Rank 0 gives up first, since the store goes with it.
  const auto deadline = std::chrono::steady_clock::now() + (own.rank == 0 ? left : left + kGrace);
  std::optional<std::string> outcome;
  while (!(outcome = store.wait_for(ready_key, kLook)) && std::chrono::steady_clock::now() < deadline) {
    if (options.while_waiting) options.while_waiting();
  }
  if (!outcome) {
    outcome = store.set_if_missing(
        ready_key, "E" + missing_ranks(store, prefix, own.world_size, options.connect_timeout));
  }
  if ((*outcome)[0] == 'E') give_up(own, outcome->substr(1));

  std::string bytes = outcome->substr(1);
  const auto members = take_frame(bytes);
  TANDEM_CHECK(members && static_cast<int>(members->size()) == own.world_size);
  std::vector<Member> roster;
  for (const std::string& member : *members) roster.push_back(decode_member(member));
  return roster;
}

std::string reachable_address(const Member& member, const std::vector<Member>& roster) {
  if (!member.address.starts_with("127.") && member.address != "::1") return member.address;
  for (const Member& other : roster) {
    if (other.host_key != member.host_key) return other.master_address;
  }
  return member.address;
}

}  // namespace tandem
