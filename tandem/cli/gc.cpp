#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/checkpoint/stores/unnamed.h"
#include "tandem/cli/command.h"

namespace tandem::cli {
namespace {

std::string age_of(const StoredObject& object, int64_t now) {
  return object.modified == 0
             ? "of unknown age"
             : format_duration(static_cast<double>(std::max<int64_t>(0, now - object.modified))) + " old";
}

}  // namespace

void add_gc(CLI::App& app, Action& action) {
  struct Flags {
    std::string store;
    bool remove = false;
    double hours = 24;
  };
  CLI::App* command = add_command(app, "gc", "show what no checkpoint of a store needs, and free it",
                                  "tandem gc s3://bucket/quickstart --delete");
  auto flags = std::make_shared<Flags>();
  command->add_option("STORE", flags->store, "a run, or a directory or s3://BUCKET/PREFIX of checkpoints")
      ->required();
  command->add_flag("--delete", flags->remove,
                    "remove it; what is younger than --older-than may be a living run's, and stays");
  command->add_option("--older-than", flags->hours, "hours")->type_name("HOURS")->capture_default_str();
  command->callback([flags, &action] {
    action.run = [flags] {
      std::string place = flags->store;
      if (!is_remote(place) && !is_there(place)) throw DataError("{}: no such store or run", place);
      if (!is_remote(place) && std::filesystem::is_directory(std::filesystem::path(place) / "checkpoints"))
        place += "/checkpoints";
      const StoreRef store(open_store(place));
      const auto now = static_cast<int64_t>(std::time(nullptr));
      int64_t count = 0, bytes = 0, removed = 0;
      for (const Unnamed& unnamed : find_unnamed(store)) {
        const StoredObject& object = unnamed.object;
        const bool old = static_cast<double>(now - object.modified) >= flags->hours * 3600;
        const bool goes = flags->remove && old;
        if (goes) remove_unnamed(store, unnamed);
        std::printf("%s\n", fmt::format("{}  {}  {}, {}{}", object.name, format_bytes(object.bytes),
                                        unnamed.what, age_of(object, now),
                                        goes            ? ": removed"
                                        : flags->remove ? ": stays, it may be a living run's"
                                                        : "")
                                .c_str());
        ++count;
        bytes += object.bytes;
        removed += goes ? 1 : 0;
      }
      std::printf("%s\n",
                  fmt::format("{}: {} that no checkpoint needs, {}; {} removed", store->description(""),
                              count_of(count, "object"), format_bytes(bytes), removed)
                      .c_str());
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
