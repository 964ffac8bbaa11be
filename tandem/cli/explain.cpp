#include <algorithm>
#include <cstdio>
#include <memory>

#include "tandem/cli/command.h"
#include "tandem/config/print.h"

namespace tandem::cli {

void add_explain(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "explain", "show every setting of a config, its value and where it came from",
                  "tandem explain configs/quickstart.yaml");
  auto flags = std::make_shared<ConfigFlags>();
  flags->add_to(*command);
  command->callback([flags, &action] {
    action.run = [flags] {
      const std::vector<ExplainRow> rows = explain(flags->load(read_world()));
      size_t key = 0, value = 0, origin = 0;
      for (const ExplainRow& row : rows) {
        key = std::max(key, row.key.size());
        value = std::max(value, row.value.size());
        origin = std::max(origin, row.origin.size());
      }
      for (const ExplainRow& row : rows) {
        std::printf("%s\n", fmt::format("{:<{}}  {:<{}}  {:<{}}  {}", row.key, key, row.value, value,
                                        row.origin, origin, row.doc)
                                .c_str());
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
