#include <arpa/inet.h>
#include <dlfcn.h>

#include <array>
#include <string_view>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

using QueryTest = VerbsTest;

TEST_F(QueryTest, DeviceAttributesAreThoseOfARoceDevice) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(context(), &attr), 0);
  EXPECT_EQ(attr.phys_port_cnt, 1);
  EXPECT_EQ(attr.max_pkeys, 1);
  EXPECT_EQ(attr.node_guid, ibv_get_device_guid(context()->device));
  EXPECT_GT(attr.max_qp_wr, 100);
  EXPECT_GE(attr.max_sge, 4);
  EXPECT_GT(attr.max_ah, 0);
  EXPECT_GT(attr.max_srq, 0);
  EXPECT_GT(attr.max_srq_wr, 100);
  EXPECT_GE(attr.max_srq_sge, 4);
  EXPECT_EQ(attr.max_qp_rd_atom, 16);
  EXPECT_EQ(attr.max_qp_init_rd_atom, 16);
  EXPECT_EQ(attr.max_res_rd_atom, 16 * attr.max_qp);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_GT(attr.max_mr_size, std::uint64_t{1} << 32);
  EXPECT_FALSE(std::string_view(attr.fw_ver).empty());
}

TEST_F(QueryTest, ExtendedAttributesFitTheCallersStruct) {
  ibv_device_attr plain{};
  ASSERT_EQ(ibv_query_device(context(), &plain), 0);
  verbs_context* extended = verbs_get_ctx(context());

  // A program of today.
  ibv_device_attr_ex attr;
  std::memset(&attr, 0xaa, sizeof attr);
  ASSERT_EQ(ibv_query_device_ex(context(), nullptr, &attr), 0);
  EXPECT_EQ(std::memcmp(&attr.orig_attr, &plain, sizeof plain), 0);
  EXPECT_EQ(attr.comp_mask, 0U);
  EXPECT_EQ(attr.phys_port_cnt_ex, 1U);

  // An older one with a smaller struct: not a byte behind it is touched.
  std::memset(&attr, 0xaa, sizeof attr);
  ASSERT_EQ(extended->query_device_ex(context(), nullptr, &attr, offsetof(ibv_device_attr_ex, tso_caps)), 0);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&attr);
  for (std::size_t i = offsetof(ibv_device_attr_ex, tso_caps); i < sizeof attr; ++i) ASSERT_EQ(bytes[i], 0xaa);

  // A newer one with a larger struct: what we do not know reads zero.
  struct {
    ibv_device_attr_ex known;
    std::array<unsigned char, 64> newer;
  } large;
  std::memset(&large, 0xaa, sizeof large);
  ASSERT_EQ(extended->query_device_ex(context(), nullptr, &large.known, sizeof large), 0);
  for (const unsigned char byte : large.newer) ASSERT_EQ(byte, 0);

  EXPECT_EQ(extended->query_device_ex(context(), nullptr, &attr, 16), EINVAL);
}

TEST_F(QueryTest, PortIsAnActiveEthernetPort) {
  ibv_port_attr attr{};
  ASSERT_EQ(ibv_query_port(context(), 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_GE(attr.active_mtu, IBV_MTU_1024);
  EXPECT_LE(attr.active_mtu, attr.max_mtu);
  EXPECT_GE(attr.gid_tbl_len, 1);
  EXPECT_EQ(attr.pkey_tbl_len, 1);
  EXPECT_EQ(ibv_query_port(context(), 0, &attr), EINVAL);
  EXPECT_EQ(ibv_query_port(context(), 2, &attr), EINVAL);
}

TEST_F(QueryTest, OldPortStructEndsWithFlags) {
  ibv_port_attr attr;
  std::memset(&attr, 0xaa, sizeof attr);
  ASSERT_EQ((ibv_query_port)(context(), 1, reinterpret_cast<_compat_ibv_port_attr*>(&attr)), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.port_cap_flags2, 0xaaaa);
  std::memset(&attr, 0xaa, sizeof attr);
  ASSERT_EQ(context()->ops._compat_query_port(context(), 1, reinterpret_cast<_compat_ibv_port_attr*>(&attr)), 0);
  EXPECT_EQ(attr.port_cap_flags2, 0xaaaa);
}

TEST_F(QueryTest, GidOfEveryIndexOfTheTableCanBeRead) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context(), 1, &port), 0);
  ibv_gid gid{};
  for (int index = 0; index < port.gid_tbl_len; ++index) EXPECT_EQ(ibv_query_gid(context(), 1, index, &gid), 0);
  errno = 0;
  EXPECT_EQ(ibv_query_gid(context(), 1, port.gid_tbl_len, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_query_gid(context(), 1, -1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context(), 2, 0, &gid), -1);
}

TEST_F(QueryTest, EmptyGidIndexHasNoData) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context(), 1, &port), 0);
  int valid = 0;
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context(), 1, index, &gid), 0);
    const bool empty = gid.global.subnet_prefix == 0 && gid.global.interface_id == 0;
    ibv_gid_entry entry{};
    EXPECT_EQ(ibv_query_gid_ex(context(), 1, static_cast<std::uint32_t>(index), &entry, 0), empty ? ENODATA : 0);
    if (empty) continue;
    ++valid;
    EXPECT_EQ(entry.gid_index, static_cast<std::uint32_t>(index));
    EXPECT_EQ(entry.port_num, 1U);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
    EXPECT_GT(entry.ndev_ifindex, 0U);
    EXPECT_EQ(std::memcmp(entry.gid.raw, gid.raw, sizeof gid.raw), 0);
  }
  EXPECT_GE(valid, 1);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(context(), 1, 1000, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context(), 2, 0, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context(), 1, 0, &entry, 1), EOPNOTSUPP);

  std::array<ibv_gid_entry, 256> table{};
  EXPECT_EQ(ibv_query_gid_table(context(), table.data(), table.size(), 0), valid);
  EXPECT_EQ(ibv_query_gid_table(context(), table.data(), 0, 0), -EINVAL);
  EXPECT_EQ(ibv_query_gid_table(context(), table.data(), table.size(), 1), -EOPNOTSUPP);
}

TEST_F(QueryTest, LoopbackDeviceHasALoopbackIpv4Gid) {
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(context(), 1, usable_gid_index(context()), &gid), 0);
  const std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  EXPECT_EQ(std::memcmp(gid.raw, mapped.data(), mapped.size()), 0);
  EXPECT_EQ(gid.raw[12], 127);
}

TEST_F(QueryTest, GidTypeOfThePrivateNode) {
  using QueryGidType = int (*)(ibv_context*, std::uint8_t, unsigned, unsigned*);
  for (const char* node : {"IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_65"}) {
    const auto query = reinterpret_cast<QueryGidType>(dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", node));
    ASSERT_NE(query, nullptr) << node;
    unsigned type = 99;
    EXPECT_EQ(query(context(), 1, usable_gid_index(context()), &type), 0);
    EXPECT_EQ(type, 1U);  // RoCE v2, as sysfs counts
    EXPECT_EQ(query(context(), 1, 1000, &type), -1);
  }
}

TEST_F(QueryTest, OnePkey) {
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context(), 1, 0, &pkey), 0);
  EXPECT_EQ(ntohs(pkey), 0xffff);
  EXPECT_EQ(ibv_get_pkey_index(context(), 1, pkey), 0);
  EXPECT_EQ(ibv_query_pkey(context(), 1, 1, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(context(), 1, htons(0x1234)), -1);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
