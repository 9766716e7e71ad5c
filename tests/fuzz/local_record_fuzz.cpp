// Any bytes in a slot of the same-host link's ring: decode() reads nothing outside the slot, and what it accepts is
// consistent with itself and comes back the same from a slot of our own.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "softhca/local_record.hpp"

namespace {

using namespace tensorwire;
using namespace tensorwire::softhca;

void expect(bool truth) {
  if (!truth) std::abort();
}

struct Slot {
  std::array<std::byte, kSlotBodyBytes> body{};
  std::array<std::byte, kSlotDataBytes> data{};
  [[nodiscard]] RingSlot ref() { return {body, data}; }
};

void write_again(const LocalRecord& record, RingSlot slot) {
  if (!record.pulled) {
    std::ranges::copy(record.bytes, encode_inline(record.headers, record.payload_bytes, slot).begin());
    return;
  }
  transport::TxDesc desc;
  desc.headers = record.headers;
  desc.payload_bytes = record.payload_bytes;
  desc.piece_count = record.piece_count;
  for (std::size_t i = 0; i < record.piece_count; ++i)
    desc.pieces[i] = {nullptr, record.pieces[i].address, record.pieces[i].length};
  desc.withdrawals = record.withdrawals;
  encode_pulled(desc, slot);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Slot slot;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto body = bytes.first(std::min(size, slot.body.size()));
  const auto rest = bytes.subspan(body.size());
  std::ranges::copy(body, slot.body.begin());
  std::ranges::copy(rest.first(std::min(rest.size(), slot.data.size())), slot.data.begin());

  LocalRecord record;
  if (!decode(slot.ref(), record)) return 0;
  expect(record.payload_bytes <= transport::kMaxMessageBytes);
  expect(record.payload_bytes == 0 || wire::traits(record.headers.opcode).payload);
  expect(record.pulled || record.bytes.size() == record.payload_bytes);
  std::uint64_t sum = 0;
  for (const RemotePiece& piece : std::span(record.pieces).first(record.pulled ? record.piece_count : 0))
    sum += piece.length;
  expect(!record.pulled || sum == record.payload_bytes);

  Slot again;
  write_again(record, again.ref());
  LocalRecord second;
  expect(decode(again.ref(), second));
  expect(second.headers == record.headers && second.payload_bytes == record.payload_bytes);
  expect(second.pulled == record.pulled && std::ranges::equal(second.bytes, record.bytes));
  for (std::size_t i = 0; record.pulled && i < record.piece_count; ++i)
    expect(second.pieces[i].address == record.pieces[i].address && second.pieces[i].length == record.pieces[i].length);
  return 0;
}
