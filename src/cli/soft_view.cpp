#include "cli/soft_view.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace tensorwire::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kClasses = "/sys/class";
constexpr const char* kInfiniband = "/sys/class/infiniband";
constexpr unsigned long kHarmless = MS_NOSUID | MS_NODEV | MS_NOEXEC;

void write_file(const fs::path& path, const std::string& text) {
  const UniqueFd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444)};
  if (!file) throw system_error("create " + path.string(), errno);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()))
    throw system_error("write " + path.string(), written < 0 ? errno : ENOSPC);
}

void mount_or_throw(const char* source, const std::string& target, const char* type, unsigned long flags,
                    const char* options = nullptr) {
  if (::mount(source, target.c_str(), type, flags, options) != 0) throw system_error("mount on " + target, errno);
}

/// The user may do nothing in it that they could not do before, but mount.
void enter_user_namespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) throw system_error("make a user namespace", errno);
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", std::to_string(user) + " " + std::to_string(user) + " 1");
  write_file("/proc/self/gid_map", std::to_string(group) + " " + std::to_string(group) + " 1");
}

/// What is mounted on /sys from here on stays in here. What the program mounts elsewhere is seen by all, as without
/// this.
void keep_mounts_of_sys() {
  if (::mount(nullptr, "/sys", nullptr, MS_REC | MS_SLAVE, nullptr) == 0) return;
  if (errno != EINVAL) throw system_error("keep mounts of /sys to this program", errno);
  mount_or_throw(nullptr, "/", nullptr, MS_REC | MS_SLAVE);  // /sys is no mount of its own
}

void enter_namespace() {
  if (::unshare(CLONE_NEWNS) != 0) {
    const int why = errno;
    // Root without the right to mount would lose its other rights over files of others in a user namespace.
    if (why != EPERM || geteuid() == 0) throw system_error("make a mount namespace", why);
    enter_user_namespace();
  }
  keep_mounts_of_sys();
}

/// A file system in memory on `folder`, taken away again unless all that belongs in it got there.
class NewFolder {
 public:
  explicit NewFolder(const char* folder) : folder_(folder) {
    mount_or_throw("tensorwire", folder, "tmpfs", kHarmless, "mode=755,size=4m");
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    if (folder_ != nullptr) ::umount2(folder_, MNT_DETACH);
  }
  void finish() {
    mount_or_throw(nullptr, folder_, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kHarmless);
    folder_ = nullptr;
  }

 private:
  const char* folder_;
};

void write_entries(const std::vector<SysfsEntry>& entries) {
  for (const SysfsEntry& entry : entries) {
    const fs::path path = fs::path{kInfiniband} / entry.path;
    fs::create_directories(path.parent_path());
    if (entry.link) {
      fs::create_symlink(entry.text, path);
    } else {
      write_file(path, entry.text);
    }
  }
}

struct KernelDevice {
  fs::path name;
  fs::path link;
};

/// The kernel's devices are links; folders are those of a view that this one takes the place of.
std::vector<KernelDevice> kernel_devices() {
  std::vector<KernelDevice> devices;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator{kInfiniband, error}) {
    if (entry.is_symlink()) devices.push_back({entry.path().filename(), fs::read_symlink(entry.path())});
  }
  return devices;
}

void fill_infiniband(const std::vector<KernelDevice>& known, const std::vector<SysfsEntry>& entries) {
  NewFolder folder{kInfiniband};
  write_entries(entries);
  for (const KernelDevice& device : known) {
    const fs::path path = fs::path{kInfiniband} / device.name;
    if (!fs::exists(fs::symlink_status(path))) fs::create_symlink(device.link, path);
  }
  folder.finish();
}

/// Nobody can make a folder in sysfs: /sys/class is made anew from all that is in it, and infiniband.
void add_infiniband_class() {
  const UniqueFd old{::open(kClasses, O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!old) throw system_error("open /sys/class", errno);
  const fs::path before = fs::path{"/proc/self/fd"} / std::to_string(old.get());
  std::vector<fs::path> names;
  for (const fs::directory_entry& entry : fs::directory_iterator{kClasses}) names.push_back(entry.path().filename());

  NewFolder folder{kClasses};
  for (const fs::path& name : names) {
    const fs::path place = fs::path{kClasses} / name;
    fs::create_directory(place);
    mount_or_throw((before / name).c_str(), place.string(), nullptr, MS_BIND | MS_REC);
  }
  fs::create_directory(kInfiniband);
  folder.finish();
}

void build_view(const std::vector<SysfsEntry>& entries) {
  enter_namespace();
  const std::vector<KernelDevice> known = kernel_devices();
  if (!fs::is_directory(kInfiniband)) add_infiniband_class();
  fill_infiniband(known, entries);
}

std::optional<std::string> reason_against(const std::vector<SysfsEntry>& entries) noexcept {
  try {
    build_view(entries);
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// What building the view says in a process that is thrown away.
std::optional<std::string> try_in_a_child(const std::vector<SysfsEntry>& entries) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "cannot make a pipe: " + errno_text(errno);
  const UniqueFd reader{ends[0]};
  UniqueFd writer{ends[1]};
  const pid_t child = ::fork();
  if (child < 0) return "cannot fork: " + errno_text(errno);
  if (child == 0) {
    const std::string answer = reason_against(entries).value_or("built");
    ::_exit(::write(writer.get(), answer.data(), answer.size()) < 0 ? 1 : 0);
  }
  writer.reset();
  std::array<char, 1024> text{};
  ssize_t count = 0;
  do count = ::read(reader.get(), text.data(), text.size());
  while (count < 0 && errno == EINTR);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  const std::string answer(text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (answer == "built") return std::nullopt;
  return answer.empty() ? "the attempt died" : answer;
}

}  // namespace

std::optional<std::string> show_in_sysfs(const std::vector<SysfsEntry>& entries) {
  if (auto reason = try_in_a_child(entries)) return reason;
  return reason_against(entries);
}

}  // namespace tensorwire::cli
