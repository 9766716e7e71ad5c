#include "host/tree/folder_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace tensorwire::host {

namespace {

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace

Answer read_file(const std::string& path, std::size_t longest) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {{}, errno};
  if (S_ISDIR(status.st_mode)) return {{}, EISDIR};
  if (!S_ISREG(status.st_mode)) return {{}, EINVAL};
  const Descriptor file{path, O_RDONLY};
  if (file.get() < 0) return {{}, errno};
  Answer answer;
  std::vector<char> block(16'384);
  while (answer.text.size() < longest) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {{}, errno};
    if (got == 0) break;
    answer.text.append(block.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

Answer list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder{opendir(path.c_str()), closedir};
  if (!folder) return {{}, errno};
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder.get())) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  Answer answer;
  for (const std::string& name : names) answer.text.append(name).append("\n");
  return answer;
}

Answer real_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> found{realpath(path.c_str(), nullptr), std::free};
  return found ? Answer{found.get(), 0} : Answer{{}, errno};
}

Answer open_node(const std::string& path) {
  const Descriptor node{path, O_RDWR};
  return {{}, node.get() < 0 ? errno : 0};
}

FolderTree::FolderTree(std::string root) : root_(std::move(root)) {
  if (const Answer absolute = real_path(root_); absolute.ok()) root_ = absolute.text;
  while (root_.ends_with('/')) root_.pop_back();
}

Answer FolderTree::inside_target(const std::string& path) const {
  Answer answer = real_path(root_ + path);
  if (!answer.ok()) return answer;
  if (!answer.text.starts_with(root_ + "/")) return {{}, EXDEV};
  answer.text.erase(0, root_.size());
  return answer;
}

Answer FolderTree::answer(Ask kind, const std::string& name) {
  const std::string asked = (name.starts_with('/') ? "" : "/") + name;
  if (kind == Ask::kTool) {
    std::string path = root_ + "/tool/" + name;
    std::ranges::replace(path.begin() + static_cast<std::ptrdiff_t>(root_.size()), path.end(), ' ', '/');
    return read_file(path);
  }
  const Answer inside = inside_target(asked);
  if (!inside.ok()) return inside;
  const std::string path = root_ + inside.text;
  switch (kind) {
    case Ask::kText:
      return read_file(path);
    case Ask::kNames:
      return list_folder(path);
    case Ask::kTarget:
      return inside;
    case Ask::kOpens:
      return open_node(path);
    case Ask::kTool:
      break;
  }
  return {{}, EINVAL};
}

}  // namespace tensorwire::host
