#include "cli/bench/report.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/units.hpp"

namespace tensorwire::cli {

namespace {

double milliseconds(Ps time) { return static_cast<double>(time) / static_cast<double>(kMillisecond); }

std::string count_or_dash(const std::optional<std::uint64_t>& count) { return count ? fmt::format("{}", *count) : "-"; }

std::string row(const PathResult& result, const DecodeReport& report) {
  const double per_token = comm_ms_per_token(result, report);
  return fmt::format("{:<10} {:>6} {:>9.1f} {:>9.1f} {:>9.1f} {:>13.2f} {:>8.1f}% {:>10} {:>9} {:>8} {:>7.2f}\n",
                     result.path, format_duration(result.gap), microseconds(result.latency.p50),
                     microseconds(result.latency.p99), microseconds(result.latency.max), per_token,
                     100 * per_token / milliseconds(kTokenBudget), format_bytes(report.bytes),
                     count_or_dash(result.packets), count_or_dash(result.retransmissions),
                     milliseconds(result.cpu) / 1000);
}

std::string heading(const DecodeReport& report) {
  return fmt::format("{}: {} all-reduces a token of {} {}, {} ranks, {}\n", report.model, report.all_reduces_per_token,
                     format_bytes(report.bytes), report.dtype, report.ranks, report.algorithm);
}

std::string verdict(const DecodeReport& report) {
  if (report.mismatches != 0)
    return fmt::format("WRONG: {} of {} checked results differ\n", report.mismatches, report.verified_operations);
  return fmt::format("verified: {} results right and bit-identical on all ranks\n", report.verified_operations);
}

}  // namespace

double comm_ms_per_token(const PathResult& result, const DecodeReport& report) {
  return milliseconds(result.latency.p50) * report.all_reduces_per_token;
}

std::string render_table(const DecodeReport& report) {
  std::string text = heading(report);
  text += fmt::format("{:<10} {:>6} {:>9} {:>9} {:>9} {:>13} {:>9} {:>10} {:>9} {:>8} {:>7}\n", "path", "gap", "p50 us",
                      "p99 us", "max us", "comm ms/token", "of 15 ms", "bytes", "packets", "retrans", "cpu s");
  for (const PathResult& result : report.results) text += row(result, report);
  for (const PathResult& result : report.results) {
    if (!result.description.empty() && result.gap == report.results.front().gap)
      text += fmt::format("  {}: {}\n", result.path, result.description);
  }
  for (const std::string& note : report.notes) text += "  " + note + "\n";
  return text + verdict(report);
}

nlohmann::json render_json(const DecodeReport& report) {
  nlohmann::json json{{"model", report.model},
                      {"ranks", report.ranks},
                      {"dtype", report.dtype},
                      {"algorithm", report.algorithm},
                      {"all_reduces_per_token", report.all_reduces_per_token},
                      {"verified", report.mismatches == 0 && report.verified_operations > 0},
                      {"verified_operations", report.verified_operations},
                      {"mismatches", report.mismatches},
                      {"tcp_over_bare", report.tcp_over_bare},
                      {"tcp_valid", report.tcp_valid},
                      {"notes", report.notes},
                      {"results", nlohmann::json::array()}};
  for (const PathResult& result : report.results) {
    nlohmann::json entry{{"path", result.path},
                         {"description", result.description},
                         {"bytes", report.bytes},
                         {"gap_us", microseconds(result.gap)},
                         {"operations", result.operations},
                         {"p50_us", microseconds(result.latency.p50)},
                         {"p99_us", microseconds(result.latency.p99)},
                         {"max_us", microseconds(result.latency.max)},
                         {"mean_us", microseconds(result.latency.mean)},
                         {"comm_ms_per_token", comm_ms_per_token(result, report)},
                         {"cpu_s", milliseconds(result.cpu) / 1000}};
    if (result.packets) entry["packets"] = *result.packets;
    if (result.retransmissions) entry["retransmissions"] = *result.retransmissions;
    json["results"].push_back(std::move(entry));
  }
  return json;
}

void write_file(const std::string& path, const std::string& text) {
  std::error_code ignored;
  const bool in_place = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  const std::string target = in_place ? path : path + ".partial";  // a device or a pipe cannot be replaced
  std::ofstream file{target, std::ios::trunc};
  file << text;
  file.close();
  if (!file || (!in_place && std::rename(target.c_str(), path.c_str()) != 0)) {
    const int error = errno;
    if (!in_place) std::remove(target.c_str());
    throw system_error("write " + path, error, "Give a file in a folder that exists and is writable");
  }
}

}  // namespace tensorwire::cli
