#include "tandem/doctor/node.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::doctor {
namespace {

TEST(ReadNode, SeesThisMachine) {
  const Node node = read_node();
  EXPECT_FALSE(node.name.empty());
  EXPECT_GE(node.cores, 1);
  EXPECT_LE(node.cores, node.cores_there);
  EXPECT_GT(node.memory_bytes, 0);
  EXPECT_GT(node.available_bytes, 0);
  EXPECT_EQ(node.cores, to_json(node)["processor"]["cores"]);
  EXPECT_NE(std::string::npos, node_text(node).find("processor"));
}

TEST(ReadNode, TakesControlGroupsNumaAndDriversFromTheKernelsTrees) {
  const TemporaryDirectory tree;
  const auto add = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((tree.path() / path).parent_path());
    write_atomically(tree.path() / path, text + "\n");
  };
  add("sys/fs/cgroup/cpu.max", "150000 100000");
  for (const char* node : {"node0", "node1"}) {
    add(fmt::format("sys/devices/system/node/{}/cpulist", node), "0-3");
    add(fmt::format("sys/devices/system/node/{}/meminfo", node),
        "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB");
  }
  add("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de");
  add("sys/bus/pci/devices/0000:01:00.0/class", "0x030200");
  add("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de");
  add("sys/bus/pci/devices/0000:01:00.1/class", "0x040300");  // its sound
  add("proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version: 12.2");
  add("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 50 kB\nSwapTotal: 30 kB\nSwapFree: 10 kB");
  const Node node = read_node({tree.path() / "proc", tree.path() / "sys"});
  EXPECT_EQ(1.5, node.core_quota);
  ASSERT_EQ(2u, node.numa.size());
  EXPECT_EQ(1024 * 1024, node.numa[1].memory_bytes);
  EXPECT_EQ(1, node.gpus_on_bus);
  EXPECT_EQ("550.54.15", node.driver);
  EXPECT_EQ(50 * 1024, node.available_bytes);
  EXPECT_EQ(20 * 1024, node.swap_used_bytes);
}

TEST(MeasureDisk, LeavesNothingBehind) {
  const TemporaryDirectory folder;
  const DiskSpeed speed = measure_disk(folder.path(), 3 << 20);
  EXPECT_EQ("", speed.problem);
  EXPECT_GT(speed.write_bytes_per_s, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_NE("", measure_disk(folder.path() / "missing", 1).problem);
}

}  // namespace
}  // namespace tandem::doctor
