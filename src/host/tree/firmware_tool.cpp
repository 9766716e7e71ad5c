#include "host/tree/firmware_tool.hpp"

#include <cerrno>

#include "host/tree/run_program.hpp"

namespace tensorwire::host {

Answer firmware_settings(const std::string& pci_address) {
  constexpr Ps kFirmwareBound = 10 * kSecond;
  const Answer answer = run_program({"mlxconfig", "-d", pci_address, "-e", "query"}, kFirmwareBound);
  if (answer.error != ENOENT) return answer;
  return run_program({"mstconfig", "-d", pci_address, "-e", "query"}, kFirmwareBound);
}

}  // namespace tensorwire::host
