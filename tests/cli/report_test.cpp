#include "cli/bench/report.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"

namespace tensorwire::cli {
namespace {

DecodeReport sample() {
  DecodeReport report;
  report.model = "llama-3.1-70b";
  report.dtype = "fp16";
  report.ranks = 2;
  report.all_reduces_per_token = 160;
  report.bytes = 262144;
  report.verified_operations = 320;
  report.results.push_back({"roce",
                            "packets",
                            75 * kMicrosecond,
                            {100 * kMicrosecond, 150 * kMicrosecond, 200 * kMicrosecond, 0},
                            1600,
                            12345,
                            7,
                            kSecond});
  return report;
}

TEST(Report, ATokenCostsItsAllReduces) { EXPECT_DOUBLE_EQ(comm_ms_per_token(sample().results[0], sample()), 16.0); }

TEST(Report, JsonHasTheDocumentedKeys) {
  const nlohmann::json json = render_json(sample());
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["mismatches"], 0);
  const auto& row = json["results"][0];
  EXPECT_EQ(row["path"], "roce");
  EXPECT_EQ(row["bytes"], 262144);
  EXPECT_EQ(row["gap_us"], 75.0);
  EXPECT_EQ(row["p50_us"], 100.0);
  EXPECT_EQ(row["p99_us"], 150.0);
  EXPECT_EQ(row["max_us"], 200.0);
  EXPECT_EQ(row["comm_ms_per_token"], 16.0);
  EXPECT_EQ(row["retransmissions"], 7);
}

TEST(Report, AMismatchOrNothingCheckedIsNotVerified) {
  DecodeReport report = sample();
  report.mismatches = 1;
  EXPECT_EQ(render_json(report)["verified"], false);
  EXPECT_NE(render_table(report).find("WRONG: 1 of 320"), std::string::npos);
  report = sample();
  report.verified_operations = 0;
  EXPECT_EQ(render_json(report)["verified"], false);
}

TEST(Report, TheTableShowsLatencyAndBudget) {
  const std::string table = render_table(sample());
  EXPECT_NE(table.find("p50 us"), std::string::npos);
  EXPECT_NE(table.find("106.7%"), std::string::npos);  // 16 of 15 ms
}

TEST(WriteFile, ReplacesWholeFilesAndNamesWhatItCannotWrite) {
  const auto path = std::filesystem::temp_directory_path() / "tensorwire_report_test.json";
  write_file(path, "first, and longer\n");
  write_file(path, "second\n");
  std::stringstream text;
  text << std::ifstream{path}.rdbuf();
  EXPECT_EQ(text.str(), "second\n");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  std::filesystem::remove(path);
  EXPECT_THROW(write_file("/no/such/folder/file", "x"), Error);
}

}  // namespace
}  // namespace tensorwire::cli
