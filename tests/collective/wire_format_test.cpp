// Immediates and signatures: what travels between ranks.
#include <gtest/gtest.h>

#include <array>

#include "base/random.hpp"
#include "collective/immediate.hpp"
#include "collective/signature.hpp"

namespace tensorwire::collective {
namespace {

TEST(Immediate, PacksItsFieldsWhereTheFormatSays) {
  EXPECT_EQ((Immediate{0xabc, 0x123, 0x45}.pack()), 0xabc12345U);
  EXPECT_EQ((Immediate{0x1abc, 0xf123, 0xff}.pack()), 0xabc123ffU) << "counts travel modulo 4096";
  Random random{3};
  for (int i = 0; i < 1000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    EXPECT_EQ(Immediate::unpack(bits).pack(), bits);
  }
}

TEST(Immediate, DistancesWrap) {
  EXPECT_EQ(sequence_distance(4095, 1), 2U);
  EXPECT_EQ(sequence_distance(1, 4095), 4094U);
  EXPECT_EQ(sequence_distance(10'000, 10'000 % 4096), 0U);
  EXPECT_EQ(sequence_distance(8190, (8190 + 3) % 4096), 3U);
}

TEST(Signature, HasItsDocumentedBytes) {
  std::array<std::byte, kSignatureBytes> bytes{};
  store({0x1234, Algorithm::kTwoShot, DType::kFloat16, Op::kSum, 0xa1b2c3d4, 0x112233445566, Collective::kBroadcast,
         0x789a},
        bytes.data());
  const std::array<unsigned, kSignatureBytes> expected{0x34, 0x12, 0x42, 0x21, 0xd4, 0xc3, 0xb2, 0xa1,
                                                       0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x9a, 0x78};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << i;
}

TEST(Signature, NamesTheFieldThatDiffers) {
  const Signature base{1, Algorithm::kOneShot, DType::kFloat32, Op::kSum, 5, 100};
  const auto with = [&](auto change) {
    Signature other = base;
    change(other);
    std::array<std::byte, kSignatureBytes> bytes{};
    store(other, bytes.data());
    const Signature loaded = load_signature(bytes.data());
    EXPECT_EQ(loaded, other);
    return difference(base, loaded);
  };
  EXPECT_EQ(with([](Signature&) {}), SignatureField::kNone);
  EXPECT_EQ(with([](Signature& s) { s.communicator = 2; }), SignatureField::kCommunicator);
  EXPECT_EQ(with([](Signature& s) { s.sequence = 6; }), SignatureField::kSequence);
  EXPECT_EQ(with([](Signature& s) { s.count += std::uint64_t{1} << 40; }), SignatureField::kCount);
  EXPECT_EQ(with([](Signature& s) { s.collective = Collective::kAllGather; }), SignatureField::kCollective);
  EXPECT_EQ(with([](Signature& s) { s.root = 0xffff; }), SignatureField::kRoot);
  EXPECT_EQ(with([](Signature& s) { s.count = kMostCount; }), SignatureField::kCount);
  EXPECT_EQ(with([](Signature& s) { s.dtype = DType::kBfloat16; }), SignatureField::kDType);
  EXPECT_EQ(with([](Signature& s) { s.op = static_cast<Op>(2); }), SignatureField::kOp);
  EXPECT_EQ(with([](Signature& s) { s.algorithm = Algorithm::kTwoShot; }), SignatureField::kAlgorithm);
  EXPECT_EQ(with([](Signature& s) {
              s.count = 7;
              s.algorithm = Algorithm::kTwoShot;
            }),
            SignatureField::kCount)
      << "the algorithm follows from the count: the count is the cause";
  EXPECT_EQ(field_text(base, SignatureField::kCount), "100");
  EXPECT_EQ(field_text(base, SignatureField::kDType), "fp32");
  EXPECT_EQ(field_text(base, SignatureField::kCollective), "all-reduce");
}

TEST(Signature, TheHeaderTellsWhereTheOutputIs) {
  std::array<std::byte, 64> header{};
  store(OutputWindow{0xa1b2c3d4, 0x1122334455667788}, header.data());
  const std::array<unsigned, 16> expected{0xd4, 0xc3, 0xb2, 0xa1, 0,    0,    0,    0,
                                          0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(std::to_integer<unsigned>(header[16 + i]), expected[i]) << i;
  const OutputWindow loaded = load_output_window(header.data());
  EXPECT_EQ(loaded.window, 0xa1b2c3d4U);
  EXPECT_EQ(loaded.offset, 0x1122334455667788U);
}

}  // namespace
}  // namespace tensorwire::collective
