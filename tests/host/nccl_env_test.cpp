// The environment that is recommended for hosts of each family, and for those where a habit would be wrong.
#include "host/nccl_env.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "host/parse/nccl_log.hpp"
#include "host/test_host.hpp"

namespace tensorwire::host::test {
namespace {

std::string value_of(const NcclEnvironment& environment, std::string_view name) {
  const auto found = std::ranges::find(environment.lines, name, &EnvironmentLine::name);
  return found == environment.lines.end() ? "" : found->value;
}

bool remarks_on(const NcclEnvironment& environment, std::string_view words) {
  return std::ranges::any_of(environment.remarks,
                             [&](const std::string& remark) { return remark.find(words) != std::string::npos; });
}

TEST(NcclEnv, AHealthyHostGetsWhatWasFoundOnIt) {
  for (const auto& [kind, index] : {std::pair{Kind::kMlx5, "3"}, {Kind::kOfed, "3"}, {Kind::kIntel, "1"}}) {
    const auto environment = nccl_environment(TestHost{kind}.facts(), 26);
    EXPECT_EQ(value_of(environment, "NCCL_IB_GID_INDEX"), index) << to_string(kind);
    EXPECT_EQ(value_of(environment, "NCCL_IB_TC"), "104");
    EXPECT_EQ(value_of(environment, "UCX_IB_TRAFFIC_CLASS"), "104");
    EXPECT_TRUE(value_of(environment, "NCCL_IB_HCA").starts_with("=")) << "prefixes would match too much";
    EXPECT_EQ(value_of(environment, "NCCL_NET_GDR_LEVEL"), "PXB");
  }
}

TEST(NcclEnv, AnotherDscpIsAnotherTrafficClass) {
  EXPECT_EQ(value_of(nccl_environment(TestHost{Kind::kMlx5}.facts(), 24), "NCCL_IB_TC"), "96");
}

TEST(NcclEnv, NoIndexFitsPortsWithDifferentTables) {
  TestHost host{Kind::kMlx5};
  host.no_gid(host.nic(1), 2).no_gid(host.nic(1), 3);
  host.gid(host.nic(1), 4, host.nic(1).address, "IB/RoCE v1").gid(host.nic(1), 5, host.nic(1).address, "RoCE v2");
  const auto environment = nccl_environment(host.facts(), 26);
  EXPECT_EQ(value_of(environment, "NCCL_IB_GID_INDEX"), "");
  EXPECT_TRUE(remarks_on(environment, "no index is right on every port"));
}

TEST(NcclEnv, APortWithoutAddressIsLeftOut) {
  TestHost host{Kind::kMlx5};
  host.no_gid(host.nic(1), 2).no_gid(host.nic(1), 3);
  const auto environment = nccl_environment(host.facts(), 26);
  EXPECT_EQ(value_of(environment, "NCCL_IB_HCA").find(','), std::string::npos);
  EXPECT_TRUE(remarks_on(environment, "has no RoCE v2 entry"));
}

TEST(NcclEnv, Ipv6NeedsAWordOfItsOwn) {
  TestHost host{Kind::kMlx5};
  for (const Nic& nic : host.nics()) {
    host.gid(nic, 2, "2001:db8::10", "IB/RoCE v1").gid(nic, 3, "2001:db8::10", "RoCE v2");
  }
  EXPECT_EQ(value_of(nccl_environment(host.facts(), 26), "NCCL_IB_ADDR_FAMILY"), "AF_INET6");
  EXPECT_EQ(value_of(nccl_environment(TestHost{Kind::kMlx5}.facts(), 26), "NCCL_IB_ADDR_FAMILY"), "");
}

TEST(NcclEnv, WithoutRdmaNothingIsInvented) {
  const auto environment = nccl_environment(TestHost{Kind::kNone}.facts(), 26);
  EXPECT_EQ(value_of(environment, "NCCL_IB_HCA"), "");
  EXPECT_EQ(value_of(environment, "NCCL_IB_TC"), "");
  EXPECT_TRUE(remarks_on(environment, "no RoCE port can be used"));
}

TEST(NcclEnv, WhatIsSetOtherwiseNowIsSaid) {
  TestHost host{Kind::kMlx5};
  host.set("NCCL_IB_TC", "26");
  EXPECT_TRUE(remarks_on(nccl_environment(host.facts(), 26), "now NCCL_IB_TC=26 (environment)"));
}

TEST(NcclEnv, ShellAndJsonSayTheSame) {
  const auto environment = nccl_environment(TestHost{Kind::kMlx5}.facts(), 26);
  EXPECT_NE(shell_text(environment).find("export NCCL_IB_TC=104  # DSCP 26"), std::string::npos);
  const auto parsed = nlohmann::json::parse(json_text(environment));
  EXPECT_EQ(parsed["environment"]["NCCL_IB_TC"]["value"], "104");
  EXPECT_EQ(parsed["environment"].size(), environment.lines.size());
}

TEST(NcclEnv, ALogSaysWhatHappenedWithLineNumbers) {
  const auto log = parse_nccl_log(
      "host-a:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
      "host-a:1:1 [0] NCCL INFO Using network IB\n"
      "host-a:1:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
      "host-a:1:9 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [receive] via NET/IB/1\n",
      "job.log");
  const std::string text = what_happened(log);
  EXPECT_NE(text.find("network chosen (1 line)\n  2: "), std::string::npos) << text;
  EXPECT_NE(text.find("(GDRDMA) (1 line)\n  3: "), std::string::npos) << text;
  EXPECT_NE(text.find("(no GDRDMA) (1 line)\n  4: "), std::string::npos) << text;
  EXPECT_NE(what_happened(parse_nccl_log("nothing\n", "job.log")).find("does not say which network"),
            std::string::npos);
}

}  // namespace
}  // namespace tensorwire::host::test
