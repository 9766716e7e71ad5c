#include <set>
#include <string>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

TEST(DeviceList, CountsAndEndsWithNull) {
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_GE(count, 1);
  EXPECT_EQ(list[count], nullptr);
  std::set<std::string> names;
  std::set<std::uint64_t> guids;
  for (int i = 0; i < count; ++i) {
    ASSERT_NE(list[i], nullptr);
    names.insert(ibv_get_device_name(list[i]));
    guids.insert(ibv_get_device_guid(list[i]));
    EXPECT_EQ(list[i]->node_type, IBV_NODE_CA);
    EXPECT_EQ(list[i]->transport_type, IBV_TRANSPORT_IB);
    EXPECT_EQ(ibv_get_device_index(list[i]), -1);
  }
  EXPECT_EQ(std::string(ibv_get_device_name(list[0])), "soft0");
  EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(guids.size(), static_cast<std::size_t>(count));
  EXPECT_FALSE(guids.contains(0));
  ibv_free_device_list(list);
}

TEST(DeviceList, AcceptsNoCounter) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  ibv_free_device_list(list);
}

// libmlx5 and libefa read a pointer behind ibv_device to see whether a device is theirs.
TEST(DeviceList, WhatFollowsADeviceIsZero) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(list[0], nullptr);
  const auto* behind = reinterpret_cast<const unsigned char*>(list[0]) + sizeof(ibv_device);
  for (int i = 0; i < 512; ++i) ASSERT_EQ(behind[i], 0) << i;
  ibv_free_device_list(list);
}

TEST(Device, OutlivesTheListWhenOpen) {
  const Owned<ibv_context> context = open_first_device();
  ASSERT_NE(context, nullptr);
  EXPECT_STREQ(ibv_get_device_name(context->device), "soft0");
}

TEST(Context, IsFilledAsVerbsHeaderExpects) {
  const Owned<ibv_context> context = open_first_device();
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->abi_compat, __VERBS_ABI_IS_EXTENDED);
  EXPECT_NE(verbs_get_ctx(context.get()), nullptr);
  EXPECT_EQ(verbs_get_ctx(context.get())->sz, sizeof(verbs_context));
  EXPECT_EQ(context->cmd_fd, -1);
  EXPECT_GE(context->async_fd, 0);
  EXPECT_GE(context->num_comp_vectors, 1);
}

TEST(Context, EveryUncheckedOperationIsSet) {
  const Owned<ibv_context> context = open_first_device();
  ASSERT_NE(context, nullptr);
  const auto* slots = reinterpret_cast<void* const*>(&context->ops);
  for (std::size_t i = 0; i < sizeof(ibv_context_ops) / sizeof(void*); ++i) EXPECT_NE(slots[i], nullptr) << i;
  EXPECT_NE(verbs_get_ctx(context.get())->close_xrcd, nullptr);
}

TEST(Context, TwoOnOneDeviceShareItsAddressAndLiveApart) {
  Owned<ibv_context> first = open_first_device();
  const Owned<ibv_context> second = open_first_device();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first.get(), second.get());
  const std::uint8_t index = usable_gid_index(first.get());
  ibv_gid a{}, b{};
  ASSERT_EQ(ibv_query_gid(first.get(), 1, index, &a), 0);
  ASSERT_EQ(ibv_query_gid(second.get(), 1, index, &b), 0);
  EXPECT_EQ(std::memcmp(a.raw, b.raw, sizeof a.raw), 0);

  const Owned<ibv_pd> pd = owned(ibv_alloc_pd(second.get()), ibv_dealloc_pd);
  ASSERT_NE(pd, nullptr);
  first.reset();
  std::vector<std::uint8_t> bytes(4096);
  const Owned<ibv_mr> mr = owned(ibv_reg_mr(pd.get(), bytes.data(), bytes.size(), kAllAccess), ibv_dereg_mr);
  EXPECT_NE(mr, nullptr);
}

// As the kernel does when the file of a device is closed.
TEST(Context, CloseTakesWhatIsLeftWithIt) {
  for (int round = 0; round < 3; ++round) {
    const Owned<ibv_context> keeps_the_hca_running = open_first_device();
    ibv_context* context = open_first_device().release();
    ASSERT_NE(context, nullptr);
    static std::vector<std::uint8_t> bytes(4096);
    ibv_pd* pd = ibv_alloc_pd(context);
    ASSERT_NE(pd, nullptr);
    ASSERT_NE(ibv_reg_mr(pd, bytes.data(), bytes.size(), kAllAccess), nullptr);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = ibv_create_cq(context, 8, nullptr, channel, 0);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr attributes = rc_attributes(cq, cq);
    ASSERT_NE(ibv_create_qp(pd, &attributes), nullptr);
    EXPECT_EQ(ibv_close_device(context), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  }
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
