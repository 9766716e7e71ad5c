#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

/// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build ...": the first word with two
/// dots.
std::optional<std::string> driver_version_in(std::string_view text) {
  const auto line = between(text, "NVRM version:", "\n");
  for (const std::string_view word : words_of(line.value_or(""))) {
    const auto parts = split(word, '.');
    if (parts.size() >= 2 && number_in<unsigned>(parts[0]) && number_in<unsigned>(parts[1])) return std::string{word};
  }
  return std::nullopt;
}

/// "0000:3e:00.0 1", a line for each GPU.
std::optional<bool> all_offer_dmabuf(std::string_view text) {
  bool all = true;
  bool any = false;
  for (const std::string_view line : lines_of(text)) {
    const auto words = words_of(line);
    if (words.size() != 2 || (words[1] != "0" && words[1] != "1")) return std::nullopt;
    any = true;
    all = all && words[1] == "1";
  }
  return any ? std::optional{all} : std::nullopt;
}

}  // namespace

GpuDriver read_gpu_driver(Tree& tree, bool asks_cuda) {
  GpuDriver driver;
  const std::string version = "/proc/driver/nvidia/version";
  driver.version = fact_in_file(tree, version, driver_version_in);
  driver.open_kernel_modules = fact_in_file(tree, version, [](std::string_view text) {
    if (text.find("NVRM version:") == std::string_view::npos) return std::optional<bool>{};
    return std::optional{text.find("Open Kernel Module") != std::string_view::npos};
  });
  const std::string peers = "/sys/kernel/mm/memory_peers/";
  const auto nv_mem = exists(tree.text(peers + "nv_mem/version"), peers + "nv_mem/version");
  driver.legacy_peermem =
      nv_mem.value_or(false) ? nv_mem : exists(tree.text(peers + "nv_mem_nc/version"), peers + "nv_mem*/version");
  driver.nvidia_peermem = exists(tree.text("/sys/module/nvidia_peermem/version"), "/sys/module/nvidia_peermem/version");
  driver.peermem_users = number_in_file<unsigned>(tree, "/sys/module/nvidia_peermem/refcnt");
  if (asks_cuda) driver.cuda_dmabuf = fact_of_tool(tree, tool::kCudaDmabuf, "", all_offer_dmabuf);
  driver.peer_memory_api = fact_of_tool(tree, tool::kKernelSymbols, "", [](std::string_view text) {
    return std::optional{text.find("ib_register_peer_memory_client") != std::string_view::npos};
  });
  return driver;
}

}  // namespace tensorwire::host
