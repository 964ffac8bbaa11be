#include "tandem/launch/options.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

int no_gpus() { return 0; }

TEST(LaunchOptions, RanksPerNodeAreANumberOrCounted) {
  EXPECT_EQ(4, parse_ranks_per_node("4", no_gpus));
  EXPECT_EQ(8, parse_ranks_per_node("auto", [] { return 8; }));
  EXPECT_EQ(parse_ranks_per_node("cpu", no_gpus), parse_ranks_per_node("auto", no_gpus));
  EXPECT_GE(parse_ranks_per_node("cpu", [] { return 100000; }), 1);
  EXPECT_LT(parse_ranks_per_node("cpu", [] { return 100000; }), 100000);
  for (const char* bad : {"0", "-1", "two", "", "3x", "99999999"})
    EXPECT_NE(std::string::npos, message_of([&] { parse_ranks_per_node(bad, no_gpus); }).find(bad));
  EXPECT_NE(std::string::npos, message_of([] { parse_ranks_per_node("gpu", no_gpus); }).find("no GPU"));
}

TEST(LaunchOptions, NodesAreANumberOrARange) {
  EXPECT_EQ(3, parse_nodes("3").least);
  EXPECT_EQ(3, parse_nodes("3").most);
  EXPECT_EQ(1, parse_nodes("1:4").least);
  EXPECT_EQ(4, parse_nodes("1:4").most);
  for (const char* bad : {"0", "4:2", "2:", ":2", "a:b", "1:2:3", ""})
    EXPECT_THROW(parse_nodes(bad), ConfigError) << bad;
}

TEST(LaunchOptions, AMistypedBackendIsAnsweredWithTheNearest) {
  EXPECT_EQ(RendezvousBackend::Etcd, parse_backend("etcd"));
  EXPECT_NE(std::string::npos, message_of([] { parse_backend("flie"); }).find("did you mean 'file'"));
}

TEST(LaunchOptions, TeeIsOneOfFour) {}

TEST(LaunchOptions, SeveralNodesNeedAWayToFindEachOther) {
  LaunchOptions options;
  options.program = {"true"};
  EXPECT_NO_THROW(check_options(options));
  options.nodes = {2, 2};
  EXPECT_NE(std::string::npos, message_of([&] { check_options(options); }).find("--rdzv-endpoint"));
  options.master_addr = "10.0.0.1";
  options.master_port = 29500;
  EXPECT_NO_THROW(check_options(options));
  options.backend = RendezvousBackend::File;
  EXPECT_NE(std::string::npos, message_of([&] { check_options(options); }).find("DIR"));
  options.backend = RendezvousBackend::Etcd;
  options.endpoint = "host-without-port";
  EXPECT_NE(std::string::npos, message_of([&] { check_options(options); }).find("host-without-port"));
  options.standalone = true;
  EXPECT_NE(std::string::npos, message_of([&] { check_options(options); }).find("--standalone"));
}

TEST(LaunchOptions, APortThatThereIsNotIsRefusedOnOneNodeToo) {
  LaunchOptions options;
  options.program = {"true"};
  options.master_port = 70000;
  EXPECT_NE(std::string::npos, message_of([&] { check_options(options); }).find("70000"));
}

TEST(LaunchOptions, ANodeRankBeyondTheNodesIsRefused) {
  LaunchOptions options;
  options.program = {"true"};
  options.node_rank = 1;
  EXPECT_NE(std::string::npos, message_of([&] { check_options(options); }).find("--node-rank"));
}

TEST(LaunchOptions, ASecretAndNoneAreNotBothWanted) {
  LaunchOptions options;
  options.program = {"true"};
  options.secret_file = "secret";
  EXPECT_NO_THROW(check_options(options));
  options.insecure = true;
  EXPECT_NE(std::string::npos, message_of([&] { check_options(options); }).find("--insecure"));
}

TEST(LaunchOptions, TheProgramBeginsAfterTheFlags) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(2u, find_program(Words{"--nproc-per-node", "4", "train", "--nproc-per-node", "9"}));
  EXPECT_EQ(1u, find_program(Words{"--nproc_per_node=4", "train", "c.yaml"}));
  EXPECT_EQ(1u, find_program(Words{"--standalone", "train"}));
  EXPECT_EQ(1u, find_program(Words{"--insecure", "train"}));
  EXPECT_EQ(2u, find_program(Words{"--standalone", "--", "--odd-name"}));
  EXPECT_EQ(0u, find_program(Words{"sh", "-c", "true"}));
  EXPECT_EQ(1u, find_program(Words{"--help"}));
  EXPECT_EQ(2u, find_program(Words{"--tee", "3"}));
  EXPECT_EQ(5u, find_program(Words{"-t3", "-r", "0:1", "--no_python", "-m", "pkg.train", "-r"}));
}

TEST(LaunchOptions, ASubcommandRunsThisProgramAndAPythonFileRunsPython) {
  using Words = std::vector<std::string>;
  const Words subcommands = {"train", "plan"};
  EXPECT_EQ((Words{"/bin/tandem", "train", "c.yaml"}),
            complete_program({"train", "c.yaml"}, ProgramKind::Any, "/bin/tandem", subcommands, "python3"));
  EXPECT_EQ((Words{"./train", "c.yaml"}),
            complete_program({"./train", "c.yaml"}, ProgramKind::Any, "/bin/tandem", subcommands, "python3"));
  EXPECT_EQ((Words{"py", "-u", "a/b.py", "x"}),
            complete_program({"a/b.py", "x"}, ProgramKind::Any, "t", subcommands, "py"));
  EXPECT_EQ((Words{"py", "-u", "-m", "train", "x"}),
            complete_program({"train", "x"}, ProgramKind::Module, "t", subcommands, "py"));
  EXPECT_EQ((Words{"a/b.py", "x"}),
            complete_program({"a/b.py", "x"}, ProgramKind::NoPython, "t", subcommands, "py"));
  EXPECT_EQ("py", complete_program({"a/b", "x"}, ProgramKind::RunPath, "t", subcommands, "py").front());
}

TEST(LaunchOptions, AnEndpointHasAHostAndAPort) {
  EXPECT_EQ("node-a", parse_host_port("node-a:29500", "--rdzv-endpoint").host);
  EXPECT_EQ(29500, parse_host_port("node-a:29500", "--rdzv-endpoint").port);
  EXPECT_EQ(29400, parse_endpoint("node-a", "--rdzv-endpoint").port);
  for (const char* bad : {"node-a", ":1", "node-a:", "node-a:0", "node-a:70000", "node-a:x"})
    EXPECT_THROW(parse_host_port(bad, "--rdzv-endpoint"), ConfigError) << bad;
}

}  // namespace
}  // namespace tandem
