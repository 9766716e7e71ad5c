#include "cli/soft_command.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "cli/soft_nccl.hpp"
#include "cli/soft_pci.hpp"
#include "cli/soft_sysfs.hpp"
#include "cli/soft_view.hpp"

namespace tensorwire::cli {

namespace {

constexpr const char* kSearchPath = "LD_LIBRARY_PATH";

std::filesystem::path drop_in() {
  if (const auto chosen = env::get("TENSORWIRE_SOFT_LIBRARY")) return std::filesystem::absolute(*chosen);
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path() / "lib/tensorwire/libibverbs.so.1";
}

void show_devices(const std::vector<SoftDeviceFacts>& devices) {
  std::vector<SysfsEntry> entries;
  for (const SoftDeviceFacts& device : devices) {
    for (SysfsEntry& entry : sysfs_entries(device)) entries.push_back(std::move(entry));
  }
  if (const auto reason = show_in_sysfs(entries)) {
    log_info(
        "programs that read /sys/class/infiniband, as NCCL does, will not find the user-space HCA's devices there: " +
        *reason);
  }
}

void tell_nccl(const std::vector<SoftDeviceFacts>& devices, const std::vector<bool>& on_nic) {
  for (const NcclVariable& variable : nccl_variables(devices, on_nic)) {
    if (std::getenv(variable.name) != nullptr) continue;
    if (::setenv(variable.name, variable.value.c_str(), 1) != 0) throw system_error("set NCCL's environment", errno);
    log_info("set " + std::string{variable.name} + "=" + variable.value + ": " + variable.reason);
  }
}

/// Before anything is mounted: what it reads is the host's own sysfs.
void introduce_devices(SoftOptions options) {
  std::vector<SoftDeviceFacts> devices = soft_device_facts();
  std::vector<bool> on_nic;
  for (SoftDeviceFacts& device : devices) {
    const PciPlace place = pci_place("/sys", device.info.interface, device.info.interface_index);
    device.pci_folder = place.folder;
    on_nic.push_back(place.is_nic);
    if (options.sysfs)
      log_info(device.info.name + " is shown at " + (place.folder.empty() ? "no PCI device" : place.folder) + ": " +
               place.reason);
  }
  if (options.sysfs) show_devices(devices);
  tell_nccl(devices, on_nic);
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

void run_on_soft_hca(const std::vector<std::string>& command, SoftOptions options) {
  if (command.empty()) {
    throw Error{"run a program on the user-space HCA", "no program was named",
                "Write it behind --: tensorwire soft -- ibv_devinfo -v"};
  }
  const char* search_path = std::getenv(kSearchPath);
  const std::string path = prepend_to_path(soft_library_folder(), search_path == nullptr ? "" : search_path);
  if (::setenv(kSearchPath, path.c_str(), 1) != 0) throw system_error("set LD_LIBRARY_PATH", errno);
  introduce_devices(options);

  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  throw system_error("run " + command.front(), errno, "Is it installed, and is its folder in PATH?");
}

}  // namespace tensorwire::cli
