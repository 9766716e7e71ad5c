// A file that others read while it is written: they see the old text or the new one, never half of it.
#pragma once

#include <string>
#include <string_view>

namespace tensorwire {

/// Writes `text` beside `path` and renames it into place; a link stays one. What is there and no file (a terminal, a
/// pipe, /dev/stdout) is written to. @throws Error naming the path and the system's reason.
void replace_file(const std::string& path, std::string_view text);

}  // namespace tensorwire
