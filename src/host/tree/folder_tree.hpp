// The files of a host below a folder: "/" for the live one, or a copy that somebody made by hand. Nothing here blocks:
// only regular files are read, and only their first MiB.
#pragma once

#include <cstddef>
#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// In a copy, what a tool printed lies in tool/<tool>/<subject>, and links that leave the folder lead nowhere.
class FolderTree final : public Tree {
 public:
  explicit FolderTree(std::string root);

  [[nodiscard]] Answer answer(Ask kind, const std::string& name) override;

 private:
  [[nodiscard]] Answer inside_target(const std::string& path) const;

  std::string root_;  ///< without the slash at its end: empty is the live system
};

/// The first MiB of a regular file, or as much as `longest` says.
[[nodiscard]] Answer read_file(const std::string& path, std::size_t longest = std::size_t{1} << 20);
[[nodiscard]] Answer list_folder(const std::string& path);
[[nodiscard]] Answer real_path(const std::string& path);
[[nodiscard]] Answer open_node(const std::string& path);

}  // namespace tensorwire::host
