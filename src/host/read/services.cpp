// The files of systemd's units that say how much memory a job may lock.
#include <algorithm>
#include <array>

#include "host/parse/systemd.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

/// Those that start what runs on GPUs.
constexpr std::array kServices = {"slurmd.service",  "containerd.service", "docker.service",
                                  "kubelet.service", "crio.service",       "ray.service"};

/// Where units lie, those that win last.
constexpr std::array kFolders = {"/lib/systemd/system/", "/usr/lib/systemd/system/", "/run/systemd/system/",
                                 "/etc/systemd/system/"};

/// A unit's own file, of which the last folder's hides all others, then what was added to it.
std::vector<std::string> files_of(Tree& tree, const std::string& service) {
  std::vector<std::string> files;
  for (const char* const folder : kFolders) files.push_back(folder + service);
  for (const char* const folder : kFolders) {
    const std::string additions = folder + service + ".d";
    for (const std::string& name : names_in(tree, additions).value_or({})) {
      if (name.ends_with(".conf")) files.push_back(additions + "/" + name);
    }
  }
  return files;
}

void add_limit(Tree& tree, const std::string& service, std::vector<ServiceLimit>& all) {
  std::optional<ServiceLimit> limit;
  for (const std::string& file : files_of(tree, service)) {
    const Answer text = tree.text(file);
    if (!text.ok()) continue;
    if (file.ends_with(".service")) limit.reset();
    const auto value = limit_memlock_in(text.text);
    if (!value) continue;
    limit.reset();
    if (const auto bytes = bytes_of_limit(*value))
      limit = ServiceLimit{service, *bytes, "LimitMEMLOCK=" + std::string{*value}, file};
  }
  if (limit) all.push_back(*std::move(limit));
}

}  // namespace

std::vector<ServiceLimit> read_service_limits(Tree& tree, const std::string& service) {
  std::vector<ServiceLimit> all;
  for (const char* const one : kServices) add_limit(tree, one, all);
  if (!service.empty() && std::ranges::count(kServices, service) == 0) add_limit(tree, service, all);
  return all;
}

}  // namespace tensorwire::host
