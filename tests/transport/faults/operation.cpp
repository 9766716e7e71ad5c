#include "operation.hpp"

namespace tensorwire::transport::faults {

std::uint32_t choose_length(Random& random, std::uint32_t mtu) {
  switch (random.below(16)) {
    case 0:
    case 1:
      return 0;
    case 2:
    case 3:
    case 4:
      return random.below(17);
    case 5:
    case 6:
      return mtu * (1 + random.below(3));
    case 7:
      return mtu * (1 + random.below(3)) + 1;
    case 8:
      return mtu * (1 + random.below(3)) - 1;
    case 9:
    case 10:
      return random.below(4 * mtu);
    case 11:
      return random.below(12) == 0 ? random.below(40 * mtu) : random.below(6 * mtu);
    default:
      return random.below(mtu + 1);
  }
}

namespace {

Defect choose_defect(Random& random, const Operation& op) {
  const auto defect = static_cast<Defect>(1 + random.below(static_cast<std::uint32_t>(Defect::kCount) - 1));
  const bool remote = defect <= Defect::kRemoteDeregistered;
  const bool receive = defect >= Defect::kReceiveShort;
  if (op.fetches()) return receive ? Defect::kReceiveNoRight : defect;
  if ((remote && op.is_send()) || (receive && !op.is_send())) return Defect::kNone;
  return defect;
}

}  // namespace

void Operations::choose(Random& random, std::uint32_t count, std::uint32_t mtu, std::uint32_t max_inline,
                        std::uint32_t defects) {
  all.clear();
  source_bytes = target_bytes = landing_bytes = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    Operation op;
    op.opcode = static_cast<WrOpcode>(random.below(7));
    op.length = is_atomic(op.opcode) ? kAtomicBytes : choose_length(random, mtu);
    op.room = op.length + (random.below(4) == 0 ? random.below(20) : 0);
    op.immediate = static_cast<std::uint32_t>(random.next());
    op.signaled = random.below(3) != 0;
    op.solicited = random.below(2) == 0;
    op.inline_data = !op.fetches() && op.length <= max_inline && random.below(2) == 0;
    op.fence = random.below(8) == 0;
    op.compare_add = random.below(3);
    op.swap = random.below(3);
    if (random.chance(defects)) op.defect = choose_defect(random, op);
    if (op.fetches()) {  // the source is chosen when the peer's zone is known
      landing_bytes += random.below(9);
      op.target = landing_bytes;
      landing_bytes += op.length;
      all.push_back(op);
      continue;
    }
    source_bytes += random.below(5);
    target_bytes += random.below(9);
    op.source = source_bytes;
    op.target = target_bytes;
    source_bytes += op.length;
    target_bytes += op.room;
    all.push_back(op);
  }
}

}  // namespace tensorwire::transport::faults
