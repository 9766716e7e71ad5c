#include "softhca/shm_ring.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/random.hpp"

namespace tensorwire::softhca {
namespace {

struct Ring {
  RingMemory memory = RingMemory::create();
  RingProducer producer{memory};
  RingConsumer consumer{memory};

  void put(std::uint64_t value) {
    std::memcpy(producer.next_slot().body.data(), &value, sizeof value);
    producer.publish();
  }
  std::uint64_t get() {
    std::uint64_t value = 0;
    std::memcpy(&value, consumer.front().body.data(), sizeof value);
    consumer.pop();
    return value;
  }
};

TEST(ShmRing, IsEmptyAtFirst) {
  Ring ring;
  EXPECT_TRUE(ring.consumer.empty());
  EXPECT_TRUE(ring.producer.has_room(kRingSlots));
  EXPECT_FALSE(ring.producer.has_room(kRingSlots + 1));
}

TEST(ShmRing, KeepsOrderAcrossManyLaps) {
  Ring ring;
  Random random(3);
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  while (out < 10 * kRingSlots) {
    for (std::uint32_t n = random.below(kRingSlots); n != 0 && ring.producer.has_room(1); --n) ring.put(in++);
    for (std::uint32_t n = random.below(kRingSlots); n != 0 && !ring.consumer.empty(); --n) {
      ASSERT_EQ(ring.get(), out);
      ++out;
    }
    EXPECT_FALSE(ring.consumer.give_back());
  }
}

TEST(ShmRing, FullUntilGivenBack) {
  Ring ring;
  for (std::uint32_t i = 0; i < kRingSlots; ++i) {
    ASSERT_TRUE(ring.producer.has_room(1));
    ring.put(i);
  }
  EXPECT_FALSE(ring.producer.has_room(1));
  for (std::uint32_t i = 0; i < 10; ++i) ring.get();
  EXPECT_FALSE(ring.producer.has_room(1)) << "popped, but not given back";
  std::ignore = ring.consumer.give_back();
  EXPECT_TRUE(ring.producer.has_room(10));
  EXPECT_FALSE(ring.producer.has_room(11));
}

TEST(ShmRing, SlotsDoNotOverlap) {
  Ring ring;
  for (std::uint32_t i = 0; i < kRingSlots; ++i) {
    const RingSlot slot = ring.producer.next_slot();
    std::memset(slot.body.data(), static_cast<int>(i), slot.body.size());
    std::memset(slot.data.data(), static_cast<int>(i), slot.data.size());
    ring.producer.publish();
  }
  for (std::uint32_t i = 0; i < kRingSlots; ++i) {
    ASSERT_FALSE(ring.consumer.empty());
    const RingSlot slot = ring.consumer.front();
    const auto is_i = [&](std::byte b) { return b == static_cast<std::byte>(i); };
    EXPECT_TRUE(std::all_of(slot.body.begin(), slot.body.end(), is_i)) << i;
    EXPECT_TRUE(std::all_of(slot.data.begin(), slot.data.end(), is_i)) << i;
    ring.consumer.pop();
  }
  EXPECT_TRUE(ring.consumer.empty());
}

TEST(ShmRing, AskingToBeWokenFailsWhenThereIsSomething) {
  Ring ring;
  EXPECT_TRUE(ring.consumer.prepare_sleep());
  ring.consumer.end_sleep();
  ring.put(1);
  EXPECT_FALSE(ring.producer.must_wake_consumer()) << "nobody sleeps";
  EXPECT_FALSE(ring.consumer.prepare_sleep());
  EXPECT_FALSE(ring.producer.must_wake_consumer()) << "the failed attempt took its flag back";
}

TEST(ShmRing, OneWakeUpForManyRecords) {
  Ring ring;
  ASSERT_TRUE(ring.consumer.prepare_sleep());
  ring.put(1);
  EXPECT_TRUE(ring.producer.must_wake_consumer());
  ring.put(2);
  EXPECT_FALSE(ring.producer.must_wake_consumer());
}

TEST(ShmRing, FullProducerIsWokenWhenRecordsComeBack) {
  Ring ring;
  for (std::uint32_t i = 0; i < kRingSlots; ++i) ring.put(i);
  ASSERT_FALSE(ring.producer.has_room(1));
  ASSERT_TRUE(ring.producer.prepare_sleep(1));
  EXPECT_FALSE(ring.consumer.give_back()) << "nothing was popped";
  ring.get();
  EXPECT_TRUE(ring.consumer.give_back());
  ring.get();
  EXPECT_FALSE(ring.consumer.give_back()) << "the flag was taken";
  EXPECT_FALSE(ring.producer.prepare_sleep(1)) << "there is room";
}

TEST(ShmRing, ConsumerThatLiesAboutItsPositionIsFound) {
  for (const std::uint64_t lie : {std::uint64_t{kRingSlots + 1}, UINT64_MAX, std::uint64_t{1} << 63}) {
    Ring ring;
    for (std::uint32_t i = 0; i < kRingSlots; ++i) ring.put(i);
    ring.memory.layout().freed.store(lie);
    EXPECT_FALSE(ring.producer.has_room(1));
    EXPECT_TRUE(ring.producer.corrupt());
  }
  Ring ring;
  for (std::uint32_t i = 0; i < kRingSlots; ++i) ring.put(i);
  ring.memory.layout().freed.store(10);
  EXPECT_TRUE(ring.producer.has_room(10));
  for (std::uint32_t i = 0; i < 10; ++i) ring.put(i);
  ring.memory.layout().freed.store(9);
  EXPECT_FALSE(ring.producer.has_room(1));
  EXPECT_TRUE(ring.producer.corrupt()) << "a position never goes back";
}

/// Producer and consumer on two threads, both of which sleep (in poll) whenever they can. Under ThreadSanitizer this
/// shows that the ring orders every access to the slots; anywhere, that no wake-up is lost: a lost one ends in the
/// time-out of poll and fails.
TEST(ShmRing, TwoThreadsThatSleepLoseNothing) {
  Ring ring;
  constexpr std::uint64_t kRecords = 50'000;
  std::atomic<bool> failed{false};
  const UniqueFd consumer_fd(::eventfd(0, EFD_NONBLOCK));
  const UniqueFd producer_fd(::eventfd(0, EFD_NONBLOCK));
  const auto wake = [](const UniqueFd& fd) { ASSERT_EQ(::eventfd_write(fd.get(), 1), 0); };
  const auto sleep = [&](const UniqueFd& fd) {
    pollfd p{fd.get(), POLLIN, 0};
    if (::poll(&p, 1, 10'000) != 1) {
      failed = true;
      FAIL() << "a wake-up was lost";
    }
    eventfd_t value;
    ASSERT_EQ(::eventfd_read(fd.get(), &value), 0);
  };

  std::thread producer([&] {
    Random random(5);
    for (std::uint64_t i = 0; i < kRecords && !failed;) {
      if (!ring.producer.has_room(1)) {
        if (ring.producer.prepare_sleep(1)) sleep(producer_fd);
        ring.producer.end_sleep();
        continue;
      }
      for (std::uint32_t n = 1 + random.below(8); n != 0 && i < kRecords && ring.producer.has_room(1); --n) {
        const RingSlot slot = ring.producer.next_slot();
        std::memcpy(slot.data.data() + kSlotDataBytes - sizeof i, &i, sizeof i);
        ring.put(i++);
      }
      if (ring.producer.must_wake_consumer()) wake(consumer_fd);
    }
  });

  for (std::uint64_t expected = 0; expected < kRecords;) {
    if (ring.consumer.empty()) {
      if (ring.consumer.prepare_sleep()) sleep(consumer_fd);
      ring.consumer.end_sleep();
      if (failed) break;
      continue;
    }
    std::uint64_t far = 0;
    std::memcpy(&far, ring.consumer.front().data.data() + kSlotDataBytes - sizeof far, sizeof far);
    const std::uint64_t got = ring.get();
    failed = far != expected || got != expected;
    if (failed) {
      ADD_FAILURE() << "record " << expected << " came as " << got << " and " << far;
      break;
    }
    ++expected;
    if (expected % 7 == 0 || ring.consumer.empty()) {
      if (ring.consumer.give_back()) wake(producer_fd);
    }
  }
  producer.join();
}

TEST(RingMemory, IsSharedThroughItsDescriptor) {
  Ring ring;
  auto other = RingMemory::adopt(UniqueFd(::dup(ring.memory.fd())));
  ASSERT_TRUE(other);
  ASSERT_NE(&other->layout(), &ring.memory.layout());
  RingConsumer consumer(std::move(*other));
  EXPECT_TRUE(consumer.empty());
  ring.put(7);
  ASSERT_FALSE(consumer.empty());
  EXPECT_EQ(consumer.front().body[0], std::byte{7});
}

TEST(RingMemory, CannotBeShrunkUnderItsReader) {
  const RingMemory memory = RingMemory::create();
  EXPECT_NE(::ftruncate(memory.fd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST(RingMemory, RefusesWhatIsNotARing) {
  const auto shared = [](std::size_t bytes, int seals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  EXPECT_TRUE(RingMemory::adopt(shared(sizeof(RingLayout), F_SEAL_SHRINK)));
  EXPECT_FALSE(RingMemory::adopt(shared(sizeof(RingLayout), 0))) << "its maker could shrink it";
  EXPECT_FALSE(RingMemory::adopt(shared(sizeof(RingLayout) - 4096, F_SEAL_SHRINK)));
  EXPECT_FALSE(RingMemory::adopt(shared(0, F_SEAL_SHRINK)));
  EXPECT_FALSE(RingMemory::adopt(shared(sizeof(RingLayout), F_SEAL_SHRINK | F_SEAL_WRITE))) << "not writable";
  EXPECT_FALSE(RingMemory::adopt(UniqueFd(::eventfd(0, 0))));
  EXPECT_FALSE(RingMemory::adopt(UniqueFd(::open("/dev/null", O_RDWR))));
  EXPECT_FALSE(RingMemory::adopt(UniqueFd()));
}

}  // namespace
}  // namespace tensorwire::softhca
