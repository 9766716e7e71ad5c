// Pseudonyms hide addresses and keep verdicts.
#include "host/pseudonyms.hpp"

#include <gtest/gtest.h>

#include "host/read/read.hpp"
#include "host/rule.hpp"
#include "host/test_host.hpp"

namespace tensorwire::host::test {

namespace {

Address address(const char* text) { return *parse_address(text); }

TEST(Pseudonyms, KeepSubnetsAndKinds) {
  const Pseudonyms pseudonyms{"key"};
  const Address one = pseudonyms.of(address("192.0.2.10"));
  const Address other = pseudonyms.of(address("192.0.2.11"));
  EXPECT_NE(one, address("192.0.2.10"));
  EXPECT_TRUE(one.is_ipv4());
  EXPECT_TRUE(one.same_subnet(other, 31));
  EXPECT_NE(one, other);
  EXPECT_FALSE(one.same_subnet(pseudonyms.of(address("198.51.100.10")), 24));
  EXPECT_TRUE(pseudonyms.of(address("169.254.1.1")).is_ipv4_link_local());
  EXPECT_TRUE(pseudonyms.of(address("fe80::1:2")).is_ipv6_link_local());
  EXPECT_NE(pseudonyms.of(address("fe80::1:2")), address("fe80::1:2"));
  EXPECT_EQ(pseudonyms.of(address("0.0.0.0")), address("0.0.0.0"));
  EXPECT_EQ(Pseudonyms{"key"}.of(address("2001:db8::1")), pseudonyms.of(address("2001:db8::1")));
  EXPECT_NE(Pseudonyms{"another"}.of(address("2001:db8::1")), pseudonyms.of(address("2001:db8::1")));
}

TEST(Pseudonyms, KeepTheVerdictAndHideAddresses) {
  TestHost host{Kind::kMlx5};
  host.set("NCCL_COMM_ID", "192.0.2.10:4444").set("NCCL_IB_GID_INDEX", "2");
  Recorder recorder{host.tree()};
  const Diagnosis before = diagnose(read_host(recorder));
  Pseudonyms{"key"}.apply(recorder.recording());
  const Host facts = read_host(recorder.recording());
  const Diagnosis after = diagnose(facts);
  ASSERT_EQ(after.findings.size(), before.findings.size());
  EXPECT_EQ(after.findings.at(0).id, before.findings.at(0).id);
  EXPECT_EQ(facts.subnets.size(), 3U);
  const std::string text = recorder.recording().to_text();
  for (const char* part : {"192.0.2.1", "c000:020a", "000200C0", "0e42:a1ff", "20010db8"})
    EXPECT_EQ(text.find(part), std::string::npos) << part;
}

}  // namespace

}  // namespace tensorwire::host::test
