// How a finding about a mesh is said to people: who, what, how much, and where to look.
#pragma once

#include <string>

#include "cli/mesh/judge.hpp"

namespace tensorwire::cli {

/// @param why  the error of kUnreached, kAbsent and kDevice
[[nodiscard]] std::string mesh_sentence(const MeshFinding& finding, const MeshMatrix& mesh, const std::string& why);

[[nodiscard]] const char* name_of(MeshTrouble trouble);
[[nodiscard]] const char* name_of(BlameScope scope);
[[nodiscard]] const char* name_of(BlameWay way);

}  // namespace tensorwire::cli
