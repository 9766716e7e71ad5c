#include "bootstrap/messages.hpp"

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"

namespace tensorwire::bootstrap {

namespace {

constexpr std::string_view kMagic = "tensorwire/rendezvous";

class Writer {
 public:
  Writer& u8(std::uint8_t v) {
    bytes_.push_back(static_cast<std::byte>(v));
    return *this;
  }
  Writer& u16(std::uint16_t v) {
    store_be16(grow(2), v);
    return *this;
  }
  Writer& u32(std::uint32_t v) {
    store_be32(grow(4), v);
    return *this;
  }
  Writer& u64(std::uint64_t v) {
    store_be64(grow(8), v);
    return *this;
  }
  Writer& raw(std::span<const std::byte> data) {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    return *this;
  }
  Writer& raw(std::string_view text) { return raw(std::as_bytes(std::span{text})); }
  /// Length first.
  Writer& sized(std::span<const std::byte> data) { return u32(static_cast<std::uint32_t>(data.size())).raw(data); }
  Writer& sized(std::string_view text) { return sized(std::as_bytes(std::span{text})); }

  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  std::byte* grow(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return bytes_.data() + bytes_.size() - count;
  }
  Bytes bytes_;
};

/// Once a read goes past the end, everything reads as zero and complete() stays false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> body) : rest_(body) {}

  std::uint8_t u8() { return std::to_integer<std::uint8_t>(*take(1).data()); }
  std::uint16_t u16() { return load_be16(take(2).data()); }
  std::uint32_t u32() { return load_be32(take(4).data()); }
  std::uint64_t u64() { return load_be64(take(8).data()); }
  template <std::size_t size>
  std::array<std::byte, size> array() {
    std::array<std::byte, size> out;
    std::ranges::copy(take(size), out.begin());
    return out;
  }
  std::span<const std::byte> sized() {
    const std::uint32_t length = u32();
    if (length > rest_.size()) {
      good_ = false;
      return {};
    }
    const auto data = rest_.first(length);
    rest_ = rest_.subspan(length);
    return data;
  }
  std::string text(std::size_t limit = kMaxText) {
    const auto data = sized();
    return clean_text({reinterpret_cast<const char*>(data.data()), data.size()}, limit);
  }
  bool magic() {
    if (rest_.size() < kMagic.size() || std::memcmp(rest_.data(), kMagic.data(), kMagic.size()) != 0) good_ = false;
    if (good_) rest_ = rest_.subspan(kMagic.size());
    return good_;
  }
  void require(bool condition) { good_ = good_ && condition; }
  /// Every read was inside, and nothing is left over.
  [[nodiscard]] bool complete() const { return good_ && rest_.empty(); }
  [[nodiscard]] bool good() const { return good_; }

 private:
  std::span<const std::byte> take(std::size_t count) {
    static constexpr std::array<std::byte, 64> kZeros{};
    if (!good_ || rest_.size() < count) {
      good_ = false;
      return std::span{kZeros}.first(count);
    }
    const auto data = rest_.first(count);
    rest_ = rest_.subspan(count);
    return data;
  }
  std::span<const std::byte> rest_;
  bool good_ = true;
};

template <typename Message>
std::optional<Message> if_complete(const Reader& reader, Message message) {
  if (!reader.complete()) return std::nullopt;
  return message;
}

}  // namespace

std::string clean_text(std::string_view text, std::size_t limit) {
  std::string clean{text.substr(0, limit)};
  std::ranges::replace_if(
      clean, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return clean;
}

Bytes encode(const Greeting& m) {
  return Writer{}
      .raw(kMagic)
      .u16(m.version)
      .u16(m.master_port)
      .u64(m.job)
      .u8(m.wants_secret ? 1 : 0)
      .raw(m.nonce)
      .take();
}

std::optional<Greeting> parse_greeting(std::span<const std::byte> body) {
  Reader reader{body};
  if (!reader.magic()) return std::nullopt;
  Greeting m;
  m.version = reader.u16();
  m.master_port = reader.u16();
  m.job = reader.u64();
  m.wants_secret = reader.u8() != 0;
  m.nonce = reader.array<kNonceBytes>();
  return if_complete(reader, m);
}

Bytes encode(const Hello& m) {
  return Writer{}.raw(kMagic).u32(m.rank).u32(m.world_size).sized(m.host).u16(m.door).raw(m.nonce).raw(m.proof).take();
}

std::optional<Hello> parse_hello(std::span<const std::byte> body) {
  Reader reader{body};
  if (!reader.magic()) return std::nullopt;
  Hello m;
  m.rank = reader.u32();
  m.world_size = reader.u32();
  m.host = reader.text(kMaxHostName);
  m.door = reader.u16();
  m.nonce = reader.array<kNonceBytes>();
  m.proof = reader.array<kProofBytes>();
  return if_complete(reader, std::move(m));
}

Bytes encode(const Welcome& m) {
  Writer writer;
  writer.raw(m.lines);
  for (const RankPlace& place : m.places) writer.sized(place.host).sized(place.address).u16(place.door);
  return writer.take();
}

std::optional<Welcome> parse_welcome(std::span<const std::byte> body, std::uint32_t world_size) {
  Reader reader{body};
  Welcome m;
  m.lines = reader.array<kNonceBytes>();
  for (std::uint32_t rank = 0; rank < world_size && reader.good(); ++rank) {
    RankPlace place;
    place.host = reader.text(kMaxHostName);
    place.address = reader.text(kMaxHostName);
    place.door = reader.u16();
    m.places.push_back(std::move(place));
  }
  return if_complete(reader, std::move(m));
}

Bytes encode(const Contribution& m) {
  return Writer{}.u64(m.sequence).u8(static_cast<std::uint8_t>(m.kind)).u32(m.root).sized(m.payload).take();
}

std::optional<Contribution> parse_contribution(std::span<const std::byte> body) {
  Reader reader{body};
  Contribution m;
  m.sequence = reader.u64();
  const std::uint8_t kind = reader.u8();
  reader.require(kind >= static_cast<std::uint8_t>(CallKind::kAllGather) &&
                 kind <= static_cast<std::uint8_t>(CallKind::kBarrier));
  m.kind = static_cast<CallKind>(kind);
  m.root = reader.u32();
  const auto payload = reader.sized();
  m.payload.assign(payload.begin(), payload.end());
  return if_complete(reader, std::move(m));
}

Bytes encode(const Result& m) {
  Writer writer;
  writer.u64(m.sequence).u32(static_cast<std::uint32_t>(m.payloads.size()));
  for (const Bytes& payload : m.payloads) writer.sized(payload);
  return writer.take();
}

std::optional<Result> parse_result(std::span<const std::byte> body, std::uint32_t world_size) {
  Reader reader{body};
  Result m;
  m.sequence = reader.u64();
  reader.require(reader.u32() == world_size);
  for (std::uint32_t rank = 0; rank < world_size && reader.good(); ++rank) {
    const auto payload = reader.sized();
    m.payloads.emplace_back(payload.begin(), payload.end());
  }
  return if_complete(reader, std::move(m));
}

Bytes encode(const Verdict& m) { return Writer{}.u64(m.sequence).sized(m.text).take(); }

std::optional<Verdict> parse_verdict(std::span<const std::byte> body) {
  Reader reader{body};
  Verdict m;
  m.sequence = reader.u64();
  m.text = reader.text();
  return if_complete(reader, std::move(m));
}

Bytes encode(const Failure& m) {
  return Writer{}
      .u32(m.rank)
      .sized(m.host)
      .sized(m.reason)
      .u8(static_cast<std::uint8_t>(m.kind))
      .u32(static_cast<std::uint32_t>(m.told_by))
      .take();
}

std::optional<Failure> parse_failure(std::span<const std::byte> body) {
  Reader reader{body};
  Failure m;
  m.rank = reader.u32();
  m.host = reader.text(kMaxHostName);
  m.reason = reader.text();
  const std::uint8_t kind = reader.u8();
  reader.require(kind >= static_cast<std::uint8_t>(FailureKind::kDied) &&
                 kind <= static_cast<std::uint8_t>(FailureKind::kExcluded));
  m.kind = static_cast<FailureKind>(kind);
  m.told_by = static_cast<std::int32_t>(reader.u32());
  return if_complete(reader, std::move(m));
}

Bytes encode(const RollCall& m) { return Writer{}.u16(m.topic).take(); }

std::optional<RollCall> parse_roll_call(std::span<const std::byte> body) {
  Reader reader{body};
  RollCall m;
  m.topic = reader.u16();
  return if_complete(reader, m);
}

Bytes encode(const ReportOf& m) { return Writer{}.u16(m.topic).u32(m.rank).sized(m.body).take(); }

std::optional<ReportOf> parse_report(std::span<const std::byte> body) {
  Reader reader{body};
  ReportOf m;
  m.topic = reader.u16();
  m.rank = reader.u32();
  const auto content = reader.sized();
  reader.require(content.size() <= kMaxReport);
  if (reader.good()) m.body.assign(content.begin(), content.end());
  return if_complete(reader, std::move(m));
}

Bytes encode_text(const std::string& text) { return Writer{}.raw(clean_text(text)).take(); }

std::string parse_text(std::span<const std::byte> body) {
  return clean_text({reinterpret_cast<const char*>(body.data()), body.size()});
}

Bytes encode(const Caller& m) { return Writer{}.u32(m.from).u32(m.to).raw(m.proof).take(); }

std::optional<Caller> parse_caller(std::span<const std::byte> body) {
  Reader reader{body};
  Caller m;
  m.from = reader.u32();
  m.to = reader.u32();
  m.proof = reader.array<kProofBytes>();
  return if_complete(reader, m);
}

Bytes proof_message(char side, const Greeting& greeting, const Hello& hello) {
  Hello claims = hello;
  claims.proof = {};
  return Writer{}.u8(static_cast<std::uint8_t>(side)).raw(encode(greeting)).raw(encode(claims)).take();
}

Bytes proof_message(const Caller& caller) { return encode(Caller{caller.from, caller.to, {}}); }

}  // namespace tensorwire::bootstrap
