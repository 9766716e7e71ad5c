// The device list: one entry per device of the soft HCA, alive while a list or an open context holds it.
#include <endian.h>
#include <fmt/format.h>

#include <cstring>
#include <string>

#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"

namespace tensorwire::ibverbs {

namespace {

template <std::size_t kSize>
void copy_text(char (&to)[kSize], const std::string& text) noexcept {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

ibv_device** make_list(int& count) {
  const std::vector<softhca::DeviceInfo> found = softhca::list_devices();
  auto list = std::make_unique<ibv_device*[]>(found.size() + 1);  // ends with a null pointer
  std::vector<std::unique_ptr<Device>> devices;
  for (const softhca::DeviceInfo& info : found) devices.push_back(std::make_unique<Device>(info));
  for (std::size_t i = 0; i < devices.size(); ++i) list[i] = devices[i].release();
  count = static_cast<int>(found.size());
  return list.release();
}

}  // namespace

Device::Device(softhca::DeviceInfo device_info) : ibv_device{}, info(std::move(device_info)) {
  node_type = IBV_NODE_CA;
  transport_type = IBV_TRANSPORT_IB;
  copy_text(name, info.name);
  // The names that a kernel device would have. Nothing stands there; "uverbs0" could be someone else's device.
  copy_text(dev_name, info.name);
  copy_text(dev_path, fmt::format("/sys/class/infiniband_verbs/{}", info.name));
  copy_text(ibdev_path, fmt::format("/sys/class/infiniband/{}", info.name));
}

void Device::release() noexcept {
  if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  int count = 0;
  ibv_device** list = tw::guarded(ENODEV, [&] { return tw::make_list(count); });
  if (num_devices != nullptr) *num_devices = count;
  return list;
}

TENSORWIRE_VERB void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  for (ibv_device** device = list; *device != nullptr; ++device) tw::of(*device).release();
  delete[] list;
}

TENSORWIRE_VERB const char* ibv_get_device_name(ibv_device* device) { return device->name; }

TENSORWIRE_VERB __be64 ibv_get_device_guid(ibv_device* device) { return tw::of(device).info.guid; }

/// The kernel's index of an RDMA device; these have none.
TENSORWIRE_VERB int ibv_get_device_index(ibv_device*) { return -1; }
