#include "comm/observe/gpu_log.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/observe/operation_info.hpp"

namespace tensorwire::comm {

std::string GpuOperation::json_fields() const {
  std::string fields = fmt::format(R"("bytes":{})", entry.bytes);
  if (collective::known(dtype_of(entry))) fields += fmt::format(R"(,"dtype":"{}")", name_of(dtype_of(entry)));
  if (collective::known(op_of(entry))) fields += fmt::format(R"(,"op":"{}")", name_of(op_of(entry)));
  if (collective_of(entry) != 0) fields += fmt::format(R"(,"collective_number":{})", collective_of(entry));
  std::string waited;
  for (std::size_t peer = 0; peer < entry.waited_ns.size(); ++peer) {
    if (entry.waited_ns[peer] == 0) continue;
    waited += fmt::format(R"({}"{}":{})", waited.empty() ? "" : ",", peer,
                          microseconds(Ps{entry.waited_ns[peer]} * kNanosecond));
  }
  return waited.empty() ? fields : fmt::format(R"({},"waited_us":{{{}}})", fields, waited);
}

void GpuLog::add(const cuda::Communicator::Journal& journal) {
  if (!journal.clock) return;
  clock_error_ = journal.clock->error;
  for (const cuda::JournalEntry& entry : journal.entries) {
    const GpuOperation read{entry, journal.clock->on_host(entry.begun_ns),
                            entry.ended_ns == 0 ? 0 : journal.clock->on_host(entry.ended_ns)};
    const std::uint64_t last = operations_.empty() ? 0 : operations_.back().entry.number;
    if (entry.number > last) {
      dropped_ += entry.number - last - 1;
      operations_.push_back(read);
      continue;
    }
    // It was under way when it was read; places stay in the order of numbers, without gaps but for what was dropped.
    const auto known =
        std::ranges::lower_bound(operations_, entry.number, {}, [](const GpuOperation& of) { return of.entry.number; });
    if (known != operations_.end() && known->entry.number == entry.number && known->ended == 0) *known = read;
  }
  while (operations_.size() > kept_) {
    operations_.pop_front();
    ++dropped_;
  }
}

std::string flight_lines(const GpuLog& log, std::size_t most, Ps now) {
  std::string text;
  const auto& operations = log.operations();
  for (std::size_t at = operations.size() - std::min(most, operations.size()); at != operations.size(); ++at) {
    const GpuOperation& operation = operations[at];
    const bool done = operation.ended != 0;
    text += fmt::format(R"({{"gpu_operation":{},"kind":"{}",{},"state":"{}","began_us_ago":{},"took_us":{}}})"
                        "\n",
                        operation.entry.number, name_of(kind_of(operation.entry)), operation.json_fields(),
                        done ? "done" : "not over", microseconds(now - operation.begun),
                        microseconds((done ? operation.ended : now) - operation.begun));
  }
  return text;
}

}  // namespace tensorwire::comm
