#include "comm/observe/flight_record.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"

namespace tensorwire::comm {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string to_json(const FlightRecord::Entry& entry, Ps now) {
  const bool done = entry.ended != 0;
  std::string line = fmt::format(R"({{{},"state":"{}","began_us_ago":{},"took_us":{})", json_fields(entry.info),
                                 done ? "done" : "failed", microseconds(now - entry.begun),
                                 microseconds((done ? entry.ended : now) - entry.begun));
  return line + waited_fields(entry.waited, entry.waited_for) + "}\n";
}

}  // namespace

std::string FlightRecord::to_json_lines(const Identity& who, const FailureNote& failure, Ps now) const {
  const std::uint64_t begun = published_begun_.load(std::memory_order_acquire);
  std::string text = fmt::format(
      R"({{"record":"tensorwire flight record","version":1,"time":"{}","host":{},"process":{},"rank":{},"ranks":{},)"
      R"("communicator":{},"error":{},"operations_begun":{})",
      utc_now(), json_quoted(who.host), getpid(), who.rank, who.ranks, who.communicator, json_quoted(failure.line),
      begun);
  if (failure.peer >= 0) text += fmt::format(R"(,"rank_to_blame":{})", failure.peer);
  if (failure.waiting_for < who.ranks) {
    text += fmt::format(R"(,"waiting_for":{},"waiting_for_what":{})", failure.waiting_for,
                        json_quoted(failure.waiting_for_what));
  }
  text += "}\n";
  const std::uint64_t kept = std::min<std::uint64_t>(begun, kOperations);
  for (std::uint64_t i = begun - kept; i != begun; ++i) {
    if (const auto entry = published_[i % kOperations].load()) text += to_json(*entry, now);
  }
  return text;
}

std::string write_flight_record(const std::string& folder, const Identity& who, const std::string& text) {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) throw system_error("make the folder " + folder, errno);
  const std::string path =
      fmt::format("{}/flight.rank{}.comm{}.{}.{}.jsonl", folder, who.rank, who.communicator, who.host, getpid());
  replace_file(path, text);
  return path;
}

}  // namespace tensorwire::comm
