// What happens to an open device: its asynchronous events, and what they mean for the port and the GID in use.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "verbs/context.hpp"
#include "verbs/device_probe.hpp"

namespace tensorwire::verbs {

namespace {

/// Whether an event is there, so that taking it does not block.
bool has_event(const ibv_context& context) noexcept {
  pollfd descriptor{.fd = context.async_fd, .events = POLLIN, .revents = 0};
  return poll(&descriptor, 1, 0) == 1 && (descriptor.revents & POLLIN) != 0;
}

bool may_change_the_path(ibv_event_type type) noexcept {
  return type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE ||
         type == IBV_EVENT_LID_CHANGE || type == IBV_EVENT_DEVICE_FATAL;
}

}  // namespace

DeviceNews Context::take_news() {
  bool concerns_us = false;
  while (has_event(*context_)) {
    ibv_async_event event{};
    if (call().get_async_event(context_, &event) != 0) break;
    concerns_us = concerns_us || may_change_the_path(event.event_type);
    call().ack_async_event(&event);  // at once: the object that it names could not be destroyed otherwise
  }
  return concerns_us ? look_again() : DeviceNews{};
}

/// An index says nothing: entries come and go. The address is what the peers know.
DeviceNews Context::look_again() {
  DeviceNews news;
  news.any = true;
  ibv_port_attr attributes{};
  if (const int error = query_port(*library_, context_, port_, attributes); error != 0) {
    problem_ = fmt::format("port {} of {} cannot be asked any more", port_, name_);
    return news;
  }
  problem_ = port_problem(port_, attributes);
  if (!problem_.empty()) problem_ += " (" + name_ + ")";
  const std::vector<GidFacts> table = read_gid_table(*library_, context_, port_, attributes.gid_tbl_len);
  const auto is_ours = [&](const GidFacts& entry) { return entry.gid == gid() && entry.type == gid_.entry.type; };
  // Where it stands twice, it has not moved as long as it stands where it stood.
  const auto stays = [&](const GidFacts& entry) { return is_ours(entry) && entry.index == gid_index(); };
  if (std::ranges::any_of(table, stays)) return news;
  const auto found = std::ranges::find_if(table, is_ours);
  if (found != table.end()) {
    gid_.entry = *found;
    gid_.reason = "where its address stands now";
    news.gid_moved = true;
  } else if (problem_.empty()) {
    problem_ = fmt::format("{} has lost the address {}", name_, to_string(gid()));
  }
  return news;
}

}  // namespace tensorwire::verbs
