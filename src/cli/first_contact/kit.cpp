#include "cli/first_contact/kit.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/first_contact/child.hpp"

namespace tensorwire::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".tar.gz";
constexpr Ps kPackBound = 60 * kSecond;

std::string folder_of(const std::string& archive) {
  if (!archive.ends_with(kEnding) || archive.size() == kEnding.size()) {
    throw Error{"-o " + archive, fmt::format("what is written is a {} file", kEnding)};
  }
  return archive.substr(0, archive.size() - kEnding.size());
}

}  // namespace

Kit::Kit(const std::string& archive)
    : archive_(archive), folder_(folder_of(archive)), secrets_(secrets_in(bootstrap::process_environment())) {
  for (const std::string& path : {archive_, folder_}) {
    if (fs::exists(path)) {
      throw Error{"write " + archive_, path + " is there already", "Move it away, or give another name with -o"};
    }
  }
  std::error_code error;
  if (!fs::create_directory(folder_, error)) {
    throw system_error("make folder " + folder_, error.value(), "Give a name in a folder that exists and is writable");
  }
}

Kit::~Kit() {
  std::error_code ignored;
  if (!keep_folder_) fs::remove_all(folder_, ignored);
}

void Kit::use_pseudonyms(Replacements names, const std::string& key) {
  names_ = std::move(names);
  pseudonyms_.emplace(key);
}

void Kit::add(const std::string& name, const std::string& text, Addresses addresses) {
  std::string clean = without_hardware_addresses(without_secrets(text, secrets_));
  if (pseudonyms_ && addresses == Addresses::kAsTheyAre) {
    clean = with_other_names(pseudonyms_->in_output(clean), names_);
  }
  const fs::path path = fs::path{folder_} / name;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) throw system_error("make folder " + path.parent_path().string(), error.value());
  replace_file(path.string(), clean);
}

std::string Kit::pack() {
  const fs::path folder = fs::absolute(folder_);
  const std::string partial = fs::absolute(archive_).string() + ".partial";
  ChildPlan plan;
  plan.words = {"tar",
                "--numeric-owner",
                "--owner=0",
                "--group=0",
                "-czf",
                partial,
                "-C",
                folder.parent_path().string(),
                folder.filename().string()};
  plan.bound = kPackBound;
  const ChildResult tar = run_child(plan, never_stops());
  std::error_code error;
  if (tar.ok()) fs::rename(partial, archive_, error);
  if (!tar.ok() || error) {
    keep_folder_ = true;
    fs::remove(partial, error);
    throw Error{"pack " + archive_, tar.ok() ? "it cannot be moved into place" : tar.why(),
                "What was found lies in the folder " + folder_};
  }
  return fmt::format("{}: {}", archive_, format_bytes(fs::file_size(archive_)));
}

}  // namespace tensorwire::cli
