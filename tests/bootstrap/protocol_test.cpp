// The bytes on the connection, and rank 0's book of calls: no sockets here.
#include <gtest/gtest.h>

#include <string>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "bootstrap/gather_table.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/names.hpp"

namespace tensorwire::bootstrap {
namespace {

Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span{text});
  return {view.begin(), view.end()};
}

Bytes random_bytes(Random& random, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
  return bytes;
}

TEST(Frames, SurviveEveryCut) {
  Random random{7};
  std::vector<Bytes> bodies{{}, random_bytes(random, 1), random_bytes(random, 1000), random_bytes(random, 64)};
  Bytes stream;
  for (const Bytes& body : bodies) {
    const auto frame = encode_frame(FrameType::kContribution, body);
    stream.insert(stream.end(), frame->begin(), frame->end());
  }
  for (int round = 0; round < 200; ++round) {
    FrameReader reader{1000};
    std::vector<Bytes> seen;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t piece = std::min<std::size_t>(1 + random.below(300), stream.size() - at);
      reader.append(std::span{stream}.subspan(at, piece));
      at += piece;
      while (auto frame = reader.next()) seen.push_back(std::move(frame->body));
    }
    EXPECT_EQ(seen, bodies);
    EXPECT_FALSE(reader.broken());
  }
}

TEST(Frames, TooLongOrUnknownBreaksTheStream) {
  FrameReader too_long{100};
  too_long.append(*encode_frame(FrameType::kHello, Bytes(101)));
  EXPECT_FALSE(too_long.next());
  EXPECT_TRUE(too_long.broken());

  FrameReader stranger{1 << 20};
  stranger.append(bytes_of("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_FALSE(stranger.next());
  EXPECT_TRUE(stranger.broken());

  Bytes unknown = *encode_frame(FrameType::kHello, {});
  unknown[4] = std::byte{99};
  FrameReader reader{100};
  reader.append(unknown);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.broken());
}

TEST(Messages, HelloRoundTripAndEveryTruncation) {
  Hello hello{.rank = 3, .world_size = 8, .host = "gpu07", .nonce = fresh_nonce(), .proof = {}};
  hello.proof.fill(std::byte{0x5a});
  const Bytes body = encode(hello);
  const auto back = parse_hello(body);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->rank, 3U);
  EXPECT_EQ(back->world_size, 8U);
  EXPECT_EQ(back->host, "gpu07");
  EXPECT_EQ(back->nonce, hello.nonce);
  EXPECT_EQ(back->proof, hello.proof);
  for (std::size_t size = 0; size < body.size(); ++size) EXPECT_FALSE(parse_hello(std::span{body}.first(size))) << size;
  Bytes longer = body;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(parse_hello(longer));
}

TEST(Messages, WelcomeRoundTripAndEveryTruncation) {
  const Welcome welcome{{{"gpu01", "", 0}, {"gpu02", "10.0.0.2", 40'001}}, fresh_nonce()};
  const Bytes body = encode(welcome);
  const auto back = parse_welcome(body, 2);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->lines, welcome.lines);
  EXPECT_EQ(back->places[1].host, "gpu02");
  EXPECT_EQ(back->places[1].address, "10.0.0.2");
  EXPECT_EQ(back->places[1].door, 40'001);
  for (std::size_t size = 0; size < body.size(); ++size) EXPECT_FALSE(parse_welcome(std::span{body}.first(size), 2));
  EXPECT_FALSE(parse_welcome(body, 1));
  EXPECT_FALSE(parse_welcome(body, 3));
}

TEST(Messages, GreetingRoundTrip) {
  const Greeting greeting{
      .version = 1, .master_port = 29500, .job = 0x1122334455667788, .wants_secret = true, .nonce = fresh_nonce()};
  const auto back = parse_greeting(encode(greeting));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->master_port, 29500);
  EXPECT_EQ(back->job, greeting.job);
  EXPECT_TRUE(back->wants_secret);
  EXPECT_EQ(back->nonce, greeting.nonce);
  EXPECT_LE(encode(greeting).size(), kMaxHandshakeBody);
}

TEST(Messages, ResultMustHaveOnePartPerRank) {
  const Result result{9, {bytes_of("a"), {}, bytes_of("ccc")}};
  const auto back = parse_result(encode(result), 3);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->sequence, 9U);
  EXPECT_EQ(back->payloads, result.payloads);
  EXPECT_FALSE(parse_result(encode(result), 2));
  EXPECT_FALSE(parse_result(encode(result), 4));
}

TEST(Messages, GarbageNeverParsesNorCrashes) {
  Random random{11};
  for (int round = 0; round < 20000; ++round) {
    const Bytes garbage = random_bytes(random, random.below(200));
    EXPECT_FALSE(parse_hello(garbage));
    EXPECT_FALSE(parse_greeting(garbage));
    (void)parse_contribution(garbage);
    (void)parse_result(garbage, 4);
    (void)parse_verdict(garbage);
    (void)parse_failure(garbage);
    (void)parse_welcome(garbage, 4);
    (void)parse_caller(garbage);
    (void)parse_text(garbage);
  }
}

TEST(Messages, TextsFromTheNetworkAreCleaned) {
  EXPECT_EQ(clean_text("a\nb\x1b[31m"), "a?b?[31m");
  EXPECT_EQ(clean_text(std::string(1000, 'x')).size(), kMaxText);
}

TEST(Secrets, ProofIsHmacSha256) {
  // RFC 4231, test case 2.
  const Proof proof = prove("Jefe", bytes_of("what do ya want for nothing?"));
  constexpr std::array<std::uint8_t, 4> kHead{0x5b, 0xdc, 0xc1, 0x46};
  constexpr std::array<std::uint8_t, 4> kTail{0x64, 0xec, 0x38, 0x43};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::to_integer<std::uint8_t>(proof[i]), kHead[i]);
    EXPECT_EQ(std::to_integer<std::uint8_t>(proof[kProofBytes - 4 + i]), kTail[i]);
  }
}

TEST(Secrets, ProofCoversSideNoncesAndClaims) {
  const Greeting greeting{.version = 1, .master_port = 1, .job = 2, .wants_secret = true, .nonce = fresh_nonce()};
  const Hello hello{.rank = 1, .world_size = 4, .host = "a", .nonce = fresh_nonce(), .proof = {}};
  const Proof proof = prove("s", proof_message('C', greeting, hello));
  Greeting other_greeting = greeting;
  other_greeting.nonce = fresh_nonce();
  Hello other_rank = hello;
  other_rank.rank = 2;
  Hello other_nonce = hello;
  other_nonce.nonce = fresh_nonce();
  EXPECT_TRUE(same_proof(proof, prove("s", proof_message('C', greeting, hello))));
  EXPECT_FALSE(same_proof(proof, prove("t", proof_message('C', greeting, hello))));
  EXPECT_FALSE(same_proof(proof, prove("s", proof_message('S', greeting, hello))));
  EXPECT_FALSE(same_proof(proof, prove("s", proof_message('C', other_greeting, hello))));
  EXPECT_FALSE(same_proof(proof, prove("s", proof_message('C', greeting, other_rank))));
  EXPECT_FALSE(same_proof(proof, prove("s", proof_message('C', greeting, other_nonce))));
}

TEST(GatherTable, CompletesInRankOrderWhateverTheOrderOfArrival) {
  GatherTable table{{"a", "b", "c"}};
  EXPECT_FALSE(table.add(2, {1, CallKind::kAllGather, 0, bytes_of("2")}).complete);
  EXPECT_EQ(table.missing(1), (std::vector{0, 1}));
  EXPECT_FALSE(table.add(2, {2, CallKind::kBarrier, 0, {}}).complete);
  EXPECT_FALSE(table.add(0, {1, CallKind::kAllGather, 0, bytes_of("0")}).complete);
  const auto step = table.add(1, {1, CallKind::kAllGather, 0, bytes_of("1")});
  ASSERT_TRUE(step.complete);
  EXPECT_EQ(*step.complete, (std::vector{bytes_of("0"), bytes_of("1"), bytes_of("2")}));
  EXPECT_TRUE(table.missing(1).empty());
}

TEST(GatherTable, DifferentCallsDoomBoth) {
  GatherTable table{{"a", "b"}};
  (void)table.add(0, {1, CallKind::kBarrier, 0, {}});
  const auto step = table.add(1, {1, CallKind::kBroadcast, 1, {}});
  EXPECT_NE(step.doomed.find("rank 0 on a calls barrier"), std::string::npos) << step.doomed;
  EXPECT_NE(step.doomed.find("rank 1 on b calls broadcast"), std::string::npos) << step.doomed;
}

TEST(GatherTable, WhoLeftIsNotWaitedFor) {
  GatherTable table{{"a", "b", "c"}};
  (void)table.add(0, {1, CallKind::kBarrier, 0, {}});
  (void)table.add(1, {1, CallKind::kBarrier, 0, {}});
  (void)table.add(1, {2, CallKind::kBarrier, 0, {}});
  const auto verdicts = table.mark_left(1);
  EXPECT_TRUE(verdicts.empty()) << "rank 1 came to both calls before it left";
  EXPECT_TRUE(table.add(2, {1, CallKind::kBarrier, 0, {}}).complete);
  EXPECT_NE(table.add(2, {3, CallKind::kBarrier, 0, {}}).doomed.find("rank 1 on b has left"), std::string::npos);

  (void)table.add(0, {4, CallKind::kBarrier, 0, {}});
  const auto later = table.mark_left(2);
  ASSERT_EQ(later.size(), 1U) << "call 2 has rank 2 missing";
  EXPECT_EQ(later[0].sequence, 2U);
}

TEST(Names, RankLists) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({1, 2}), "ranks 1 and 2");
  EXPECT_EQ(rank_list({1, 2, 5}), "ranks 1, 2 and 5");
  EXPECT_EQ(rank_list({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

}  // namespace
}  // namespace tensorwire::bootstrap
