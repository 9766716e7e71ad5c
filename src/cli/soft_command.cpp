#include "cli/soft_command.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/env.hpp"
#include "base/error.hpp"

namespace tensorwire::cli {

namespace {

constexpr const char* kSearchPath = "LD_LIBRARY_PATH";

std::filesystem::path drop_in() {
  if (const auto chosen = env::get("TENSORWIRE_SOFT_LIBRARY")) return std::filesystem::absolute(*chosen);
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path() / "lib/tensorwire/libibverbs.so.1";
}

}  // namespace

std::string soft_library_folder() {
  const std::filesystem::path library = drop_in();
  if (!std::filesystem::exists(library)) {
    throw Error{"find the user-space HCA", library.string() + " does not exist",
                "Keep bin/ and lib/ side by side, or set TENSORWIRE_SOFT_LIBRARY to the path of libibverbs.so.1"};
  }
  return library.parent_path().string();
}

std::string prepend_to_path(std::string_view folder, std::string_view path) {
  std::string result{folder};
  while (!path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    const std::string_view entry = path.substr(0, end);
    if (!entry.empty() && entry != folder) result.append(":").append(entry);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return result;
}

void run_on_soft_hca(const std::vector<std::string>& command) {
  if (command.empty()) {
    throw Error{"run a program on the user-space HCA", "no program was named",
                "Write it behind --: tensorwire soft -- ibv_devinfo -v"};
  }
  const char* search_path = std::getenv(kSearchPath);
  const std::string path = prepend_to_path(soft_library_folder(), search_path == nullptr ? "" : search_path);
  if (::setenv(kSearchPath, path.c_str(), 1) != 0) throw system_error("set LD_LIBRARY_PATH", errno);

  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  throw system_error("run " + command.front(), errno, "Is it installed, and is its folder in PATH?");
}

}  // namespace tensorwire::cli
