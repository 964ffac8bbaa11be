#include "tandem/doctor/findings.h"

#include <gtest/gtest.h>

#include <functional>

namespace tandem::doctor {
namespace {

// With which nothing is wrong.
Node healthy() {
  Node node;
  node.name = "node-a";
  node.program_isa = node.best_isa = "avx512";
  node.cores = node.cores_there = 8;
  node.numa = {{"0-7", 64}};
  node.memory_bytes = int64_t{64} << 30;
  node.available_bytes = int64_t{60} << 30;
  node.shm_bytes = node.shm_free_bytes = int64_t{32} << 30;
  node.folder = "/runs";
  node.disk_free_bytes = int64_t{100} << 30;
  node.disk = {1e9, 1e9, ""};
  node.limits.open_files = 65536;
  node.clock_source = "tsc";
  node.clock_synchronised = true;
  node.unix_s = 1.8e9;
  node.name_resolves = true;
  node.interfaces = {{"lo", {"127.0.0.1"}, true, true, false, std::nullopt, 65536},
                     {"eth0", {"10.0.0.1"}, true, false, true, 25e9, 9000}};
  node.choice = {"eth0", "10.0.0.1", "it is the way"};
  return node;
}

TEST(FindProblems, NoneWithAHealthyNode) {
  EXPECT_TRUE(find_problems(healthy()).empty());
  EXPECT_EQ("nothing is wrong\n", findings_text({}));
}

struct Case {
  std::function<void(Node&)> change;
  bool breaks;
  std::string says;
};

TEST(FindProblems, EachSaysWhatItIsAndWhetherItEndsARun) {
  const Case cases[] = {
      {[](Node& n) { n.program_isa = "avx2"; }, false, "uses avx2 though it has avx512; unset TANDEM_ISA"},
      {[](Node& n) { n.core_quota = 2.5; }, false, "set threads to 2"},
      {[](Node& n) {
         n.numa.push_back({"8-15", 64});
       },
       false, "2 NUMA nodes"},
      {[](Node& n) { n.governor = "powersave"; }, false, "cpupower"},
      {[](Node& n) { n.available_bytes = 1; }, false, "1 B of 64.0 GiB are available"},
      {[](Node& n) { n.gpus_on_bus = 8, n.has_cuda = true; }, true, "no driver is loaded"},
      {[](Node& n) { n.gpus_on_bus = 1; }, false, "built without CUDA"},
      {[](Node& n) { n.gpus.resize(8), n.has_cuda = true, n.shm_bytes = 64 << 20; }, true, "--shm-size"},
      {[](Node& n) { n.disk.problem = "no file can be made: Read-only file system"; }, true, "Read-only"},
      {[](Node& n) { n.disk_free_bytes = 5; }, true, "5 B are free"},
      {[](Node& n) { n.disk.write_bytes_per_s = 2e7; }, false, "takes 20.0 MB a second"},
      {[](Node& n) { n.limits.open_files = 100; }, true, "ulimit -n"},
      {[](Node& n) { n.limits.open_files = 1024; }, false, "some 120 ranks"},
      {[](Node& n) { n.limits.processes = 50; }, true, "ulimit -u"},
      {[](Node& n) { n.limits.file_bytes = 1 << 20; }, true, "no file may have more than 1.0 MiB"},
      {[](Node& n) {
         n.rdma = {{"mlx5_0", "mlx5_core", true}}, n.limits.locked_bytes = 8 << 20;
       },
       true, "ulimit -l"},
      {[](Node& n) { n.unix_s = 1000; }, true, "long gone"},
      {[](Node& n) { n.clock_synchronised = false; }, false, "chrony"},
      {[](Node& n) { n.clock_source = "acpi_pm"; }, false, "acpi_pm"},
      {[](Node& n) { n.interfaces[0].up = false; }, true, "ip link set lo up"},
      {[](Node& n) { n.nccl_interface = "ib"; }, true, "NCCL_SOCKET_IFNAME=ib names no interface that is up"},
      {[](Node& n) { n.gloo_interface = "=eth"; }, true, "GLOO_SOCKET_IFNAME=eth0"},
      {[](Node& n) { n.name_resolves = false; }, false, "node-a"},
      {[](Node& n) {
         n.interfaces.push_back({"ib0", {"10.1.0.1"}, true, false, true, 200e9, 4092});
       },
       false, "ib0 has 200 Gbit/s"},
  };
  for (const Case& one : cases) {
    Node node = healthy();
    one.change(node);
    const std::vector<Finding> found = find_problems(node);
    const std::string text = findings_text(found);
    EXPECT_EQ(1u, found.size()) << text;
    EXPECT_EQ(one.breaks, any_breaks(found)) << text;
    EXPECT_NE(std::string::npos, text.find(one.says)) << one.says << " is not in: " << text;
  }
}

TEST(FindProblems, WhatBreaksComesFirst) {
  Node node = healthy();
  node.clock_synchronised = false;
  node.governor = "powersave";
  node.limits.open_files = 10;
  const std::vector<Finding> found = find_problems(node);
  ASSERT_EQ(3u, found.size());
  EXPECT_TRUE(found[0].breaks && !found[1].breaks && !found[2].breaks);
}

}  // namespace
}  // namespace tandem::doctor
