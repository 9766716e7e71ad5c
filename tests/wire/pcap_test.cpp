#include "wire/pcap.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "packets.hpp"

namespace tensorwire::wire {
namespace {

using testing::from_hex;
using testing::random_bytes;

constexpr std::size_t kFileHeader = 24;
constexpr std::size_t kRecordHeader = 16;

/// A path in the temporary folder that is gone when the test ends.
class TemporaryFile {
 public:
  TemporaryFile()
      : path_((std::filesystem::temp_directory_path() /
               ("tensorwire_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "_" +
                std::to_string(::getpid()) + ".pcap"))
                  .string()) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] std::vector<std::byte> content() const {
    std::ifstream in(path_, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::vector<std::byte> bytes(text.size());
    std::transform(text.begin(), text.end(), bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
    return bytes;
  }

 private:
  std::string path_;
};

FrameInfo some_info() {
  FrameInfo info;
  info.flow = ipv4_flow(0x7f000001, 0x7f000002, 0xc123, 4791);
  info.tos = 104;
  info.ip_id = 0xfffe;
  return info;
}

std::string error_of(std::span<const std::byte> file) {
  try {
    (void)parse_pcap(file, "x.pcap");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::byte> concat(std::initializer_list<std::string_view> hex) {
  std::string all;
  for (const std::string_view part : hex) all += part;
  return from_hex(all);
}

TEST(Pcap, RoundTrips) {
  const TemporaryFile file;
  Random random(1);
  constexpr std::int64_t kEpoch = 1'800'000'000'000'000'123;  // 2027
  std::vector<std::vector<std::byte>> payloads;
  {
    PcapWriter writer(file.path(), kEpoch);
    for (int i = 0; i < 200; ++i) {
      payloads.push_back(random_bytes(random, i == 0 ? kMaxUdpPayloadBytes : random.below(5000)));
      writer.write(some_info(), payloads.back(), i * kSecond + i * kNanosecond);
    }
    writer.flush();
  }
  const auto records = read_pcap(file.path());
  ASSERT_EQ(records.size(), payloads.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].time_ns, kEpoch + static_cast<std::int64_t>(i) * 1'000'000'001);
    EXPECT_EQ(records[i].original_bytes, records[i].bytes.size());
    const auto frame = parse_frame(records[i].bytes);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->info.tos, 104);
    EXPECT_EQ(frame->info.ip_id, 0xfffe);
    ASSERT_TRUE(
        std::equal(payloads[i].begin(), payloads[i].end(), frame->udp_payload.begin(), frame->udp_payload.end()));
  }
}

TEST(Pcap, SuperPacketsAreSplitAndNumbered) {
  const TemporaryFile file;
  Random random(2);
  const auto super = random_bytes(random, 3 * 1000 + 24);
  PcapWriter writer(file.path());
  writer.write_segments(some_info(), super, 1000, 5 * kMicrosecond);
  writer.write_segments(some_info(), std::span(super).first(2000), 1000, 6 * kMicrosecond);
  writer.write_segments(some_info(), std::span(super).first(10), 1000, 7 * kMicrosecond);
  writer.write_segments(some_info(), {}, 1000, 8 * kMicrosecond);
  writer.flush();
  const auto records = read_pcap(file.path());
  ASSERT_EQ(records.size(), 7U);
  const std::vector<std::size_t> sizes{1000, 1000, 1000, 24, 1000, 1000, 10};
  const std::vector<std::uint16_t> ids{0xfffe, 0xffff, 0, 1, 0xfffe, 0xffff, 0xfffe};
  std::vector<std::byte> joined;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto frame = parse_frame(records[i].bytes);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->udp_payload.size(), sizes[i]);
    EXPECT_EQ(frame->info.ip_id, ids[i]);
    EXPECT_EQ(records[i].time_ns, i < 4 ? 5000 : i < 6 ? 6000 : 7000);
    if (i < 4) joined.insert(joined.end(), frame->udp_payload.begin(), frame->udp_payload.end());
  }
  EXPECT_EQ(joined, super);
}

TEST(Pcap, FileWithoutPacketsIsAValidCapture) {
  const TemporaryFile file;
  PcapWriter writer(file.path());
  EXPECT_EQ(file.content(), from_hex("a1b23c4d"
                                     "00020004"
                                     "0000000000000000"
                                     "00040000"
                                     "00000001"));
  EXPECT_TRUE(read_pcap(file.path()).empty());
}

TEST(Pcap, WriterNamesThePathItCannotCreate) {
  try {
    PcapWriter writer("/nonexistent-folder/x.pcap");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent-folder/x.pcap"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file or directory"), std::string::npos);
  }
}

TEST(Pcap, AFullDiskIsAnErrorAndNotASilentLoss) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  try {
    PcapWriter writer("/dev/full");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
}

TEST(Pcap, ReadsBothByteOrdersAndBothResolutions) {
  const std::string_view big_rest =
      "00020004"
      "0000000000000000"
      "0000ffff"
      "00000001"
      "00000001"
      "00000002";
  const std::string_view little_rest =
      "02000400"
      "0000000000000000"
      "ffff0000"
      "01000000"
      "01000000"
      "02000000";
  const auto big_ns = concat({"a1b23c4d", big_rest, "00000003", "00000009", "aabbcc"});
  const auto big_us = concat({"a1b2c3d4", big_rest, "00000003", "00000009", "aabbcc"});
  const auto little_ns = concat({"4d3cb2a1", little_rest, "03000000", "09000000", "aabbcc"});
  const auto little_us = concat({"d4c3b2a1", little_rest, "03000000", "09000000", "aabbcc"});
  for (const auto& file : {big_ns, big_us, little_ns, little_us}) {
    const auto records = parse_pcap(file, "x");
    ASSERT_EQ(records.size(), 1U);
    const bool micro = file == big_us || file == little_us;
    EXPECT_EQ(records[0].time_ns, 1'000'000'000 + (micro ? 2000 : 2));
    EXPECT_EQ(records[0].bytes, from_hex("aabbcc"));
    EXPECT_EQ(records[0].original_bytes, 9U);
  }
}

TEST(Pcap, ErrorsSayWhereAndWhy) {
  const std::string_view head =
      "a1b23c4d"
      "00020004"
      "0000000000000000"
      "0000ffff";
  EXPECT_NE(error_of({}).find("x.pcap at offset 0: the file has 0 bytes"), std::string::npos) << error_of({});
  EXPECT_NE(error_of(from_hex("0a0d0d0a0000000000000000000000000000000000000000")).find("editcap"), std::string::npos);
  EXPECT_NE(error_of(from_hex("123456780000000000000000000000000000000000000000")).find("not a pcap file"),
            std::string::npos);
  EXPECT_NE(error_of(concat({head, "00000071"})).find("link type 113 is not Ethernet"), std::string::npos);
  EXPECT_NE(error_of(from_hex("a1b23c4d0003000400000000000000000000ffff00000001")).find("pcap version 3"),
            std::string::npos);
  EXPECT_NE(error_of(concat({head, "00000001", "00000000"})).find("offset 24: the file ends inside a record header"),
            std::string::npos);
  const std::string lies = error_of(concat({head, "00000001", "00000000", "00000000", "ffffffff", "ffffffff", "aabb"}));
  EXPECT_NE(lies.find("offset 24: a record claims 4294967295 bytes, the file has 2 bytes left"), std::string::npos)
      << lies;
  EXPECT_THROW((void)read_pcap("/nonexistent.pcap"), Error);
  EXPECT_THROW((void)read_pcap("/"), Error);
}

TEST(Pcap, EveryTruncationIsRefusedOrEndsBetweenRecords) {
  const TemporaryFile file;
  Random random(3);
  {
    PcapWriter writer(file.path());
    writer.write(some_info(), random_bytes(random, 10), 0);
    writer.write(some_info(), random_bytes(random, 20), 0);
  }
  const auto whole = file.content();
  const std::size_t second = kFileHeader + kRecordHeader + kEthernetBytes + kIpv4Bytes + kUdpBytes + 10;
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    const bool between = n == kFileHeader || n == second || n == whole.size();
    EXPECT_EQ(error_of(cut).empty(), between) << n;
  }
}

TEST(Pcap, RandomDamageIsAnErrorOrACaptureButNeverACrash) {
  const TemporaryFile file;
  Random random(4);
  {
    PcapWriter writer(file.path());
    for (int i = 0; i < 4; ++i) writer.write(some_info(), random_bytes(random, 8), 0);
  }
  const auto whole = file.content();
  int errors = 0;
  for (int i = 0; i < 5000; ++i) {
    auto damaged = whole;
    damaged[random.below(static_cast<std::uint32_t>(whole.size()))] = static_cast<std::byte>(random.next());
    errors += error_of(damaged).empty() ? 0 : 1;
  }
  // 24 of the 312 bytes decide whether the file can be read.
  EXPECT_GT(errors, 100);
  EXPECT_LT(errors, 1000);
}

}  // namespace
}  // namespace tensorwire::wire
