"""Rings, records and channels with one mistake each. The fault simulation over rings must find every one of them. See
tests/transport/mutants."""

from mutant import Mutant

SIMULATION = "tests/softhca/ring_faults/test_ring_faults"
UNIT_TESTS = "tests/softhca/test_softhca"
SOURCES = "src/softhca"
SEEDS = 2500

MUTANTS = [
    # --- the ring
    Mutant("slot_mask_too_small", "the last slots are the first ones again",
           "shm_ring.cpp", "constexpr std::uint32_t kSlotMask = kRingSlots - 1;",
           "constexpr std::uint32_t kSlotMask = kRingSlots / 2 - 1;"),
    Mutant("room_off_by_one", "a full ring has room for one more record",
           "shm_ring.cpp", "  freed_ = freed;\n  return published_ - freed_ + slots <= kRingSlots;",
           "  freed_ = freed;\n  return published_ - freed_ + slots <= kRingSlots + 1;"),
    Mutant("room_never_learned", "what the consumer gave back is read and forgotten",
           "shm_ring.cpp", "  freed_ = freed;\n", ""),
    Mutant("lie_believed", "a consumer may say that it gave back more than was written",
           "shm_ring.cpp", "if (freed < freed_ || freed > published_) {", "if (freed < freed_) {"),
    Mutant("stamp_off_by_one", "a record is handed over with the stamp of the one after it",
           "shm_ring.cpp", "slot.stamp.store(++published_,", "slot.stamp.store(1 + ++published_,"),
    Mutant("any_stamp_is_a_record", "a record of an earlier lap is taken for the next one",
           "shm_ring.cpp", "return slot.stamp.load(std::memory_order_acquire) != consumed_ + 1;",
           "return slot.stamp.load(std::memory_order_acquire) == 0;"),
    Mutant("given_back_too_early", "one slot more is given back than was taken",
           "shm_ring.cpp", "layout.freed.store(consumed_, std::memory_order_seq_cst);",
           "layout.freed.store(consumed_ + 1, std::memory_order_seq_cst);"),
    Mutant("consumer_sleeps_through_a_record", "who wants to sleep does not look for a record first",
           "shm_ring.cpp", "if (slot.stamp.load(std::memory_order_seq_cst) != consumed_ + 1) return true;", "return true;"),
    Mutant("consumer_flag_stays", "who woke up is woken again",
           "shm_ring.cpp", "void RingConsumer::end_sleep() noexcept { memory_.layout().consumer_sleeping.store(0, std::memory_order_relaxed); }",
           "void RingConsumer::end_sleep() noexcept {}"),

    # --- channels
    Mutant("consumer_not_woken", "a record is written and nobody rings",
           "local_channel.cpp", "  if (ring_.must_wake_consumer()) {", "  if (ring_.must_wake_consumer() && counters.wakeups == 0) {"),
    Mutant("producer_not_woken", "slots are given back and nobody rings",
           "local_channel.cpp", "  if (ring_.give_back()) {", "  if (ring_.give_back() && counters.wakeups == 0) {"),
    Mutant("wrong_bell", "the bell of the other end is rung",
           "local_channel.cpp", "wake(fds_.wake_producer);", "wake(fds_.wake_consumer);"),
    Mutant("not_given_back", "records are taken and their slots kept",
           "local_channel.cpp", "  if (ring_.give_back()) {", "  if (taken > 1 && ring_.give_back()) {"),
    Mutant("published_before_written", "a record is handed over before its bytes are there",
           "local_channel.cpp", "    } else if (write_record(desc, inline_bytes)) {\n      ring_.publish();",
           "    } else if (ring_.publish(), write_record(desc, inline_bytes)) {"),
    Mutant("responses_are_pulled", "a READ response is pulled later, when nobody keeps its source any more",
           "local_channel.cpp", "if (!desc.inline_pieces && !response && desc.payload_bytes > inline_bytes) {",
           "if (!desc.inline_pieces && desc.payload_bytes > inline_bytes) {"),
    Mutant("inline_data_is_pulled", "inline data is pulled from the address of the engine's copy",
           "local_channel.cpp", "if (!desc.inline_pieces && !response &&", "if (!response &&"),
    Mutant("source_failure_hidden", "a request whose source is gone is forgotten",
           "local_channel.cpp", "      engine.tx_failed(desc, now);\n", ""),
    Mutant("judged_once", "between two steps of a pull nobody looks whether its target is still there",
           "local_channel.cpp", "  const transport::RxVerdict verdict = engine.classify(record_.headers, record_.payload_bytes, source_, now);",
           "  static thread_local transport::RxVerdict kept;\n"
           "  if (pulled_ == 0) kept = engine.classify(record_.headers, record_.payload_bytes, source_, now);\n"
           "  const transport::RxVerdict verdict = kept;"),
    Mutant("steps_begin_anew", "every step of a pull begins at the first byte",
           "local_channel.cpp", "std::span(record_.pieces).first(record_.piece_count), pieces, pulled_, bytes);",
           "std::span(record_.pieces).first(record_.piece_count), pieces, 0, bytes);"),
    Mutant("progress_kept", "what was pulled of one record counts for the next",
           "local_channel.cpp", "    pulled_ = 0;\n    ring_.pop();", "    ring_.pop();"),
    Mutant("completed_too_early", "a message completes before its last bytes are in",
           "local_channel.cpp", "if (pulled_ != record_.payload_bytes) {", "if (pulled_ + 16 < record_.payload_bytes) {"),
    Mutant("failed_pull_completes", "a pull that failed completes",
           "local_channel.cpp", "    if (status == PullStatus::kMemoryGone) {", "    if (status == PullStatus::kMemoryGone && bytes == 1) {"),
    Mutant("read_again_from_the_ring", "a record that is being pulled is read again from memory that its writer may change",
           "local_channel.cpp", "if (!decoded_ && !decode(", "if (!decode("),
    Mutant("malformed_is_skipped", "a record that is none costs its writer nothing",
           "local_channel.cpp", "    broken_ = \"it wrote a record that makes no sense\";\n", ""),

    Mutant("earlier_life_continued", "a queue pair that was brought up anew gets the rest of a message only",
           "local_channel.cpp", "    if (verdict.qp->life() != life_) pulled_ = 0;\n", "", unit_tests="LocalChannelTest.*"),

    # --- pulling
    Mutant("stale_address_accepted", "whose memory is read does not matter",
           "remote_pull.cpp", "if (probe != source.probe.value) return PullStatus::kPeerGone;", ""),
    Mutant("short_pull_accepted", "a pull that stopped at a missing page is taken for whole",
           "remote_pull.cpp",
           "  if (static_cast<std::uint64_t>(n) != sizeof probe + bytes + sizeof withdrawals) return PullStatus::kMemoryGone;\n"
           "  return withdrawals", "  if (static_cast<std::uint64_t>(n) < sizeof probe + bytes + sizeof withdrawals) return PullStatus::kOk;\n"
           "  return withdrawals"),
    Mutant("taken_back_completes", "a message that its sender took back completes with what lies there now",
           "remote_pull.cpp", "  return withdrawals == standing.withdrawals ? PullStatus::kOk : PullStatus::kWithdrawn;",
           "  return withdrawals >= standing.withdrawals ? PullStatus::kOk : PullStatus::kWithdrawn;"),
    Mutant("taken_back_in_process", "inside one process nobody takes a message back",
           "remote_pull.cpp", "return n == sizeof withdrawals && withdrawals == standing.withdrawals ? PullStatus::kOk",
           "return n == sizeof withdrawals ? PullStatus::kOk"),
    Mutant("somebody_took_it_back", "the count of another queue pair is looked at",
           "remote_pull.cpp", "transport::Withdrawals::index_of(qpn) * sizeof", "transport::Withdrawals::index_of(qpn + 1) * sizeof"),
    Mutant("taken_back_is_an_error", "a message that was taken back ends the channel",
           "local_channel.cpp", "      ++counters.rx_withdrawn;\n", "      ++counters.rx_withdrawn;\n      broken_ = \"taken back\";\n"),

    # --- records
    Mutant("inline_length_unchecked", "a record may carry more than its slot holds",
           "local_record.cpp", "if (out.piece_count != 0 || out.payload_bytes > kSlotDataBytes) return false;",
           "if (out.piece_count != 0) return false;"),
    Mutant("piece_sum_unchecked", "pieces need not add up to the message",
           "local_record.cpp", "  return sum == out.payload_bytes;", "  return sum != 1;"),
    Mutant("datagrams_accepted", "a datagram may come by a channel",
           "local_record.cpp", "if (traits.deth || (payload_bytes", "if ((payload_bytes"),
    Mutant("tail_for_the_writer_alone", "a payload as long as the body's tail lies elsewhere for its writer than for its reader",
           "local_record.cpp", "  return tail_or_data(slot, payload_bytes);",
           "  if (payload_bytes == kTailBytes) return slot.data.first(payload_bytes);\n  return tail_or_data(slot, payload_bytes);"),

    # --- what not every seed has
    Mutant("notification_makes_no_sense", "a CNP that comes by a ring ends its channel",
           "local_record.cpp", "const std::size_t format = cnp ? wire::kCnpPayloadBytes : 0;", "const std::size_t format = 0;"),
    Mutant("notification_of_any_length", "a CNP may have as many bytes as it likes",
           "local_record.cpp", " || (cnp && payload_bytes != format)", ""),
    Mutant("known_by_ipv4", "of a peer's address only the part that IPv4 has counts",
           "local_channel.cpp", "  source_.address = peer_address;\n",
           "  source_.address = wire::Gid::from_ipv4(peer_address.ipv4());\n"),
    Mutant("buffer_left_in_queue", "the buffer of a shared queue stays there while the first bytes are pulled into it",
           "local_channel.cpp", "      engine.hold(verdict, record_.headers);\n", ""),
    Mutant("buffer_for_every_step", "each step of a pull takes another buffer of a shared queue",
           "../transport/receive_queue.cpp", "if (shared_ == nullptr || holding_ ||", "if (shared_ == nullptr ||"),
    Mutant("buffer_for_a_write", "a WRITE that is pulled in steps takes a buffer of a shared queue",
           "../transport/responder_commit.cpp",
           "still_holds(RxPlan::kExecute, headers) && wire::traits(headers.opcode).send", "still_holds(RxPlan::kExecute, headers)"),
    Mutant("invalidated_by_the_first_step", "a SEND with invalidate closes its window when its first bytes are there",
           "../transport/responder_commit.cpp",
           "void Responder::hold(const wire::Headers& headers) noexcept {\n",
           "void Responder::hold(const wire::Headers& headers) noexcept {\n"
           "  core_.memory.invalidate(headers.invalidate_rkey, qp_.init().pd, qp_.qpn());\n"),
    Mutant("unreliable_by_ring", "an unreliable connection hears what came by a ring",
           "../transport/engine.cpp", "!qp->serves(headers.opcode, source)", "!qp->serves(headers.opcode, PacketSource{source.address})"),
]
