#include "comm/observe/trace_lines.hpp"

#include <fmt/format.h>

#include "base/json_text.hpp"

namespace tensorwire::comm {

TraceLines::TraceLines(const Identity& who) : who_(who) {
  metadata("process_name", 0, fmt::format("rank {} of {} on {}", who.rank, who.ranks, who.host));
}

void TraceLines::line(const std::string& fields) {
  text_ += text_.empty() ? "{" : ",\n{";
  text_ += fields;
  text_ += '}';
}

void TraceLines::metadata(std::string_view what, int track, const std::string& name) {
  line(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}})", who_.rank, track, what,
                   json_quoted(name)));
}

}  // namespace tensorwire::comm
