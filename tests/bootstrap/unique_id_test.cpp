// Unique ids: what they carry, who may use them, and that ranks meet by them.
#include "bootstrap/unique_id.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.hpp"
#include "bootstrap/group.hpp"

namespace tensorwire::bootstrap {
namespace {

TEST(UniqueId, RanksMeetByItAlsoWhenRankZeroComesLast) {
  const UniqueId id = make_unique_id();
  std::thread other{[&] {
    const auto group = Group::join(options_of(id, 1, 2));
    EXPECT_EQ(group->rank(), 1);
    group->barrier();
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  const auto group = Group::join(options_of(id, 0, 2));
  EXPECT_EQ(group->world_size(), 2);
  group->barrier();
  other.join();
}

TEST(UniqueId, NoTwoAreAlike) {
  const GroupOptions a = options_of(make_unique_id(), 1, 2);
  const GroupOptions b = options_of(make_unique_id(), 1, 2);
  EXPECT_NE(a.master_port, b.master_port) << "both ports are open";
  EXPECT_NE(a.job, b.job);
  EXPECT_NE(a.secret, b.secret);
  EXPECT_GE(a.secret.size(), 32U);
}

TEST(UniqueId, AnotherSecretDoesNotOpenTheDoor) {
  const UniqueId id = make_unique_id();
  UniqueId forged = id;
  forged[40] ^= std::byte{1};
  std::thread other{[&] {
    GroupOptions options = options_of(forged, 1, 2);
    options.timeout = 500 * kMillisecond;
    EXPECT_THROW(static_cast<void>(Group::join(options)), Error);
  }};
  GroupOptions options = options_of(id, 0, 2);
  options.timeout = 500 * kMillisecond;
  EXPECT_THROW(static_cast<void>(Group::join(options)), Error);
  other.join();
}

TEST(UniqueId, RankZeroTakesThePortOnce) {
  const UniqueId id = make_unique_id();
  EXPECT_NE(options_of(id, 0, 2).listener, nullptr);
  EXPECT_THROW(static_cast<void>(options_of(id, 0, 2)), Error);
  EXPECT_EQ(options_of(id, 1, 2).listener, nullptr);
}

TEST(UniqueId, DamagedBytesAreRefused) {
  const UniqueId id = make_unique_id();
  for (const std::size_t at : {0U, 7U, 10U}) {
    UniqueId damaged = id;
    damaged[at] = std::byte{200};
    EXPECT_THROW(static_cast<void>(options_of(damaged, 1, 2)), Error) << "byte " << at;
  }
}

TEST(UniqueId, TheVariableChoosesTheAddress) {
  setenv("TENSORWIRE_BOOTSTRAP_ADDRESS", "10.9.8.7", 1);
  const GroupOptions options = options_of(make_unique_id(), 1, 2);
  setenv("TENSORWIRE_BOOTSTRAP_ADDRESS", "lo", 1);
  const GroupOptions by_interface = options_of(make_unique_id(), 1, 2);
  setenv("TENSORWIRE_BOOTSTRAP_ADDRESS", "nothing-of-this-name", 1);
  EXPECT_THROW(static_cast<void>(make_unique_id()), Error);
  unsetenv("TENSORWIRE_BOOTSTRAP_ADDRESS");
  EXPECT_EQ(options.master_address, "10.9.8.7");
  EXPECT_TRUE(options.more_addresses.empty());
  EXPECT_EQ(by_interface.master_address, "127.0.0.1");
}

}  // namespace
}  // namespace tensorwire::bootstrap
