// Meshes with planted faults: the judge names exactly what is wrong, and nothing where nothing is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "cli/mesh/judge.hpp"
#include "cli/mesh/outliers.hpp"

namespace tensorwire::cli {
namespace {

constexpr double kHealthyLatency = 5;
constexpr double kHealthyBandwidth = 40;

/// Hosts h0, h1, ... with a device on each rail, all as fast as one another within a few percent.
MeshMatrix healthy_mesh(std::size_t hosts, std::size_t rails = 1, double line = 0) {
  std::mt19937 random{7};
  std::uniform_real_distribution<double> noise{0.95, 1.05};
  std::vector<MeshHost> rows(hosts);
  for (std::size_t host = 0; host < hosts; ++host) {
    rows[host].name = fmt::format("h{}", host);
    for (std::size_t rail = 0; rail < rails; ++rail) {
      MeshEnd end;
      end.rank = static_cast<int>(host);
      end.device = fmt::format("mlx5_{}", rail);
      end.line_gb_s = line;
      rows[host].ends.push_back(end);
    }
  }
  MeshMatrix mesh{std::move(rows), rails};
  for (std::size_t rail = 0; rail < rails; ++rail) {
    for (std::size_t from = 0; from < hosts; ++from) {
      for (std::size_t to = 0; to < hosts; ++to) {
        if (from == to) continue;
        const double latency = kHealthyLatency * noise(random);
        mesh.cell(rail, from, to) = {true, latency, 2 * latency, kHealthyBandwidth * noise(random), {}, {}, {}};
      }
    }
  }
  return mesh;
}

/// Applies `spoil` to the cells that `chosen` says.
template <class Chosen, class Spoil>
void plant(MeshMatrix& mesh, Chosen chosen, Spoil spoil) {
  for (std::size_t rail = 0; rail < mesh.rails(); ++rail) {
    for (std::size_t from = 0; from < mesh.hosts().size(); ++from) {
      for (std::size_t to = 0; to < mesh.hosts().size(); ++to) {
        if (from != to && chosen(rail, from, to)) spoil(mesh.cell(rail, from, to));
      }
    }
  }
}

void make_slow(MeshCell& cell) { cell.bandwidth_gb_s /= 4; }
void make_late(MeshCell& cell) { cell.latency_p50_us *= 10; }
void make_fail(MeshCell& cell) {
  cell = {false, 0, 0, 0, "write to h: the peer does not answer. Mend it", "the peer does not answer", "RETRY"};
}

std::string told(const MeshVerdict& verdict) {
  std::string text;
  for (const MeshFinding& finding : verdict.findings) text += finding.sentence + "\n";
  return text;
}

/// The one finding; a failure that says what was found where it is not one.
MeshFinding only(const MeshMatrix& mesh) {
  const MeshVerdict verdict = judge_mesh(mesh);
  EXPECT_EQ(1U, verdict.findings.size()) << told(verdict);
  return verdict.findings.empty() ? MeshFinding{} : verdict.findings.front();
}

TEST(MeshJudge, AHealthyMeshIsClean) {
  for (const std::size_t hosts : {2, 3, 4, 7, 16}) {
    for (const std::size_t rails : {1, 2, 8}) {
      const MeshVerdict verdict = judge_mesh(healthy_mesh(hosts, rails));
      EXPECT_TRUE(verdict.findings.empty()) << hosts << " hosts, " << rails << " rails:\n" << told(verdict);
      for (const auto& suspects : verdict.suspects) EXPECT_TRUE(suspects.empty());
    }
  }
}

TEST(MeshJudge, OneHostOfAnyNumberFromThree) {
  for (const std::size_t hosts : {3, 4, 5, 12}) {
    for (std::size_t guilty = 0; guilty < hosts; ++guilty) {
      MeshMatrix mesh = healthy_mesh(hosts);
      plant(
          mesh, [&](auto, auto from, auto to) { return from == guilty || to == guilty; }, make_slow);
      const MeshFinding finding = only(mesh);
      EXPECT_EQ(MeshTrouble::kBandwidth, finding.trouble);
      EXPECT_EQ(BlameScope::kHost, finding.blame.scope);
      EXPECT_EQ(BlameWay::kBothWays, finding.blame.way);
      EXPECT_EQ(guilty, finding.blame.host);
      EXPECT_NEAR(kHealthyBandwidth / 4, finding.measured, 1);
    }
  }
}

TEST(MeshJudge, AHostThatOnlySendsOrReceivesSlowly) {
  for (const bool sends : {true, false}) {
    MeshMatrix mesh = healthy_mesh(4);
    plant(
        mesh, [&](auto, auto from, auto to) { return (sends ? from : to) == 2; }, make_slow);
    const MeshFinding finding = only(mesh);
    EXPECT_EQ(BlameScope::kHost, finding.blame.scope);
    EXPECT_EQ(sends ? BlameWay::kSending : BlameWay::kReceiving, finding.blame.way);
    EXPECT_EQ(2U, finding.blame.host);
    EXPECT_NE(std::string::npos, finding.sentence.find(sends ? "sending" : "receiving")) << finding.sentence;
  }
}

TEST(MeshJudge, APairAndOneDirectionOfIt) {
  MeshMatrix mesh = healthy_mesh(5);
  plant(
      mesh, [](auto, auto from, auto to) { return from + to == 4 && (from == 1 || to == 1); }, make_slow);
  MeshFinding finding = only(mesh);
  EXPECT_EQ(BlameScope::kRailPair, finding.blame.scope);
  EXPECT_EQ(BlameWay::kBothWays, finding.blame.way);
  EXPECT_NE(std::string::npos, finding.sentence.find("h1 <-> h3")) << finding.sentence;

  mesh = healthy_mesh(5);
  make_slow(mesh.cell(0, 3, 1));
  finding = only(mesh);
  EXPECT_EQ(BlameWay::kSending, finding.blame.way);
  EXPECT_NE(std::string::npos, finding.sentence.find("h3 -> h1")) << finding.sentence;
}

TEST(MeshJudge, TwoHostsThatDifferInOneDirection) {
  MeshMatrix mesh = healthy_mesh(2);
  make_slow(mesh.cell(0, 1, 0));
  EXPECT_NE(std::string::npos, only(mesh).sentence.find("h1 -> h0"));
}

TEST(MeshJudge, ACableIsADeviceOfOneHost) {
  MeshMatrix mesh = healthy_mesh(4, 3);
  plant(
      mesh, [](auto rail, auto from, auto to) { return rail == 1 && (from == 2 || to == 2); }, make_slow);
  const MeshFinding finding = only(mesh);
  EXPECT_EQ(BlameScope::kCable, finding.blame.scope);
  EXPECT_EQ(2U, finding.blame.host);
  EXPECT_EQ(1U, finding.blame.rail);
  EXPECT_NE(std::string::npos, finding.sentence.find("cable of h2 mlx5_1 (rail 1)")) << finding.sentence;
}

TEST(MeshJudge, ARailOfAllHosts) {
  MeshMatrix mesh = healthy_mesh(4, 4);
  plant(
      mesh, [](auto rail, auto, auto) { return rail == 3; }, make_late);
  const MeshFinding finding = only(mesh);
  EXPECT_EQ(MeshTrouble::kLatency, finding.trouble);
  EXPECT_EQ(BlameScope::kRail, finding.blame.scope);
  EXPECT_EQ(3U, finding.blame.rail);
}

TEST(MeshJudge, AHostOnAllItsRailsIsNoCable) {
  MeshMatrix mesh = healthy_mesh(4, 2);
  plant(
      mesh, [](auto, auto from, auto to) { return from == 0 || to == 0; }, make_late);
  EXPECT_EQ(BlameScope::kHost, only(mesh).blame.scope);
}

TEST(MeshJudge, WhatLooksLateFromOneEndOnlyIsNoise) {
  MeshMatrix mesh = healthy_mesh(4);
  make_late(mesh.cell(0, 1, 2));
  EXPECT_TRUE(judge_mesh(mesh).findings.empty());
}

TEST(MeshJudge, SeveralFaultsAreToldApart) {
  MeshMatrix mesh = healthy_mesh(8, 2);
  plant(
      mesh, [](auto rail, auto from, auto to) { return rail == 0 && (from == 5 || to == 5); }, make_slow);
  plant(
      mesh, [](auto, auto from, auto to) { return from == 2 || to == 2; }, make_late);
  make_fail(mesh.cell(1, 6, 7));
  make_fail(mesh.cell(1, 7, 6));
  const MeshVerdict verdict = judge_mesh(mesh);
  ASSERT_EQ(3U, verdict.findings.size()) << told(verdict);
  EXPECT_EQ(MeshTrouble::kUnreached, verdict.findings[0].trouble);
  EXPECT_NE(std::string::npos, verdict.findings[0].sentence.find("h6 <-> h7 on rail 1: writes fail"));
  EXPECT_EQ(MeshTrouble::kLatency, verdict.findings[1].trouble);
  EXPECT_EQ(2U, verdict.findings[1].blame.host);
  EXPECT_EQ(MeshTrouble::kBandwidth, verdict.findings[2].trouble);
  EXPECT_EQ(BlameScope::kCable, verdict.findings[2].blame.scope);
}

TEST(MeshJudge, HostsThatNobodyReaches) {
  MeshMatrix mesh = healthy_mesh(5);
  plant(
      mesh, [](auto, auto from, auto to) { return from == 1 || to == 1 || from == 4 || to == 4; }, make_fail);
  const MeshVerdict verdict = judge_mesh(mesh);
  ASSERT_EQ(2U, verdict.findings.size()) << told(verdict);
  for (const MeshFinding& finding : verdict.findings) EXPECT_EQ(BlameScope::kHost, finding.blame.scope);
  EXPECT_EQ(1U + 4U, verdict.findings[0].blame.host + verdict.findings[1].blame.host);
}

TEST(MeshJudge, WhereNobodyReachesAnybodyNoHostIsBlamed) {
  MeshMatrix mesh = healthy_mesh(4);
  plant(
      mesh, [](auto, auto, auto) { return true; }, make_fail);
  const MeshFinding finding = only(mesh);
  EXPECT_EQ(BlameScope::kAll, finding.blame.scope);
  EXPECT_NE(std::string::npos, finding.sentence.find("every pair: writes fail: the peer does not answer"));
}

TEST(MeshJudge, AbsentHostsAndDevicesAreNamedOnce) {
  MeshMatrix mesh = healthy_mesh(4, 2);
  mesh.hosts()[3].absent = "it did not come within 60s";
  mesh.hosts()[1].ends[1].problem = "port 1 is DOWN";
  mesh.hosts()[2].ends[1].rank = -1;
  plant(
      mesh, [&](auto rail, auto from, auto to) { return !mesh.has_pair(rail, from, to); },
      [](MeshCell& cell) { cell = {}; });
  const MeshVerdict verdict = judge_mesh(mesh);
  ASSERT_EQ(3U, verdict.findings.size()) << told(verdict);
  EXPECT_EQ("host h3 took no part: it did not come within 60s", verdict.findings[0].sentence);
  EXPECT_EQ("h1 rail 1: mlx5_1 cannot be used: port 1 is DOWN", verdict.findings[1].sentence);
  EXPECT_EQ("h2 rail 1: it has no device there, and another host has", verdict.findings[2].sentence);
}

TEST(MeshJudge, WhoeverDroppedOutIsNamedForThatAlone) {
  MeshMatrix mesh = healthy_mesh(4);
  make_slow(mesh.cell(0, 3, 1));
  make_late(mesh.cell(0, 3, 2));
  mesh.hosts()[3].absent = "it did not open within 20s";
  EXPECT_EQ(MeshTrouble::kAbsent, only(mesh).trouble);
}

TEST(MeshJudge, ALineThatAllFallShortOf) {
  const MeshFinding finding = only(healthy_mesh(3, 1, 100));
  EXPECT_EQ(BlameScope::kAll, finding.blame.scope);
  EXPECT_NE(std::string::npos, finding.sentence.find("40 % of the line's 100.000 GB/s")) << finding.sentence;
  EXPECT_TRUE(judge_mesh(healthy_mesh(3, 1, 50)).findings.empty());
}

TEST(MeshJudge, AnHcaOfTheCpuIsLateNowAndThen) {
  MeshMatrix mesh = healthy_mesh(4);
  for (MeshHost& host : mesh.hosts()) host.ends[0].software = true;
  plant(
      mesh, [](auto, auto from, auto to) { return from == 2 || to == 2; }, make_late);
  plant(
      mesh, [](auto, auto from, auto to) { return from == 1 || to == 1; }, make_slow);
  EXPECT_TRUE(judge_mesh(mesh).findings.empty());
  plant(
      mesh, [](auto, auto from, auto to) { return from == 2 || to == 2; },
      [](MeshCell& cell) { cell.latency_p50_us = 5000; });
  plant(
      mesh, [](auto, auto from, auto to) { return from == 1 || to == 1; }, make_slow);  // a sixteenth by now
  const MeshVerdict verdict = judge_mesh(mesh);
  ASSERT_EQ(2U, verdict.findings.size()) << told(verdict);
  EXPECT_EQ(2U, verdict.findings[0].blame.host);
  EXPECT_EQ(1U, verdict.findings[1].blame.host);
}

TEST(MeshJudge, SuspectsAreThePairsToLookAtAgain) {
  MeshMatrix mesh = healthy_mesh(6, 2);
  make_slow(mesh.cell(1, 4, 2));
  make_late(mesh.cell(1, 4, 2));
  make_late(mesh.cell(1, 2, 4));
  const MeshVerdict verdict = judge_mesh(mesh);
  EXPECT_TRUE(verdict.suspects[0].empty());
  EXPECT_EQ((std::vector<MeshPair>{{2, 4}}), verdict.suspects[1]);
}

TEST(MeshJudge, JsonNamesScopeHostsAndRail) {
  MeshMatrix mesh = healthy_mesh(4, 2);
  plant(
      mesh, [](auto rail, auto from, auto to) { return rail == 1 && (from == 2 || to == 2); }, make_slow);
  const nlohmann::json json = verdict_json(judge_mesh(mesh), mesh);
  ASSERT_EQ(1U, json["findings"].size());
  EXPECT_EQ("cable", json["findings"][0]["scope"]);
  EXPECT_EQ((std::vector<std::string>{"h2"}), json["findings"][0]["hosts"].get<std::vector<std::string>>());
  EXPECT_EQ(1, json["findings"][0]["rail"]);
}

TEST(UsualCost, WideSpreadWidensTheBound) {
  EXPECT_DOUBLE_EQ(14, usual_cost({10, 10, 10, 10, 200}, {}).bound);
  EXPECT_GT(usual_cost({6, 8, 10, 12, 14, 16, 18, 20}, {}).bound, 20);
  EXPECT_DOUBLE_EQ(25, usual_cost({10, 10, 10}, {.share = 0.4, .least = 15}).bound);
  EXPECT_FALSE(usual_cost({}, {}).bound < 1e300);
}

TEST(MeshOfRanks, RanksOfAHostShareARow) {
  const auto end = [](const std::string& gid) {
    MeshEnd it;
    it.device = "d" + gid;
    it.gid = gid;
    return it;
  };
  std::vector<MeshRank> ranks(6);
  ranks[0] = {"a", {end("1")}, 0, {}};
  ranks[1] = {"a", {end("2")}, 1, {}};
  ranks[2] = {"b", {end("3")}, 0, {}};
  ranks[3] = {"b", {end("4")}, 0, {}};  // a second one on the same rail
  ranks[4] = {"a", {end("1")}, 0, {}};  // shares a device with rank 0
  ranks[5].absent = "it did not come";
  const MeshMatrix mesh = mesh_of_ranks(ranks);
  ASSERT_EQ(4U, mesh.hosts().size());
  EXPECT_EQ(2U, mesh.rails());
  EXPECT_EQ("a", mesh.hosts()[0].name);
  EXPECT_EQ("d2", mesh.hosts()[0].ends[1].device);
  EXPECT_EQ("b (rank 3)", mesh.hosts()[2].name);
  EXPECT_EQ("rank 5", mesh.hosts()[3].name);
  EXPECT_TRUE(mesh.has_pair(0, 0, 1));
  EXPECT_FALSE(mesh.has_pair(1, 0, 1));
  EXPECT_FALSE(mesh.has_pair(0, 0, 3));
}

}  // namespace
}  // namespace tensorwire::cli
