// Trees: what is recorded gives the verdict of the live host, holds nothing private, and survives damage.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/error.hpp"
#include "host/parse/nccl_log.hpp"
#include "host/read/read.hpp"
#include "host/record.hpp"
#include "host/report.hpp"
#include "host/test_host.hpp"
#include "host/tree/folder_tree.hpp"
#include "host/tree/live_tree.hpp"
#include "host/tree/run_program.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

std::string verdict(const Host& host) { return report_json(host, diagnose(host)); }

Recording record(Tree& tree) {
  Recorder recorder{tree};
  static_cast<void>(read_host(recorder));
  remove_private(recorder.recording());
  return std::move(recorder.recording());
}

/// A folder of this test, empty.
std::string new_folder() {
  std::string name = testing::TempDir() + "tw_host_XXXXXX";
  return mkdtemp(name.data());
}

void make_file(const std::string& path, const std::string& text) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), 0755);
  }
  std::ofstream{path} << text;
}

TEST(Recording, GivesTheSameVerdict) {
  for (const Kind kind : kKinds) {
    TestHost host{kind};
    if (kind == Kind::kMlx5) host.config("0000:3c:01.0", 0x1d).set("NCCL_IB_GID_INDEX", "1").set("NCCL_IB_TC", "26");
    Recording recording = record(host.tree());
    Recording again = Recording::from_text(recording.to_text(), "text");
    EXPECT_EQ(again.to_text(), recording.to_text());
    EXPECT_EQ(verdict(read_host(again)), verdict(host.facts())) << to_string(kind);
  }
}

TEST(Recording, HoldsNothingPrivate) {
  TestHost host{Kind::kMlx5};
  const std::string text = record(host.tree()).to_text();
  for (const char* secret :
       {"API_TOKEN", "never to be recorded", "GPU-11111111", "HOME=", "libc.so.6", "0c42:a103", "\\x11\"3DUfw\\x7f"}) {
    EXPECT_EQ(text.find(secret), std::string::npos) << secret;
  }
  EXPECT_NE(text.find("NCCL_IB_TC=104"), std::string::npos);
  EXPECT_LT(text.size(), 64U << 10) << "small enough to attach to a report";
}

TEST(Recording, KeepsTheErrno) {
  Recording recording;
  recording.put(Ask::kText, "/x", {{}, EINVAL});
  recording.put(Ask::kTool, "dcb-pfc eth2", {"Attribute read: Operation not supported", EIO});
  Recording again = Recording::from_text(recording.to_text(), "text");
  EXPECT_EQ(again.text("/x").error, EINVAL);
  EXPECT_EQ(again.tool("dcb-pfc", "eth2").text, "Attribute read: Operation not supported");
  EXPECT_EQ(again.text("/y").why(), "not in this recording");
}

TEST(Recording, DamagedTextIsRefusedWithItsLine) {
  EXPECT_THROW(static_cast<void>(Recording::from_text("", "x")), Error);
  try {
    static_cast<void>(Recording::from_text("tensorwire host recording 1\n= /a\tb\n= /a\t!EWHAT\t\n", "some.txt"));
    FAIL() << "damage was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "read recording some.txt: line 3 is no part of a recording");
  }
}

TEST(Recording, CutAnywhereIsReadOrRefused) {
  TestHost host{Kind::kMlx5};
  const std::string whole = record(host.tree()).to_text();
  for (std::size_t size = 0; size < whole.size(); size += 97) {
    try {
      Recording part = Recording::from_text(whole.substr(0, size), "cut");
      static_cast<void>(verdict(read_host(part)));
    } catch (const Error&) {
    }
  }
}

TEST(Recording, GarbageInAnyFileIsNoCrashAndNoVerdictAboutIt) {
  for (const std::string& garbage :
       {std::string{"\xff\xfe\x00\x01garbage", 11}, std::string(100'000, '9'), std::string{}}) {
    TestHost host{Kind::kOfed};
    host.tree().filter([&garbage](Ask kind, std::string_view, Answer& answer) {
      if (kind == Ask::kText || kind == Ask::kTool) answer.text = garbage;
      return true;
    });
    Recording& tree = host.tree();
    static_cast<void>(verdict(read_host(tree)));
  }
}

/// One answer of a healthy host is spoilt, each in turn: what is not known of it gives no verdict.
class Spoilt : public testing::TestWithParam<Kind> {};

TEST_P(Spoilt, OneAnswerGivesNoVerdict) {
  const std::string garbage{"\xff\xfe\x00\x01 garbage \x7f", 14};
  TestHost healthy{GetParam()};
  Recording& tree = healthy.tree();
  std::vector<std::pair<Ask, std::string>> questions;
  tree.filter([&questions](Ask kind, std::string_view name, Answer& answer) {
    // That a node cannot be opened is a verdict.
    if (answer.ok() && kind != Ask::kOpens) questions.emplace_back(kind, name);
    return true;
  });
  for (const auto& [kind, name] : questions) {
    const Answer good = tree.answer(kind, name);
    for (const Answer& bad : {Answer{{}, EACCES}, Answer{garbage, 0}}) {
      tree.put(kind, name, bad);
      const Host host = read_host(tree);
      const Diagnosis diagnosis = diagnose(host);
      EXPECT_TRUE(diagnosis.findings.empty())
          << static_cast<char>(kind) << " " << name << " is " << (bad.ok() ? "garbage" : bad.why()) << ": "
          << report_json(host, diagnosis);
    }
    tree.put(kind, name, good);
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, Spoilt, testing::Values(Kind::kOfed, Kind::kBroadcom));

TEST(Recording, WithEverythingRefusedThereIsNoVerdict) {
  TestHost host{Kind::kMlx5};
  Recording& tree = host.tree();
  tree.filter([](Ask, std::string_view, Answer& answer) {
    answer = {{}, EACCES};
    return true;
  });
  EXPECT_TRUE(diagnose(read_host(tree)).findings.empty());
}

TEST(FolderTree, ReadsCopiedFilesAndToolOutputs) {
  const std::string root = new_folder();
  make_file(root + "/sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
  make_file(root + "/sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
  make_file(root + "/sys/class/infiniband/rxe0/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
  make_file(root + "/sys/class/infiniband/rxe0/ports/1/gid_attrs/types/0", "RoCE v2\n");
  make_file(root + "/tool/dcb-pfc/eth2", "{}");
  const auto tree = open_recorded(root);
  EXPECT_EQ(tree->tool(tool::kDcbPfc, "eth2").text, "{}");
  const Diagnosis diagnosis = diagnose(read_host(*tree));
  ASSERT_FALSE(diagnosis.findings.empty());
  EXPECT_EQ(diagnosis.findings[0].id, "TW-GID-001");
}

TEST(FolderTree, DoesNotLeaveItsFolder) {
  const std::string root = new_folder();
  make_file(root + "/inside", "in");
  ASSERT_EQ(symlink("/etc/passwd", (root + "/outside").c_str()), 0);
  ASSERT_EQ(symlink("inside", (root + "/link").c_str()), 0);
  FolderTree tree{root};
  EXPECT_EQ(tree.text("/outside").error, EXDEV);
  EXPECT_EQ(tree.text("/../../../../etc/passwd").error, EXDEV);
  EXPECT_EQ(tree.text("/link").text, "in");
  EXPECT_EQ(tree.target("/link").text, "/inside");
  EXPECT_EQ(tree.tool("..", "../../../etc/passwd").error, ENOENT);
}

TEST(FolderTree, WaitsForNothing) {
  const std::string root = new_folder();
  ASSERT_EQ(mkfifo((root + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_file(root + "/fifo").error, EINVAL);
}

TEST(LiveTree, ReadsThisMachine) {
  LiveTree tree;
  EXPECT_TRUE(tree.text("/proc/sys/kernel/osrelease").ok());
  EXPECT_NE(tree.names("/sys/class/net").text.find("lo\n"), std::string::npos);
  EXPECT_EQ(tree.tool("no-such-tool", "x").error, ENOENT);
  EXPECT_EQ(tree.tool(tool::kDcbPfc, "-f").error, EINVAL) << "a name must not become an option";
  EXPECT_NE(tree.tool(tool::kEthtoolStatistics, "no_such_interface_at_all").error, 0);
  static_cast<void>(verdict(read_host(tree)));
}

TEST(RunProgram, HasABound) {
  EXPECT_EQ(run_program({"sleep", "30"}, 50 * kMillisecond).error, ETIMEDOUT);
  EXPECT_EQ(run_program({"no_such_program_at_all"}).error, ENOENT);
  const Answer failed = run_program({"ls", "/no/such/folder"});
  EXPECT_EQ(failed.error, EIO);
  EXPECT_NE(failed.text.find("No such file"), std::string::npos);
}

}  // namespace

}  // namespace tensorwire::host::test
