// Observers whose files must be written even when the process exits without destroying its communicators.
#pragma once

namespace tensorwire::comm {

class Observer;

void exit_registry_add(Observer& observer);
/// Afterwards the exit handler does not touch it.
void exit_registry_remove(Observer& observer) noexcept;

}  // namespace tensorwire::comm
