#include "comm/observe/output_name.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace tensorwire::comm {

std::string output_name(const std::string& pattern, const Identity& who) {
  std::string name;
  bool has_rank = false, has_communicator = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    const bool known = pattern[i] == '%' && (next == 'r' || next == 'c' || next == 'p');
    if (!known) {
      name += pattern[i];
      continue;
    }
    ++i;
    if (next == 'r') name += std::to_string(who.rank);
    if (next == 'c') name += std::to_string(who.communicator);
    if (next == 'p') name += std::to_string(getpid());
    has_rank = has_rank || next != 'c';
    has_communicator = has_communicator || next == 'c';
  }
  std::string added;
  if (!has_rank) added += fmt::format(".rank{}", who.rank);
  if (!has_communicator && who.communicator != 0) added += fmt::format(".comm{}", who.communicator);
  const std::size_t file = name.rfind('/') + 1;  // npos + 1 is 0
  const std::size_t dot = name.rfind('.');
  const bool has_extension = dot != std::string::npos && dot > file;
  return name.insert(has_extension ? dot : name.size(), added);
}

}  // namespace tensorwire::comm
